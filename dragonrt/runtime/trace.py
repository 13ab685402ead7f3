"""What happened when: one JSON object per event, on the loop's clock (SPEC, ARCHITECTURE).

Every event has `t` (seconds on the writer's loop clock), `side`, `session` and `event`. The
events and their own fields:

- `start`     first line of a file: version, side, model
- `open`      a generation begins: seed, rule, aggregator, codec
- `decode`    a forward ended: step, seconds, tokens, preempted
- `send`, `receive`  a session message: message, step, bytes
- `decide`    a target token: step, token, device / cloud (draft accepted or null), cause (what the
              decision waited for: own, other, target), waited seconds
- `rollback`  a decision went against the line: step, tokens dropped
- `preempt`   a forward on a dead line was asked to stop: step
- `switch`    the aggregator was handed over: step, to, difference (ΔZ seconds)
- `probe`     rtt and, if a burst was timed, bandwidth
- `alone`, `resume`, `close`  the other side was lost, joined again, or the generation ended
"""

import asyncio
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any, Protocol, TextIO

from dragonrt import __version__
from dragonrt.errors import DragonError


class Trace(Protocol):
    """Where events go."""

    def event(self, session: int, event: str, **fields: Any) -> None: ...


class NoTrace:
    """Tracing switched off."""

    def event(self, session: int, event: str, **fields: Any) -> None:
        """Forget the event."""


class TraceFile:
    """Events as JSON lines in a file, on the running loop's clock."""

    def __init__(self, file: TextIO, side: str, clock: Callable[[], float]) -> None:
        self._file = file
        self._side = side
        self._clock = clock

    @classmethod
    def open(cls, path: Path, side: str, model: str) -> "TraceFile":
        """Begin a trace; DragonError if the file cannot be written."""
        try:
            file = path.open("w", encoding="utf-8")
        except OSError as error:
            raise DragonError(f"cannot write the trace {path}: {error.strerror}") from None
        trace = cls(file, side, asyncio.get_running_loop().time)
        trace.event(0, "start", version=__version__, model=model)
        return trace

    def event(self, session: int, event: str, **fields: Any) -> None:
        record = {"t": round(self._clock(), 6), "side": self._side, "session": session}
        record["event"] = event
        record.update(fields)
        self._file.write(json.dumps(record, separators=(",", ":")) + "\n")

    def close(self) -> None:
        self._file.close()
