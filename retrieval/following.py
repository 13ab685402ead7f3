"""A program that makes an index as its documents are: `python -m retrieval.following`.

Beside one that answers from the index, whose cores and interpreter it leaves alone. It reads an
Order, a line of JSON, and ends when its input does, or, unless it is to watch, when the index is
complete. It writes lines of JSON: {} if it is to watch and notices changes from then on, then what
each portion of an update did, or {"error": why there was none}.
"""

import json
import os
import signal
import sys
import traceback
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from threading import Thread
from typing import Any

from .documents import SUFFIXES, Parser
from .embedding import Embedder
from .failures import RetrievalError
from .index import Index, Report
from .ingestion import excluded, relative_name

_WAIT_S = 600.0  # for another process that updates the same index
_SETTLED_MS = 500  # files are often written in several steps


@dataclass(frozen=True, slots=True)
class Order:
    """Which documents, and the index that follows them: arguments of `Index.update`.

    With `watch` for ever, else until it is as they are now.
    """

    documents: list[str]
    directory: str
    embedder: str
    words: int
    url: str | None
    parser: Parser
    exclude: Sequence[str]
    largest: float
    watch: bool
    follow_links: bool = False


def changes(
    documents: Sequence[Path], directory: Path, exclude: Sequence[str] = ()
) -> Iterator[set[Path]]:
    """Files that `Index.update` with the same arguments would find changed, in batches.

    From the first batch on nothing is missed, so that an update then and one after each other batch
    keep the index as the documents are. One of them is empty whenever nothing changes for a while.
    A renamed file is there with both its names.

    Raises:
        RetrievalError: a path does not exist, or watchfiles is not installed.
    """
    try:
        import watchfiles
    except ImportError as error:
        raise RetrievalError(
            "watching documents needs one more library: pip install '.[watch]'"
        ) from error
    named = {path.absolute() for path in documents if not path.is_dir()}
    folders = {path.absolute() for path in documents if path.is_dir()}
    index, left_out = directory.absolute(), excluded(exclude)

    def wanted(_: watchfiles.Change, name: str) -> bool:
        path = Path(name)
        if path in named:
            return True
        if path.is_relative_to(index) or path.suffix.lower() not in SUFFIXES:
            return False
        below = [path.relative_to(folder) for folder in folders if path.is_relative_to(folder)]
        shown = any(not any(part.startswith(".") for part in found.parts) for found in below)
        return shown and not left_out(relative_name(documents, path))

    # A file that is replaced in one step is seen by its directory alone.
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
        except FileNotFoundError as error:
            raise RetrievalError(f"there is no file or directory {error}") from error
        except UnicodeEncodeError as error:
            raise RetrievalError("a directory whose name is not UTF-8 cannot be watched") from error
        except (OSError, RuntimeError) as error:
            # It breaks off at the name of a file that is not UTF-8; what changed is found again.
            if "decode" not in str(error):
                raise RetrievalError(f"the documents cannot be watched: {error}") from error
            if missed:
                yield missed
            missed = watched


def _follow(order: Order, say: Callable[[dict[str, Any]], None]) -> None:
    documents, directory = [Path(path) for path in order.documents], Path(order.directory)
    embedder = Embedder.load(order.embedder)

    def committed(report: Report) -> bool:
        say(asdict(report))
        return True

    def batches() -> Iterator[set[Path]]:
        return changes(documents, directory, order.exclude) if order.watch else iter([set()])

    for number, batch in enumerate(batches()):
        if number == 0 and order.watch:
            say({})
        elif number and not batch:
            continue
        try:
            report = Index.update(
                directory,
                documents,
                embedder,
                order.words,
                on_portion=committed,
                url=order.url,
                wait_s=_WAIT_S,
                parser=order.parser,
                exclude=order.exclude,
                largest=order.largest,
                follow_links=order.follow_links,
            )
        except RetrievalError as error:
            say({"error": str(error)})
        else:
            say(asdict(report))


def _main() -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for the other program, which ends this
    signal.signal(signal.SIGTERM, signal.default_int_handler)  # what was finished is kept
    if hasattr(os, "nice"):
        os.nice(19)
    order = Order(**json.loads(sys.stdin.readline()))
    Thread(target=_end_with_input, daemon=True).start()

    def say(said: dict[str, Any]) -> None:
        print(json.dumps(said), flush=True)

    try:
        _follow(order, say)
    except RetrievalError as error:
        say({"error": str(error)})
    except KeyboardInterrupt:
        pass
    except Exception as error:  # its message may quote a document
        *_, (frame, line) = traceback.walk_tb(error.__traceback__)
        where = f"{Path(frame.f_code.co_filename).name}:{line}"
        say({"error": f"it broke off ({type(error).__name__} at {where})"})
        sys.exit(1)


def _end_with_input() -> None:
    sys.stdin.read()
    os.kill(os.getpid(), signal.SIGTERM)


if __name__ == "__main__":
    _main()
