"""One worker during one answer: its session, what it knows of the text, what it uploaded."""

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from dragonrt.distributions import Codec, Distribution, decode_distribution
from dragonrt.runtime.connector import Connector
from dragonrt.runtime.draft import Line
from dragonrt.runtime.modes.blocks import BlockError, BlockSession, EncodedBlock
from dragonrt.runtime.modes.blocks.sizes import longest_upload
from dragonrt.runtime.modes.federated.plan import FederatedPlan
from dragonrt.runtime.modes.federated.quorum import RoundTrips
from dragonrt.runtime.outcome import Turn
from dragonrt.wire import messages as wire
from dragonrt.wire.errors import Reason
from dragonrt.wire.limits import MAX_BLOCK


@dataclass(frozen=True, slots=True)
class Member:
    """A worker as the user names it. `weight` is above 0; the weights need not sum to 1."""

    name: str
    connector: Connector
    weight: float = 1.0


@dataclass(frozen=True, slots=True)
class Received:
    """An upload of round `number`: p̃ after each prefix of the block, and h̃.

    `verify_s` is what the worker's forward over the block took.
    """

    number: int
    distributions: Sequence[Distribution]
    relevance: float
    verify_s: float


class Worker:
    """Has at most one unanswered block: while it computes, nothing more is sent to it.

    `changed` is called when its upload arrives or its session ends.
    """

    def __init__(
        self,
        member: Member,
        plan: FederatedPlan,
        code: Codec,
        question: str,
        history: Sequence[Turn],
        changed: Callable[[], None],
    ) -> None:
        self.name = member.name
        self.weight = member.weight
        self.connector = member.connector
        self.round_trips = RoundTrips()
        self.received: Received | None = None
        self.asked: int | None = None
        self.sources: tuple[wire.Source, ...] = ()
        self.rtt_s = 0.0
        self._loss = "it is not connected"
        self.refused = False
        self.gone = asyncio.Event()
        self._plan = plan
        self._code = code
        self._question = question
        self._history = history
        self._changed = changed
        self._session: BlockSession | None = None
        self._known = 0  # of the decided tokens

    @property
    def here(self) -> bool:
        """Whether it has a session."""
        return self._session is not None

    @property
    def idle(self) -> bool:
        """Whether a block can be sent to it."""
        return self._session is not None and self.asked is None

    @property
    def opened(self) -> bool:
        """Whether it has read the question."""
        return self._session is not None and self._session.opened

    @property
    def silence(self) -> str:
        """Why nothing is heard of it."""
        return "it does not answer" if self.here else self._loss

    def join(self, accepted: Sequence[int]) -> None:
        """Open a session that goes on from the decided tokens, if there is a connection now."""
        peer = self.connector.peer
        if peer is None:
            self.gone.set()
            return
        self.gone.clear()
        self._session = BlockSession(peer, answered=self._answered, lost=self._lost)
        self._session.open(self._plan, self._question, self._history, accepted)
        self._known = len(accepted)
        self._changed()

    def ask(self, number: int, line: Line, decided: int, payload: bytes) -> None:
        """Send it the block of round `number`: what follows the `decided` tokens of the line."""
        if self._session is None:
            return
        if decided - self._known > MAX_BLOCK:  # it took no part for too long
            self.leave(Reason.FINISHED, "beginning again from the decided text")
            self.join(line.tokens[:decided])
            if self._session is None:
                return
        known, self._known = self._known, decided
        self.asked = number
        self._session.send(
            EncodedBlock(
                step=decided,
                prefix_hash=line.hashes[decided],
                count=len(line) - decided,
                payload=payload,
                bits=8 * len(payload),
                decided=tuple(line.tokens[known:decided]),
            )
        )

    def leave(self, reason: Reason, text: str = "") -> None:
        """End its session."""
        session = self._forget()
        if session is not None:
            session.close(reason, text)

    def _answered(self, message: wire.Verdict | wire.Upload, seconds: float) -> None:
        """Raises CodecError for an upload that cannot be read: its session ends."""
        if not isinstance(message, wire.Upload) or self.asked is None:
            raise BlockError("a verdict came where an upload was due")
        size = sum(map(len, message.payloads))
        if size > longest_upload(self._plan.codec):
            raise BlockError(f"an upload of {size} bytes takes too long to read")
        distributions = [decode_distribution(self._code, each) for each in message.payloads]
        verify_s = message.verify_us / 1e6
        self.received = Received(self.asked, distributions, message.relevance, verify_s)
        self.asked = None
        self.round_trips.add(seconds)
        self._changed()

    def _lost(self, reason: str) -> None:
        """Its connection ended, or it closed the session: only the former may come back."""
        self._forget()
        self._loss = reason
        if self.connector.connected:
            self.refused = True
        else:
            self.gone.set()
        self._changed()

    def _forget(self) -> BlockSession | None:
        session, self._session = self._session, None
        self.asked = None
        if session is not None:
            self.sources = self.sources or session.sources
            self.rtt_s = session.rtt_s
        return session
