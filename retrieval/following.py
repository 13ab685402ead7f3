"""A program that keeps an index up to date with its documents: `python -m retrieval.following`.

It runs at the lowest priority beside the answering process. It reads an Order, a line of JSON, and
ends with its input or, without watching, when the index is complete. It writes lines of JSON: {}
once it watches, a Report per portion of an update, or {"error": reason}.
"""

import json
import os
import signal
import sys
import traceback
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from threading import Thread
from typing import Any, TypedDict

from . import RetrievalError
from .documents import SUFFIXES
from .embedding import Embedder
from .index import Index

_WAIT_S = 600.0  # for another process that updates the same index
_SETTLED_MS = 500  # files are often written in several steps


class UpdateOptions(TypedDict):
    """Keyword arguments of `Index.update`."""

    words: int
    url: str | None
    exclude: Sequence[str]
    largest: float
    follow_links: bool


@dataclass(frozen=True, slots=True)
class Order:
    """Arguments of `Index.update`, and whether to `watch` the documents from then on."""

    documents: list[str]
    directory: str
    embedder: str
    watch: bool
    options: UpdateOptions


def changes(documents: Sequence[Path], directory: Path) -> Iterator[set[Path]]:
    """Yield batches of changed files that `Index.update` with the same arguments may read.

    No change after the first batch is missed. A batch is empty after a while without changes. A
    renamed file has both names. Raises RetrievalError for a missing path or watchfiles.
    """
    try:
        import watchfiles
    except ImportError as error:
        raise RetrievalError(
            "watching documents needs one more library: pip install 'dragonrt[watch]'"
        ) from error
    named = {path.absolute() for path in documents if not path.is_dir()}
    folders = {path.absolute() for path in documents if path.is_dir()}
    index = directory.absolute()

    def wanted(_: watchfiles.Change, name: str) -> bool:
        path = Path(name)
        below = any(map(path.is_relative_to, folders)) and not path.is_relative_to(index)
        read = path.suffix.lower() in SUFFIXES or not (path.suffix or path.name.startswith("."))
        return path in named or (below and read)

    # Only its directory notices a file that is replaced in one step.
    watched = folders | {path.parent for path in named}
    missed: set[Path] = set()
    while True:
        try:
            for batch in watchfiles.watch(
                *watched,
                watch_filter=wanted,
                debounce=_SETTLED_MS,
                step=_SETTLED_MS,
                rust_timeout=_SETTLED_MS,
                yield_on_timeout=True,
            ):
                yield {Path(name) for _, name in batch} | missed
                missed = set()
            return
        except (OSError, RuntimeError, UnicodeEncodeError) as error:
            # watchfiles fails at a name that is not UTF-8; its directory is reported instead.
            if "decode" not in str(error):
                raise RetrievalError(f"the documents cannot be watched: {error}") from error
            if missed:
                yield missed
            missed = watched


def _say(**line: Any) -> bool:
    print(json.dumps(line), flush=True)
    return True


def _follow(order: Order, load: Callable[[str], Embedder]) -> None:
    documents, directory = [Path(path) for path in order.documents], Path(order.directory)
    update = partial(Index.update, directory, documents, load(order.embedder))
    batches = changes(documents, directory) if order.watch else iter([set[Path]()])
    for number, batch in enumerate(batches):
        if number == 0 and order.watch:
            _say()
        if number == 0 or batch:
            try:
                report = update(
                    on_portion=lambda report: _say(**asdict(report)),
                    wait_s=_WAIT_S,
                    **order.options,
                )
                _say(**asdict(report))
            except RetrievalError as error:
                _say(error=str(error))


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
