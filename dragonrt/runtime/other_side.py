"""The session of a living connection, as a generation sees it."""

from typing import Protocol

from dragonrt.runtime.draft import Draft
from dragonrt.side import Side


class OtherSide(Protocol):
    """Where a generation's messages go."""

    def send_draft(self, draft: Draft, decided: int, decided_hash: int) -> None: ...

    def send_target(self, step: int, prefix_hash: int, token: int, aggregator: Side) -> None: ...

    def diverged(self) -> None:
        """The two sides decided different texts: start the session again from the device's."""
        ...

    async def drain(self) -> None:
        """Wait while too much is queued for sending."""
        ...

    def round_trip_s(self, size: int) -> float:
        """The estimated seconds for a draft of `size` bytes there and a target token back."""
        ...
