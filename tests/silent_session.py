"""A session of a connection that does nothing with what it hears."""

import asyncio
from dataclasses import dataclass, field

from dragonrt.wire.messages import Close, SessionMessage
from dragonrt.wire.reasons import End


@dataclass
class SilentSession:
    """Implements Session: keeps how it ended; `ends` has all of them, if it was told twice."""

    ends: list[End] = field(default_factory=list)
    ended: asyncio.Event = field(default_factory=asyncio.Event)
    times_bandwidth = False

    def measured(self) -> None:
        """It does not care."""

    def receive(self, message: SessionMessage) -> None:
        """It does not listen."""

    def closed(self, close: Close) -> None:
        self.lost(End(close.reason, close.text))

    def lost(self, end: End) -> None:
        self.ends.append(end)
        self.ended.set()
