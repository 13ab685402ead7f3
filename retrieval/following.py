"""A program, started as a child process, that keeps an index up to date with its documents.

The parent sends an Order as a line of JSON. Then it sends a line `true` when it begins to answer a
question, and `false` when no answer is open any more. In between the program embeds for 2 % of the
time, so answers stay fast. It prints lines of JSON: a Report per portion of an update, or {"error":
reason}. It ends when its input does or, unless the Order says `watch`, once the index is complete.
"""

import json
import math
import os
import signal
import sys
import time
import traceback
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, replace
from functools import partial
from pathlib import Path
from threading import Event, Thread
from typing import Any, TypedDict

import numpy as np

from . import RetrievalError
from .embedding import Embedder, Encode, Vectors
from .index import Index
from .ingestion import FoundFiles
from .reader import Reader

_WAIT_S = 600.0  # for another process that updates the same index
_LOOK_S, _SHARE = 0.5, 0.02
"""Between looks; the most that looks, a file that often changes and embedding take of the time."""
_LATEST_S = 64.0  # after which a file is read that changes all the time
_TEXTS = 8  # embedded before it is looked whether an answer is open

Stamps = dict[str, tuple[int, ...]]


class UpdateOptions(TypedDict):
    """The part of an Order that is passed to `Index.update`, whose arguments have these names."""

    words: int
    url: str | None
    exclude: Sequence[str]
    largest: float


@dataclass(frozen=True, slots=True)
class Order:
    """The order to a child process to index documents once or, with `watch`, at each change."""

    documents: list[str]
    directory: str
    embedder: str
    watch: bool
    options: UpdateOptions


def found_files(order: Order) -> FoundFiles:
    """Return the files that an update would index. Raises RetrievalError as the update would."""
    paths = [Path(path) for path in order.documents]
    return FoundFiles(paths, Path(order.directory), order.options["exclude"])


def stamps(found: FoundFiles) -> Stamps:
    """Return each file's size, times and inode by its name: they differ once the file changes."""
    seen = Stamps()
    for name, path in found.files.items():
        with suppress(OSError):  # it is gone again
            at = os.stat(path)  # noqa: PTH116 (many files)
            seen[name] = at.st_size, at.st_mtime_ns, at.st_ctime_ns, at.st_ino
    return seen


class Changes:
    """Decides when to update a watched index, from `stamps` that are taken again and again.

    A changed file is due when it has the same stamp twice in a row, for files are often written in
    several steps. A file that changes often waits, so that reading it takes 2 % of the time. Every
    change is due 64 s after the last update or the last scan that found no change.
    """

    def __init__(self) -> None:
        self._read = self._last = Stamps({"": ()})  # as no scan finds it
        self._waits, self._latest_s = dict[str, float](), -math.inf

    def due(self, now: Stamps, at_s: float) -> bool:
        """Return whether an update is due at second `at_s`, when the files' `stamps` are `now`."""
        last, self._last = self._last, now
        if not (changed := _changed(self._read, now)):
            self._latest_s = at_s + _LATEST_S
        calm = (name for name in changed if last.get(name) == now.get(name))
        return any(at_s >= self._waits.get(name, 0.0) for name in calm) or at_s >= self._latest_s

    def record_update(self, begun_s: float, at_s: float) -> None:
        """Record that an update ran from `begun_s` to `at_s` (in seconds) after `due` was True."""
        changed, self._latest_s = _changed(self._read, self._last), at_s + _LATEST_S
        wait_s = min((at_s - begun_s) / max(len(changed), 1) / _SHARE, _LATEST_S)
        self._waits = dict.fromkeys(changed & self._read.keys(), at_s + wait_s)
        self._read = self._last


def _changed(before: Stamps, now: Stamps) -> set[str]:
    return {name for name, _ in before.items() ^ now.items()}


def _say(**line: Any) -> bool:
    print(json.dumps(line), flush=True)
    return True


def _follow(order: Order, load: Callable[[str], Embedder], idle: Event) -> None:
    embedder, options, changes = load(order.embedder), order.options, Changes()
    embedder = replace(embedder, documents=partial(between_answers, embedder.documents, idle))
    with Reader(options["words"], options["largest"]) as reader:
        while True:
            begun_s, now = time.monotonic(), Stamps()
            found: Sequence[Path] | FoundFiles = [*map(Path, order.documents)]
            with suppress(RetrievalError):  # the update says so
                now = stamps(found := found_files(order))
            looked_s = time.monotonic()
            if changes.due(now, looked_s):
                try:
                    report = Index.update(
                        Path(order.directory),
                        found,
                        embedder,
                        on_portion=lambda report: _say(**asdict(report)),
                        wait_s=_WAIT_S,
                        reader=reader,
                        **options,
                    )
                    _say(**asdict(report))
                except RetrievalError as error:
                    _say(error=str(error))
                changes.record_update(looked_s, time.monotonic())
            if not order.watch:
                return
            time.sleep(max(_LOOK_S, (looked_s - begun_s) / _SHARE))


def between_answers(documents: Encode, idle: Event, texts: Sequence[str]) -> Vectors:
    """Return embeddings of `texts` by the function `documents`, slowly while an answer is open.

    `idle` is set while no answer is open; otherwise the function rests for 98 % of the time.
    """
    rows = list[Vectors]()
    for first in range(0, len(texts), _TEXTS):
        begun_s = time.monotonic()
        rows.append(documents(texts[first : first + _TEXTS]))
        idle.wait((time.monotonic() - begun_s) / _SHARE)
    return np.concatenate(rows)


def main(load: Callable[[str], Embedder]) -> None:
    """Read an Order from standard input and update its index; `load` makes an Embedder by name."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for the parent, which ends this
    signal.signal(signal.SIGTERM, signal.default_int_handler)  # finished vectors are kept
    order, idle = Order(**json.loads(sys.stdin.readline())), Event()
    idle.set()
    Thread(target=_listen, args=(idle,), daemon=True).start()
    try:
        _follow(order, load, idle)
    except RetrievalError as error:
        _say(error=str(error))
    except KeyboardInterrupt:
        pass
    except Exception as error:  # its message may quote a document
        *_, (frame, line) = traceback.walk_tb(error.__traceback__)
        where = f"{Path(frame.f_code.co_filename).name}:{line}"
        _say(error=f"it broke off ({type(error).__name__} at {where})")
        sys.exit(1)


def _listen(idle: Event) -> None:
    """Follow whether answers are open; end this process with its input."""
    for line in sys.stdin:
        (idle.clear if json.loads(line) else idle.set)()
    os.kill(os.getpid(), signal.SIGTERM)
