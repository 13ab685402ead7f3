"""What a device sends on a connection, recorded and counted, and a cloud that lies.

Counts come from the messages themselves and use no rule of the ledger. The cloud keeps the protocol
and lies about its model's predictions (SPEC 1.11): its mode is the honest one, its messages are
real and its hashes right. It listens on loopback, and keeps what devices send.
"""

import asyncio
from collections.abc import AsyncIterator, Callable, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from functools import partial

import numpy as np
from numpy.typing import NDArray
from typing_extensions import override

from dragonrt.backends.model import LanguageModel
from dragonrt.distributions import Codec, decode_block
from dragonrt.distributions.protocol import block_steps
from dragonrt.link.stream import Layer, Stream
from dragonrt.modes.dragon.drafts import Coefficients, Draft
from dragonrt.modes.messages import Block, Target
from dragonrt.modes.mode import Prediction, Work
from dragonrt.modes.question import Question
from dragonrt.node.answers.model_session import BackendSession, ForwardResult
from dragonrt.node.answers.server_session import admission
from dragonrt.node.connections.addresses import Address, Identity
from dragonrt.node.connections.admission import CloudLimits, serve
from dragonrt.side import Side
from dragonrt.testing.pair import SimulatedSide
from dragonrt.testing.scripted import Script, SimulatedPrediction
from dragonrt.traces.file import Sink
from dragonrt.wire import messages as wire
from dragonrt.wire.encoding import FrameDecoder, decode
from dragonrt.wire.fields import MAX_PAYLOAD, unpack

WITHOUT_WORDS = (*wire.CONNECTION_MESSAGES, Coefficients, wire.Conclude)


class RecordingStream(Layer):
    """A stream that appends all sent and received bytes to the arrays `sent` and `received`."""

    def __init__(self, stream: Stream, sent: bytearray, received: bytearray) -> None:
        super().__init__(stream)
        self._sent, self._received = sent, received

    @override
    async def receive(self) -> bytes:
        data = await self._stream.receive()
        self._received += data
        return data

    @override
    def write(self, data: bytes) -> None:
        self._sent += data
        self._stream.write(data)


def messages(data: bytes) -> Iterator[wire.Message]:
    """Yield the messages in a connection's bytes, without the last one if it is incomplete."""
    frames = FrameDecoder(2 * MAX_PAYLOAD)
    frames.feed(data)
    while (body := frames.next_body()) is not None:
        yield decode(body)


@dataclass(slots=True)
class Read:
    """What messages disclose: bytes of question and history, `tokens` in order, and other counts.

    `texts` are the prompts, instructions and turns of the `opened` Open messages.
    """

    question: int = 0
    history: int = 0
    tokens: list[int] = field(default_factory=list)
    distributions: int = 0
    documents: int = 0
    texts: list[str] = field(default_factory=list)
    opened: int = 0

    def take(self, message: wire.Message, code: Codec | None = None) -> None:
        """Count what a message discloses. With `code`, its payload is decoded and checked.

        Raises ValueError for a message of an unknown type, CodecError for a wrong payload.
        """
        match message:
            case wire.Open():
                asked = unpack(Question, message.question)
                turns = [text for turn in asked.history for text in turn]
                self.opened += 1
                self.question += len(asked.prompt.encode()) + len(asked.instructions.encode())
                self.history += sum(len(text.encode()) for text in turns)
                self.texts += [asked.prompt, asked.instructions, *turns]
                self.tokens += asked.accepted
            case Draft():
                if code is not None:
                    code.decode(message.payload)
                self.tokens.append(message.token)
                self.distributions += 1
            case Target():
                self.tokens.append(message.token)
            case Block() if code is not None:
                steps = block_steps(message.step, message.count, message.resolutions)
                tokens, distributions = decode_block(code, message.payload, steps)
                self.tokens += [*message.decided, *tokens]
                self.distributions += len(distributions or ())
            case wire.Close():
                found = message.attribution
                self.documents += len(found.sources) if found is not None else 0
            case _ if not isinstance(message, WITHOUT_WORDS):
                raise ValueError(f"nothing is known of a {type(message).__name__}")

    def others(self, marker: Sequence[int]) -> int:
        """Return how many of `tokens` are not in `marker`."""
        return sum(token not in marker for token in self.tokens)


Says = Callable[[Sequence[int]], tuple[Mapping[int, float], float]]
"""After these tokens: the probabilities of some, the others sharing the rest; and h̃."""


@dataclass(frozen=True)
class Leading:
    """A lying model that forces the tokens `begins` (each with probability `sure`), then none.

    Its relevance h̃ is `at_first` while it forces tokens, and `then` after them.
    """

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
    """A backend session that predicts what the function `says` returns, after `seconds`."""

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
        return SimulatedPrediction(p, relevance, np.zeros(1, np.float32))


def speaking(side: Side, says: Says, size: int, seconds: float, *sinks: Sink) -> SimulatedSide:
    """Return a simulated side that predicts by `says`, over `size` tokens, in `seconds` each."""
    script, context = Script(1, size), partial(Speaking, says, size, seconds)
    return SimulatedSide(
        side, lambda _: script, make_context=lambda model, delay: context(), sinks=sinks
    )


@dataclass(slots=True)
class LyingCloud:
    """A lying cloud that listens on `port`; `heard` counts all that devices sent to it.

    It cuts the next connection on which it gets `leaves_after` target tokens of one session.
    `present` is set while a device is connected.
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
    """Yield a cloud on `port` (0: any) that predicts by `says`, until the context ends."""
    cloud = LyingCloud(port)
    many = CloudLimits(device_rate=1e6)
    side = speaking("cloud", says, model.vocabulary, 0.0)
    address = Address("127.0.0.1", port, emulate=lambda stream: _Hearing(stream, cloud))
    identity = Identity("cloud", model)
    async with await serve(
        address, identity, admission(side, many), side.recorder, lambda line: None
    ) as server:
        cloud.port = server.port
        yield cloud
