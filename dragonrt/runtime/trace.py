"""What happened when: one JSON object per event, on the loop's clock.

Every event has `t` (seconds on the writer's loop clock), `side`, `session` (0: none) and `event`;
a cloud's events of a connection also have `peer`, the device's address. A session number is used
again after a reconnection, and begins anew with each `open`. The events and their own fields:

- `start`     first line of a file: version, model, clock (equal in two files: `t` is comparable)
- `open`      an answer begins: its plan (seed, temperature, top_k, top_p, min_p, rule, codec;
              aggregator, run_ahead, follow, or mode and its settings), accepted (tokens decided
              before)
- `ready`     this side has its documents and has read the question: load and prefill seconds,
              prompt_tokens, vocabulary
- `decode`    a forward ended: step (of its first draft), tokens, seconds
- `draft`     an own draft: step, prefix (its hash, hexadecimal), seconds, relevance, payload (the
              encoded distribution, base64); `dragonrt simulate --replay` draws on them
- `send`, `receive`  a message: message, bytes on the wire, step of a draft or target
- `decide`    a target token: step, token, device / cloud (draft accepted or null), cause (what the
              decision waited for: own, other, target), waited seconds
- `block`     a drafted block was sent: round, step, tokens, bits (by the papers' formulas), seconds
              of the forwards that drafted it
- `verdict`   a block was verified: round, tokens (of the block), accepted, token, waited seconds
              (for the verdict; on the cloud, of the block for its turn), verify seconds
- `round`     a coordinator decided by several workers' uploads: round, step, decided (tokens),
              weights (of those that took part, by name), missing (names)
- `threshold` a token that stands moved the threshold of C-SQS on: step, beta, dropped (mass)
- `rollback`  a decision went against the line: step, tokens dropped
- `preempt`   a forward on a dead line was asked to stop: step
- `stopped`   a forward that was asked to stop did so: step (of its first draft), seconds
- `estimate`  what is expected of a step, with a single aggregator: step, difference (ΔZ of the
              device: seconds per token that aggregating on the cloud saves), rtt seconds, device /
              cloud acceptance
- `switch`    the aggregator was handed over: step, to, difference (ΔZ seconds)
- `diverge`   the two sides decided different texts: step
- `probe`     rtt seconds or, if a burst was timed, bandwidth in bit/s
- `alone`, `resume`  the other side was lost, or joined again: step
- `close`     the generation ended: finish (stop, length, cancelled, error)
"""

import asyncio
import json
import platform
from collections.abc import Callable
from pathlib import Path
from typing import Any, Protocol, TextIO

from dragonrt import __version__
from dragonrt.errors import DragonError

WRITTEN_AT_ONCE = ("start", "close")
"""After these the file is up to date, so that a killed process loses at most one answer."""


class Trace(Protocol):
    """Where events go."""

    def event(self, session: int, event: str, **fields: Any) -> None: ...

    def of(self, peer: str) -> "Trace":
        """The same trace, for the events of one connection."""
        ...


class NoTrace:
    """Tracing switched off."""

    def event(self, session: int, event: str, **fields: Any) -> None:
        """Forget the event."""

    def of(self, peer: str) -> "NoTrace":
        return self


class TraceFile:
    """Events as JSON lines in a file, on `clock`; `common` are fields that all of them have."""

    def __init__(self, file: TextIO, clock: Callable[[], float], **common: str) -> None:
        self._file = file
        self._clock = clock
        self._common = common

    @classmethod
    def open(cls, path: Path, side: str, model: str) -> "TraceFile":
        """Begin a trace on the running loop's clock; DragonError if the file cannot be written."""
        try:
            file = path.open("w", encoding="utf-8")
        except OSError as error:
            raise DragonError(f"cannot write the trace {path}: {error.strerror}") from None
        trace = cls(file, asyncio.get_running_loop().time, side=side)
        trace.event(0, "start", version=__version__, model=model, clock=_clock_name())
        return trace

    def event(self, session: int, event: str, **fields: Any) -> None:
        record: dict[str, Any] = {"t": round(self._clock(), 6), **self._common}
        record |= {"session": session, "event": event, **fields}
        self._file.write(json.dumps(record, separators=(",", ":")) + "\n")
        if event in WRITTEN_AT_ONCE:
            self._file.flush()

    def of(self, peer: str) -> "TraceFile":
        return TraceFile(self._file, self._clock, **self._common, peer=peer)

    def close(self) -> None:
        self._file.close()


def _clock_name() -> str:
    """Equal for two processes exactly where they read the same monotonic clock: host and boot."""
    try:
        return Path("/proc/sys/kernel/random/boot_id").read_text(encoding="ascii").strip()
    except OSError:
        return platform.node()
