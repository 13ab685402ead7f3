"""Where the processor time of a side goes while it answers.

Forwards and heads are timed by their thread's own clock, so are the calls that turn messages into
bytes and back; the rest of the loop's thread, and of the others, is what stands around them.
"""

import threading
import time
from collections import defaultdict
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from typing import Any, ParamSpec, TypeVar
from unittest.mock import patch

from dragonrt.backends.torch_.transformer import Transformer
from dragonrt.backends.transformers_.decoder import TransformersDecoder
from dragonrt.link.stream import TcpStream
from dragonrt.node import engine
from dragonrt.node.peer import Peer
from dragonrt.wire.connection import Connection

P = ParamSpec("P")
T = TypeVar("T")

PARTS = ("forward", "head", "glue", "loop", "wire")
"""Glue is the rest outside the loop's thread, wire in that thread what has to do with messages'
bytes, loop its rest."""

_TIMED: tuple[tuple[str, Any, str], ...] = (
    ("forward", Transformer, "forward"),
    ("forward", TransformersDecoder, "forward"),
    ("head", engine, "_outcome"),
    ("wire", Peer, "send"),
    ("wire", Connection, "receive_data"),
    ("wire", TcpStream, "data_received"),
)


class PartClock:
    """Processor seconds by part, since it was made; made by `measured_parts`."""

    def __init__(self) -> None:
        self._timed: defaultdict[str, float] = defaultdict(float)
        self._thread = threading.local()

    def now(self) -> dict[str, float]:
        """The seconds of each of the PARTS so far; to be asked for on the loop."""
        timed, here, everywhere = self._timed, time.thread_time(), time.process_time()
        return {
            "forward": timed["forward"],
            "head": timed["head"],
            "glue": everywhere - here - timed["forward"] - timed["head"],
            "loop": here - timed["wire"],
            "wire": timed["wire"],
        }

    def timed(self, part: str, call: Callable[P, T]) -> Callable[P, T]:
        """`call`, whose time is the part's, but for that of timed calls within it."""

        def measured(*arguments: P.args, **options: P.kwargs) -> T:
            around, self._thread.within = getattr(self._thread, "within", 0.0), 0.0
            start_s = time.thread_time()
            try:
                return call(*arguments, **options)
            finally:
                seconds = time.thread_time() - start_s
                self._timed[part] += seconds - self._thread.within
                self._thread.within = around + seconds

        return measured


@contextmanager
def measured_parts() -> Iterator[PartClock]:
    """A clock that runs until the context ends, for answers of one side in this process."""
    clock = PartClock()
    with ExitStack() as stack:
        for part, owner, name in _TIMED:
            timed = clock.timed(part, getattr(owner, name))
            stack.enter_context(patch.object(owner, name, timed))
        yield clock
