"""A cloud that keeps the protocol, and lies about what its model says (SPEC 1.11).

Its machine is the honest one: its messages are real and its hashes right. Only its model lies. It
listens on loopback, and keeps what devices tell it.
"""

import asyncio
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from functools import partial

import numpy as np
from numpy.typing import NDArray
from typing_extensions import override

from dragonrt.backends.model import LanguageModel
from dragonrt.link.stream import Stream
from dragonrt.modes.messages import Target
from dragonrt.modes.mode import Prediction, Work
from dragonrt.node.answers.model_session import BackendSession, ForwardResult
from dragonrt.node.answers.server_session import admission
from dragonrt.node.connections.addresses import Address, Identity
from dragonrt.node.connections.admission import CloudLimits, serve
from dragonrt.side import Side
from dragonrt.testing.pair import SimulatedSide
from dragonrt.testing.scripted import Script, SimulatedSaid
from dragonrt.traces.file import Sink
from dragonrt.wire import messages as wire
from dragonrt.wire.encoding import FrameDecoder, decode
from dragonrt.wire.fields import MAX_PAYLOAD
from scripts.campaign.recorded import Read, RecordingStream

Says = Callable[[Sequence[int]], tuple[Mapping[int, float], float]]
"""After these tokens: the probabilities of some, the others sharing the rest; and h̃."""


@dataclass(frozen=True)
class Leading:
    """A model that forces a beginning with these probabilities, then lets the device go on."""

    begins: Sequence[int]
    sure: float
    at_first: float
    then: float

    def __call__(self, tokens: Sequence[int]) -> tuple[Mapping[int, float], float]:
        """Return the likely tokens after these, with their probabilities, and h̃."""
        if len(tokens) < len(self.begins):
            return {self.begins[len(tokens)]: self.sure}, self.at_first
        return {}, self.then


@dataclass
class Speaking(BackendSession):
    """A model that says what `says` does, at once."""

    says: Says
    vocabulary: int
    seconds: float
    _closed: bool = False

    @override
    def start(self, work: Work, done: Callable[[ForwardResult], None]) -> None:
        said: list[Prediction] = []
        if work.span is not None:
            text = [*work.span.tokens, *work.guess]
            said += [self._said(text[:n]) for n in range(work.span.first, len(text) + 1)]

        def finish() -> None:
            if not self._closed:
                done(ForwardResult(work, self.seconds, work.postprocess(said)))

        asyncio.get_running_loop().call_later(self.seconds, finish)

    @override
    def preempt(self) -> None: ...

    @override
    def close(self) -> None:
        self._closed = True

    def _said(self, tokens: Sequence[int]) -> Prediction:
        likely, relevance = self.says(tokens)
        rest = max(0.0, 1 - sum(likely.values())) / (self.vocabulary - len(likely))
        p: NDArray[np.float32] = np.full(self.vocabulary, rest, np.float32)
        p[list(likely)] = list(likely.values())
        return SimulatedSaid(p, relevance, np.zeros(1, np.float32))


def speaking(side: Side, says: Says, size: int, seconds: float, *sinks: Sink) -> SimulatedSide:
    """Return a side whose model of that vocabulary says that, and takes so long."""
    script, context = Script(1, size), partial(Speaking, says, size, seconds)
    return SimulatedSide(
        side, lambda _: script, make_context=lambda model, delay: context(), sinks=sinks
    )


@dataclass(slots=True)
class LyingCloud:
    """A lying cloud that listens on `port`; `heard` is all that it was told.

    It ends the next connection that tells it `leaves_after` tokens of one session. `present` is set
    while a device is connected.
    """

    port: int
    heard: Read = field(default_factory=Read)
    leaves_after: int | None = None
    present: asyncio.Event = field(default_factory=asyncio.Event)


class _Hearing(RecordingStream):
    """A connection of a lying cloud."""

    def __init__(self, stream: Stream, cloud: LyingCloud) -> None:
        super().__init__(stream, bytearray(), bytearray())
        self._cloud, self._told = cloud, 0
        self._frames = FrameDecoder(2 * MAX_PAYLOAD)

    @override
    async def receive(self) -> bytes:
        data = await super().receive()
        self._frames.feed(data)
        while (body := self._frames.next_body()) is not None:
            message = decode(body)
            self._cloud.heard.take(message)
            self._told = 0 if isinstance(message, wire.Open) else self._told
            self._told += isinstance(message, Target)
            if isinstance(message, wire.Ping):  # the first one follows the handshake
                self._cloud.present.set()
            if self._told == self._cloud.leaves_after:
                self._cloud.leaves_after = None
                self._cloud.present.clear()
                self.abort()
        return data


@asynccontextmanager
async def lying_cloud(model: LanguageModel, says: Says, port: int = 0) -> AsyncIterator[LyingCloud]:
    """Listen as a cloud that has that model, until the context ends."""
    cloud = LyingCloud(port)
    many = CloudLimits(device_rate=1e6)
    side = speaking("cloud", says, model.vocabulary, 0.0)
    address = Address("127.0.0.1", port, emulate=lambda stream: _Hearing(stream, cloud))
    identity = Identity("cloud", model, lambda: "a lie")
    async with await serve(
        address, identity, admission(side, many), side.recorder, lambda line: None
    ) as server:
        cloud.port = server.port
        yield cloud
