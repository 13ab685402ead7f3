"""Recorded bytes of a device's connection, and what whoever has them can read in them.

It counts by the messages themselves, and knows nothing of the ledger's rules.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from typing_extensions import override

from dragonrt.distributions import Codec, decode_block
from dragonrt.distributions.protocol import block_steps
from dragonrt.link.stream import Layer, Stream
from dragonrt.modes.dragon.drafts import Coefficients, Draft
from dragonrt.modes.messages import Block, Target
from dragonrt.modes.question import Question
from dragonrt.wire import messages as wire
from dragonrt.wire.encoding import FrameDecoder, decode
from dragonrt.wire.fields import MAX_PAYLOAD, unpack

WITHOUT_WORDS = (*wire.CONNECTION_MESSAGES, Coefficients, wire.Conclude)


class RecordingStream(Layer):
    """A stream whose bytes are appended to a tape each way."""

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
    """Yield the messages of a connection's bytes; a last one that is cut off is left out."""
    frames = FrameDecoder(2 * MAX_PAYLOAD)
    frames.feed(data)
    while (body := frames.next_body()) is not None:
        yield decode(body)


@dataclass(slots=True)
class Read:
    """What was read: bytes of text, `tokens` in their order, and how many of the rest.

    `texts` are those of opening messages, of which there were `opened`.
    """

    question: int = 0
    history: int = 0
    tokens: list[int] = field(default_factory=list)
    distributions: int = 0
    documents: int = 0
    texts: list[str] = field(default_factory=list)
    opened: int = 0

    def take(self, message: wire.Message, code: Codec | None = None) -> None:
        """Read a message; `code` decodes its distributions, None takes them as they are.

        Raises ValueError for one of an unknown type, CodecError for a wrong payload.
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
        """Return how many tokens are none of the marker's."""
        return sum(token not in marker for token in self.tokens)
