"""The asking side's view of one session on one connection: blocks out, their answers in."""

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from dragonrt.runtime.block_plan import BlockPlan
from dragonrt.runtime.generation import LOW_BITS
from dragonrt.runtime.modes.blocks.drafting import EncodedBlock
from dragonrt.runtime.modes.blocks.errors import BlockError
from dragonrt.runtime.outcome import Turn
from dragonrt.runtime.peer import Peer
from dragonrt.wire import messages as wire
from dragonrt.wire.errors import Reason

MAX_OUTSTANDING = 8
"""Blocks of one session that may be under way and unanswered."""

BlockAnswer = wire.Verdict | wire.Upload


@dataclass(frozen=True, slots=True)
class _Sent:
    count: int
    sent_s: float


class BlockSession:
    """Implements peer.Session.

    Blocks are answered in the order in which they were sent. `answered` hears each answer with the
    seconds since its block was sent; a DragonError that it raises closes the session. `lost` hears
    the reason when the session ends without our doing. With `schedules` the link's bandwidth is
    probed.
    """

    def __init__(
        self,
        peer: Peer,
        *,
        answered: Callable[[BlockAnswer, float], None],
        lost: Callable[[str], None],
        schedules: bool = False,
    ) -> None:
        self.number = 0
        self.opened = False  # whether the other side has read the question
        self.sources: tuple[wire.Source, ...] = ()
        self._peer = peer
        self._answered = answered
        self._lost = lost
        self._schedules = schedules
        self._round = 0
        self._sent: dict[int, _Sent] = {}
        self._given_up: set[int] = set()
        self._clock = asyncio.get_running_loop().time

    def open(
        self, plan: BlockPlan, question: str, history: Sequence[Turn], accepted: Sequence[int]
    ) -> None:
        """Open the session, to go on from the accepted tokens. Blocks may be sent at once."""

        def message(number: int) -> wire.OpenBlocks:
            self.number = number
            return plan.open_message(question, history, accepted, number)

        self._peer.open(self, message)

    def send(self, block: EncodedBlock) -> int:
        """Send a block; the number of its round."""
        self._round += 1
        self._sent[self._round] = _Sent(block.count, self._clock())
        self._peer.send(
            wire.Block(
                session=self.number,
                round=self._round,
                step=block.step,
                prefix_hash=block.prefix_hash & LOW_BITS,
                count=block.count,
                resolutions=block.resolutions,
                decided=block.decided,
                payload=block.payload,
            )
        )
        return self._round

    def give_up(self) -> None:
        """Want no answers to the blocks under way any more; those that come all the same pass."""
        self._given_up |= self._sent.keys()
        self._sent.clear()

    async def drain(self) -> None:
        """Wait while too much is queued for sending."""
        await self._peer.drain()

    def close(self, reason: Reason, text: str = "") -> None:
        """End the session on this connection."""
        self._peer.close(self.number, reason, text)

    @property
    def rtt_s(self) -> float:
        """The estimated round trip in seconds."""
        return self._peer.round_trip_s()

    @property
    def rate(self) -> float:
        """The estimated bandwidth in bit/s; infinite while nothing is known of it."""
        return self._peer.bandwidth.average or float("inf")

    # What the peer calls.

    @property
    def schedules(self) -> bool:
        return self._schedules

    def receive(self, message: wire.SessionMessage) -> None:
        match message:
            case wire.Opened():
                self.opened = True
                self.sources = message.sources
            case wire.Verdict() | wire.Upload():
                self._receive_answer(message)
            case _:
                raise BlockError(f"a {type(message).__name__} has no place in a session of blocks")

    def lost(self, reason: str) -> None:
        self._lost(reason)

    def _receive_answer(self, message: BlockAnswer) -> None:
        number = message.round
        if number in self._given_up:
            self._given_up.remove(number)
            return
        if number != next(iter(self._sent), None):
            raise BlockError(f"an answer to block {number} came, which is not the next one due")
        sent = self._sent.pop(number)
        self._given_up = {each for each in self._given_up if each > number}
        size = sent.count
        if isinstance(message, wire.Verdict) and message.accepted > size:
            raise BlockError(f"a verdict accepts {message.accepted} tokens of a block of {size}")
        if isinstance(message, wire.Upload) and len(message.payloads) != size + 1:
            raise BlockError(
                f"an upload has {len(message.payloads)} distributions for a block of {size} tokens"
            )
        self._answered(message, self._clock() - sent.sent_s)
