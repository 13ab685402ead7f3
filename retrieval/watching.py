"""Noticing that documents were created, changed, renamed or deleted."""

from collections.abc import Iterator, Sequence
from pathlib import Path
from threading import Event

from .documents import SUFFIXES
from .failures import RetrievalError

_SETTLED_MS = 500  # files are often written in several steps
_AWAKE_MS = 5000  # how often `stop` is looked at


def changes(documents: Path | Sequence[Path], directory: Path, stop: Event) -> Iterator[set[Path]]:
    """Files that `Index.update` with the same arguments would find changed, in batches.

    The first batch is empty: from then on nothing is missed, so that an update now and one after
    each batch keep the index as the documents are. Ends soon after `stop` is set. A renamed file is
    there with both its names. Runs in a thread of its own, for it waits for the system.

    Raises:
        RetrievalError: a path does not exist, or watchfiles is not installed.
    """
    try:
        import watchfiles
    except ImportError as error:
        raise RetrievalError(
            "watching documents needs one more library: pip install 'dragonrt[watch]'"
        ) from error
    paths = [documents] if isinstance(documents, Path) else list(documents)
    named = {path.absolute() for path in paths if not path.is_dir()}
    folders = {path.absolute() for path in paths if path.is_dir()}
    index = directory.absolute()

    def wanted(_: watchfiles.Change, name: str) -> bool:
        path = Path(name)
        if path in named:
            return True
        if path.is_relative_to(index) or path.suffix.lower() not in SUFFIXES:
            return False
        above = [folder for folder in folders if path.is_relative_to(folder)]
        return any(
            not any(part.startswith(".") for part in path.relative_to(folder).parts)
            for folder in above
        )

    # A file that is replaced in one step is seen by its directory alone.
    watched = folders | {path.parent for path in named}
    try:
        first = True
        for batch in watchfiles.watch(
            *watched,
            watch_filter=wanted,
            debounce=_SETTLED_MS,
            step=_SETTLED_MS,
            stop_event=stop,
            rust_timeout=_AWAKE_MS,
            yield_on_timeout=True,
        ):
            if first:
                yield set()
            if batch:
                yield {Path(name) for _, name in batch}
            first = False
    except FileNotFoundError as error:
        raise RetrievalError(f"there is no file or directory {error}") from error
