"""A cloud that is killed in the middle of text that is shown over HTTP, and started again.

`dragonrt serve` streams an answer. The cloud's process gets SIGKILL after a piece of it; the next
question comes when another process of the cloud listens.
"""

import json
import os
import signal
import time
import urllib.request
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

from dragonrt import bundled
from dragonrt.experiments.cloud_process import cloud_process, listening_process
from dragonrt.modes.mode import OnLoss

QUESTION = "What do you need to make lemon cake?"
OPTIONS = ("--temperature", "5", "--aggregator", "sync", "--codec", "dense:fp16")
"""A long answer, every token of which waits for the cloud."""
LIMIT_S = 120.0
"""Of one request: only stops one that hangs."""


@dataclass(frozen=True, slots=True)
class HttpKill:
    """An answer whose cloud was killed after `point` pieces of text.

    `kept` says whether the final text begins with what was shown and with what both sides would
    have said up to then, `whole` whether all of it is what both would have said, `again` whether
    the next answer was. `gap_s` is the longest time between two pieces.
    """

    point: int
    kept: bool
    whole: bool
    again: bool
    gap_s: float


@dataclass(frozen=True, slots=True)
class _Shown:
    """What a client saw of a streamed answer, and the final text that it was told."""

    pieces: tuple[str, ...]
    times: tuple[float, ...]
    final: str


def kills_over_http(
    points: Sequence[int],
    on_loss: OnLoss,
    *,
    model: str = "dragon-small",
    tokens: int = 48,
    seed: int = 4,
) -> list[HttpKill]:
    """Kill the cloud once in each of so many answers; see HttpKill. Needs the extra `serve`."""
    own = ("serve", "--model", model, "--documents", str(bundled.documents("device")))
    how = (*OPTIONS, "--seed", str(seed), "--max-tokens", str(tokens), "--on-loss", on_loss)
    with ExitStack() as stack:
        first = stack.enter_context(_cloud(0, model))
        port, pid = first()
        program = ("dragonrt", "--config", os.devnull, *own, *how)
        served = listening_process(*program, "--port", str(port), "--http-port", "0")
        url = f"http://127.0.0.1:{stack.enter_context(served).wait_ready()}"
        whole = _ask(url)
        found = []
        for point in points:
            shown, listens = _killed(
                url, pid, point, lambda: stack.enter_context(_cloud(port, model))
            )
            _, pid = listens()
            said, again = "".join(shown.pieces), _ask(url)
            before = "".join(shown.pieces[:point])
            found.append(
                HttpKill(
                    point,
                    said.strip() == shown.final and whole.final.startswith(before.strip()),
                    shown.final == whole.final,
                    again.final == whole.final,
                    max(later - earlier for earlier, later in pairwise(shown.times)),
                )
            )
    return found


Listens = Callable[[], tuple[int, int]]
"""Waits until a cloud listens: its port, and its process."""


@contextmanager
def _cloud(port: int, model: str) -> Iterator[Listens]:
    documents = str(bundled.documents("cloud"))
    options = ("--documents", documents, "--port", str(port))
    with cloud_process(*options, model=model) as process:
        yield lambda: (process.wait_ready(), process.pid)


def _killed(url: str, pid: int, point: int, start: Callable[[], Listens]) -> tuple[_Shown, Listens]:
    """An answer whose cloud is killed, and the cloud that is started in its place."""
    started: list[Listens] = []

    def on_piece(number: int) -> None:
        if number == point:
            os.kill(pid, signal.SIGKILL)
            started.append(start())

    shown = _ask(url, on_piece)
    return shown, started[0]


def _ask(url: str, on_piece: Callable[[int], None] = lambda number: None) -> _Shown:
    pieces: list[str] = []
    times: list[float] = []
    final = ""
    for event in _events(url):
        if event["type"] == "response.output_text.delta":
            pieces.append(event["delta"])
            times.append(time.monotonic())
            on_piece(len(pieces))
        elif event["type"] in ("response.completed", "response.incomplete"):
            (message,) = event["response"]["output"]
            final = "".join(part["text"] for part in message["content"])
    return _Shown(tuple(pieces), tuple(times), final)


def _events(url: str) -> Iterator[dict[str, Any]]:
    """The events of one streamed response."""
    asked = {"model": _model(url), "input": QUESTION, "stream": True, "sources_in_text": False}
    request = urllib.request.Request(
        f"{url}/v1/responses",
        json.dumps(asked).encode(),
        {"Content-Type": "application/json"},
    )
    with urllib.request.urlopen(request, timeout=LIMIT_S) as lines:
        for line in lines:
            if line.startswith(b"data: {"):
                yield json.loads(line.removeprefix(b"data: "))


def _model(url: str) -> str:
    with urllib.request.urlopen(f"{url}/version", timeout=LIMIT_S) as found:
        return str(json.load(found)["model"])
