"""A cloud that is killed in the middle of text that is shown over HTTP, and started again.

`dragonrt serve` streams an answer. The cloud's process gets SIGKILL after a piece of it; the next
question is asked when another process of the cloud listens.
"""

import json
import os
import signal
import time
import urllib.request
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from itertools import pairwise
from typing import Any

from dragonrt import bundled
from dragonrt.modes.mode import OnLoss
from dragonrt.service.cloud_process import cloud_process, listening_process

Shown = tuple[list[str], str, list[float]]
"""The pieces of an answer, its text at the end, and when each piece came."""
LIMIT_S = 120.0
"""Of one request: only stops one that hangs."""
QUESTION = "What do you need to make lemon cake?"
OPTIONS = ("--temperature", "5", "--aggregator", "sync", "--codec", "dense:fp16")
"""A long answer, every token of which waits for the cloud."""


def kills_over_http(
    points: Sequence[int],
    on_loss: OnLoss,
    *,
    model: str = "dragon-small",
    tokens: int = 24,
    seed: int = 4,
) -> list[dict[str, Any]]:
    """Kill the cloud once in each of so many answers; needs the extra `serve`.

    `kept`: nothing shown was taken back, and all before the kill is what both sides say; `whole`:
    so is all after it; `again`: so was the next answer. `gap_s` is the longest time between pieces.
    """
    own = ("serve", "--model", model, "--documents", str(bundled.documents("device")))
    how = (*OPTIONS, "--seed", str(seed), "--max-tokens", str(tokens), "--on-loss", on_loss)
    documents = ("--documents", str(bundled.documents("cloud")))
    found = []
    with ExitStack() as stack:
        cloud = stack.enter_context(cloud_process(*documents, model=model))
        port = cloud.wait_ready()
        program = ("dragonrt", "--config", os.devnull, *own, *how, "--port", str(port))
        service = stack.enter_context(listening_process(*program, "--http-port", "0"))
        url = f"http://127.0.0.1:{service.wait_ready()}/v1/responses"
        _, whole, _ = _ask(url, model)
        for point in points:
            shown: Shown = [], "", []
            for shown in _asked(url, model):
                if len(shown[0]) == point and not shown[1]:
                    os.kill(cloud.pid, signal.SIGKILL)
                    cloud = stack.enter_context(
                        cloud_process(*documents, "--port", str(port), model=model)
                    )
            cloud.wait_ready()
            pieces, text, times_s = shown
            kept = "".join(pieces).strip() == text
            kept &= whole.startswith("".join(pieces[:point]).strip())
            gap_s = max(later - earlier for earlier, later in pairwise(times_s))
            ends = {"whole": text == whole, "again": _ask(url, model)[1] == whole}
            found.append({"kept": kept, "gap_s": gap_s} | ends)
    return found


def _ask(url: str, model: str) -> Shown:
    return list(_asked(url, model))[-1]


def _asked(url: str, model: str) -> Iterator[Shown]:
    """Yield what is shown of a streamed answer, after every piece of it and at its end."""
    asked = {"model": model, "input": QUESTION, "stream": True, "sources_in_text": False}
    headers = {"Content-Type": "application/json"}
    request = urllib.request.Request(url, json.dumps(asked).encode(), headers)
    pieces: list[str] = []
    times_s: list[float] = []
    with urllib.request.urlopen(request, timeout=LIMIT_S) as lines:
        for line in lines:
            event: Any = json.loads(line[6:]) if line.startswith(b"data: {") else {"type": ""}
            if event["type"] == "response.output_text.delta":
                pieces.append(event["delta"])
                times_s.append(time.monotonic())
                yield pieces, "", times_s
            elif event["type"] in ("response.completed", "response.incomplete"):
                (message,) = event["response"]["output"]
                yield pieces, "".join(part["text"] for part in message["content"]), times_s
