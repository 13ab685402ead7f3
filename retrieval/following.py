"""A program that keeps an index as its documents are: `python -m retrieval.following`.

Beside one that answers from the index, whose cores and interpreter it leaves alone. It reads an
Order, a line of JSON, and ends when its input does. It writes lines of JSON: {} when it notices
changes from then on, then for each of them what the update did, or {"error": why there was none}.
"""

import json
import os
import signal
import sys
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from threading import Event, Thread
from typing import Any

from .documents import Parser
from .embedding import Embedder
from .failures import RetrievalError
from .index import Index
from .watching import changes

_WAIT_S = 600.0  # for another process that updates the same index


@dataclass(frozen=True, slots=True)
class Order:
    """Which documents, and the index that follows them: arguments of `Index.update`."""

    documents: list[str]
    directory: str
    embedder: str
    words: int
    url: str | None
    parser: Parser


def _follow(order: Order) -> Iterator[dict[str, Any]]:
    documents, directory = [Path(path) for path in order.documents], Path(order.directory)
    embedder = Embedder.load(order.embedder)
    ready = False
    for _ in changes(documents, directory, Event()):
        if not ready:
            yield {}
            ready = True
        try:
            report = Index.update(
                directory,
                documents,
                embedder,
                order.words,
                url=order.url,
                wait_s=_WAIT_S,
                parser=order.parser,
            )
        except RetrievalError as error:
            yield {"error": str(error)}
        else:
            yield asdict(report)


def _main() -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for the other program, which ends this
    signal.signal(signal.SIGTERM, signal.default_int_handler)  # what was finished is kept
    if hasattr(os, "nice"):
        os.nice(19)
    order = Order(**json.loads(sys.stdin.readline()))
    Thread(target=_end_with_input, daemon=True).start()
    try:
        for said in _follow(order):
            print(json.dumps(said), flush=True)
    except RetrievalError as error:
        print(json.dumps({"error": str(error)}), flush=True)
    except KeyboardInterrupt:
        pass


def _end_with_input() -> None:
    sys.stdin.read()
    os.kill(os.getpid(), signal.SIGTERM)


if __name__ == "__main__":
    _main()
