"""A program that keeps an index up to date with its documents: `python -m retrieval.following`.

It runs at the lowest priority beside the answering process. It reads an Order, a line of JSON, and
ends with its input or, without watching, when the index is complete. It writes lines of JSON: a
Report per portion of an update, or {"error": reason}.
"""

import json
import os
import signal
import sys
import time
import traceback
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from threading import Thread
from typing import Any, TypedDict

from . import RetrievalError
from .embedding import Embedder
from .index import Index
from .ingestion import FoundFiles

_WAIT_S = 600.0  # for another process that updates the same index
_LOOK_S, _SHARE = 0.5, 0.02
"""Between looks at the documents; at most the share of the time that they may take."""


class UpdateOptions(TypedDict):
    """Keyword arguments of `Index.update`."""

    words: int
    url: str | None
    exclude: Sequence[str]
    largest: float


@dataclass(frozen=True, slots=True)
class Order:
    """Arguments of `Index.update`, and whether to `watch` the documents from then on."""

    documents: list[str]
    directory: str
    embedder: str
    watch: bool
    options: UpdateOptions


def stamps(order: Order) -> dict[str, tuple[int, ...]]:
    """Return what changes with each file that an update would read. Raises RetrievalError."""
    paths, options = [Path(path) for path in order.documents], order.options
    files = FoundFiles(paths, Path(order.directory), options["exclude"]).files
    found: dict[str, tuple[int, ...]] = {}
    for name, path in files.items():
        with suppress(OSError):  # it is gone again
            at = path.stat()
            found[name] = at.st_size, at.st_mtime_ns, at.st_ctime_ns, at.st_ino
    return found


def _say(**line: Any) -> bool:
    print(json.dumps(line), flush=True)
    return True


def _follow(order: Order, load: Callable[[str], Embedder]) -> None:
    documents, directory = [Path(path) for path in order.documents], Path(order.directory)
    update = partial(Index.update, directory, documents, load(order.embedder))
    before = now = stamps(order)
    indexed: dict[str, tuple[int, ...]] | None = None
    while True:
        # Files are often written in several steps: a change is read once no other one follows.
        if now == before and now != indexed:
            indexed = now
            try:
                report = update(
                    on_portion=lambda report: _say(**asdict(report)),
                    wait_s=_WAIT_S,
                    **order.options,
                )
                _say(**asdict(report))
            except RetrievalError as error:
                _say(error=str(error))
        if not order.watch:
            return
        begun_s, before = time.monotonic(), now
        try:
            now = stamps(order)
        except RetrievalError:  # the next update says so
            now = {}
        time.sleep(max(_LOOK_S, (time.monotonic() - begun_s) / _SHARE))


def main(load: Callable[[str], Embedder] = Embedder.load) -> None:
    """Run the program; `load` makes the embedder of the name that the order has."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for the parent, which ends this
    signal.signal(signal.SIGTERM, signal.default_int_handler)  # finished vectors are kept
    if hasattr(os, "nice"):
        os.nice(19)
    order = Order(**json.loads(sys.stdin.readline()))
    Thread(target=_end_with_input, daemon=True).start()
    try:
        _follow(order, load)
    except RetrievalError as error:
        _say(error=str(error))
    except KeyboardInterrupt:
        pass
    except Exception as error:  # its message may quote a document
        *_, (frame, line) = traceback.walk_tb(error.__traceback__)
        where = f"{Path(frame.f_code.co_filename).name}:{line}"
        _say(error=f"it broke off ({type(error).__name__} at {where})")
        sys.exit(1)


def _end_with_input() -> None:
    sys.stdin.read()
    os.kill(os.getpid(), signal.SIGTERM)


if __name__ == "__main__":
    main()
