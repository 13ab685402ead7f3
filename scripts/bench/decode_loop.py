"""What one side costs without the other: the tokens of an answer decoded one by one.

`python -m scripts.bench.decode_loop SIDE MODEL` does it in a process of its own: each
line on stdin is a task in JSON, answered on stdout by the milliseconds per token.
"""

import json
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from dragonrt.backends.backend import Preemption
from dragonrt.errors import DragonError
from dragonrt.experiments.sample_sides import LoadedSide, sample_settings
from dragonrt.modes.prefix import TokenPrefix, start_hash
from dragonrt.modes.question import Question
from dragonrt.side import Side
from scripts.papers.model_sides import document_reader


class DecodeLoop:
    """One side's rows with the question read, ready to decode given tokens again and again."""

    def __init__(self, loaded: LoadedSide, question: str, rows: int, tokens: list[int]) -> None:
        """`rows` documents are found for the question."""
        self._line = TokenPrefix(start_hash(0), tokens)
        self._reader = document_reader(
            loaded, Question(prompt=question, documents=rows, max_tokens=len(tokens))
        )

    def run(self) -> float:
        """Milliseconds per token of decoding all tokens, each by its own forward."""
        tokens, hashes = self._line.tokens, self._line.hashes
        start_s = time.perf_counter()
        for length in range(1, len(tokens) + 1):
            self._reader.read(tokens[:length], hashes[: length + 1], length, Preemption())
        return 1000 * (time.perf_counter() - start_s) / len(tokens)


class RemoteLoop:
    """A DecodeLoop in a second process; made by `remote_loop`."""

    def __init__(self, process: "subprocess.Popen[str]") -> None:
        self._process = process

    def prepare(self, question: str, rows: int, tokens: list[int]) -> None:
        """Make the loop, and wait until it could start."""
        self._tell({"question": question, "rows": rows, "tokens": tokens})
        self._hear()

    def start(self) -> None:
        """Run it; `finish` waits for its end."""
        self._tell("run")

    def finish(self) -> float:
        """Milliseconds per token of the run that was started."""
        return float(self._hear())

    def _tell(self, task: Any) -> None:
        if self._process.stdin is not None:
            self._process.stdin.write(json.dumps(task) + "\n")
            self._process.stdin.flush()

    def _hear(self) -> str:
        line = self._process.stdout.readline() if self._process.stdout is not None else ""
        if not line:
            raise DragonError("the process that decodes beside this one ended; see its error above")
        return line


@contextmanager
def remote_loop(side: Side, model: str) -> Iterator[RemoteLoop]:
    """A second process with one side's model and sample documents, until the context ends."""
    command = [sys.executable, "-m", __name__, side, model]
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, encoding="utf-8"
    ) as process:
        try:
            yield RemoteLoop(process)
        finally:
            process.terminate()


def main(side: Side, model: str) -> None:
    """Serve a RemoteLoop on stdin and stdout."""
    loaded = LoadedSide.load(sample_settings(side, model))
    loop: DecodeLoop | None = None
    for line in sys.stdin:
        task = json.loads(line)
        if task == "run" and loop is not None:
            print(loop.run(), flush=True)
        else:
            loop = DecodeLoop(loaded, task["question"], task["rows"], task["tokens"])
            print("ready", flush=True)


if __name__ == "__main__":
    main("cloud" if sys.argv[1] == "cloud" else "device", sys.argv[2])
