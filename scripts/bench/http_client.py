"""A client of its own process: `python -m scripts.bench.http_client PORT`.

It reads a request's body from each line of its input, asks, and writes a line of JSON: the seconds
to the first text and to the end, on a clock of its own, and the text. One connection for all.
"""

import http.client
import json
import sys
import time


def _ask(connection: http.client.HTTPConnection, body: bytes) -> dict[str, object]:
    began_s = time.perf_counter()
    headers = {"Content-Type": "application/json"}
    connection.request("POST", "/v1/chat/completions", body, headers)
    response = connection.getresponse()
    first_s, lines = None, []
    while line := response.readline():
        if first_s is None and b'"content": "' in line and b'"content": ""' not in line:
            first_s = time.perf_counter() - began_s
        lines.append(line)
    whole_s = time.perf_counter() - began_s
    data = (line[6:] for line in lines if line.startswith(b"data: {"))
    deltas = (choice["delta"] for each in data for choice in json.loads(each)["choices"])
    text = "".join(delta.get("content") or "" for delta in deltas)
    return {"first_s": first_s, "whole_s": whole_s, "text": text}


def main() -> None:
    """Ask until the input ends."""
    connection = http.client.HTTPConnection("127.0.0.1", int(sys.argv[1]), timeout=60)
    for line in sys.stdin.buffer:
        print(json.dumps(_ask(connection, line)), flush=True)


if __name__ == "__main__":
    main()
