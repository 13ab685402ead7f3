"""What crosses from a device to a cloud in one answer (SPEC 1.10).

The cloud reads every message; somebody on the wire sees sizes and times. Models are real, and their
answers in virtual time.
"""

import asyncio
import gc
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from typing_extensions import override

from dragonrt.backends.backend import Document
from dragonrt.backends.mixture import Weighing
from dragonrt.backends.model import LanguageModel
from dragonrt.distributions import Step, codec
from dragonrt.link.profile import LinkProfile
from dragonrt.link.stream import Layer, Stream
from dragonrt.modes.dragon.drafts import Draft
from dragonrt.modes.dragon.settings import DragonSettings
from dragonrt.modes.messages import Target
from dragonrt.modes.prefix import extended, start_hash
from dragonrt.modes.question import Question
from dragonrt.privacy.disclosure import MARKER
from dragonrt.side import Side
from dragonrt.testing import loop
from dragonrt.testing.pair import SimulatedCloud, linked_device
from dragonrt.wire.encoding import FrameDecoder, decode
from dragonrt.wire.messages import Message
from scripts.lab.arena import Arena, MeasuredAnswer, emulated
from scripts.lab.model_sides import ReadingSide, reading_side
from scripts.papers.speculation import RecallingReader

FORWARD_S, LATENCY_S, TOKENS = 0.02, 0.02, 32
"""Of a forward of either side, one way of the link, and the most tokens of an answer."""
QUIET_S = 0.1
"""Before a question and after its answer, so that nothing else is seen."""


@dataclass(frozen=True, slots=True)
class Seen:
    """So many bytes that left the device (`up`) or came to it, at a time in seconds."""

    time_s: float
    up: bool
    size: int


class Eavesdropper(Layer):
    """One end of a stream; `seen` is what passed it, `sent` what left."""

    def __init__(self, stream: Stream) -> None:
        super().__init__(stream)
        self.seen: list[Seen] = []
        self.sent = bytearray()
        self._now = asyncio.get_running_loop().time

    @override
    async def receive(self) -> bytes:
        data = await self._stream.receive()
        self.seen.append(Seen(self._now(), False, len(data)))
        return data

    @override
    def write(self, data: bytes) -> None:
        self.sent += data
        self.seen.append(Seen(self._now(), True, len(data)))
        self._stream.write(data)


@dataclass(frozen=True, slots=True)
class Overheard:
    """One answer: the device's own, what the cloud was sent, what was seen of both."""

    given: MeasuredAnswer
    messages: Sequence[Message]
    seen: Sequence[Seen]

    def listed(self, vocabulary: int) -> dict[int, float]:
        """Return every token that crossed, with its probabilities summed over messages."""
        found: dict[int, float] = {}
        for _, pairs in self._pairs(vocabulary):
            for token, probability in pairs.items():
                found[token] = found.get(token, 0.0) + probability
        return found

    def text(self) -> list[int]:
        """Return the text that the cloud knows: the targets it was sent, or all it decided."""
        sent = {each.step: each.token for each in self.messages if isinstance(each, Target)}
        return [sent[step] for step in sorted(sent)] or self.given.tokens

    def clues(self, vocabulary: int) -> dict[int, Mapping[int, float]]:
        """Return what crossed of each step of that text, by token with its probability."""
        hashes = extended([start_hash(self.given.answer.question.seed)], self.text())
        return {
            message.step: pairs
            for message, pairs in self._pairs(vocabulary)
            if message.step < len(hashes) and message.prefix_hash == hashes[message.step]
        }

    def _pairs(self, vocabulary: int) -> Iterator[tuple[Draft | Target, dict[int, float]]]:
        settings = self.given.answer.settings
        assert isinstance(settings, DragonSettings), "only mode dragon discloses by levels"
        code = codec(settings.codec, vocabulary)
        for message in self.messages:
            match message:
                case Draft():
                    p = code.decode(message.payload, Step(message.step))
                    yield message, dict(zip(p.ids.tolist(), p.probabilities.tolist(), strict=True))
                case Target(token=token):
                    yield message, {token: 1.0}

    @property
    def bytes_up(self) -> int:
        """Bytes that left the device."""
        return sum(each.size for each in self.seen if each.up)

    @property
    def drafted(self) -> list[int]:
        """The tokens of all drafts and decisions that crossed, in their order."""
        return [each.token for each in self.messages if isinstance(each, Draft | Target)]


@dataclass(frozen=True, slots=True)
class Scene:
    """A device and a cloud of one model, whose documents are given as texts."""

    model: LanguageModel
    _stored: dict[str, Document] = field(default_factory=dict)

    def question(self, prompt: str) -> Question:
        """Return the question of that prompt, at temperature 0."""
        ends = self.model.with_stops(self.model.prompt.template.stops)
        return Question(prompt=prompt, max_tokens=TOKENS, stop_tokens=ends)

    def prompt(self, question: Question) -> list[int]:
        """Return the tokens that stand behind each document."""
        return self.model.encode(self.model.prompt.question_text((), question.prompt))

    def document(self, text: str) -> Document:
        """Return the KV of a text, which is computed once; of no text it is empty."""
        if text not in self._stored:
            tokens = self.model.encode(self.model.prompt.document_text("", text)) if text else ()
            self._stored[text] = self.model.document_kv(tokens)
        return self._stored[text]

    def reader(
        self, question: Question, texts: Sequence[str], scores: Sequence[float] | None = None
    ) -> RecallingReader:
        """Return a reader of answers from these texts, of these relevances, else all the same."""
        gc.collect()  # the rows of earlier answers may stand in cycles, and a model has few
        prompt, documents = self.prompt(question), [self.document(text) for text in texts or ("",)]
        rows, root = self.model.rows(documents, len(prompt) + 3 * TOKENS), start_hash(question.seed)
        relevances = np.array(scores or [0.0] * len(documents)) / question.relevance_temperature
        return RecallingReader.with_prompt_read(rows, prompt, root, Weighing(relevances))

    def side(
        self, name: Side, question: Question, texts: Sequence[str], scores: Sequence[float]
    ) -> ReadingSide:
        """Return a side that has read these texts, of these relevances."""
        return self.speaking(name, self.reader(question, texts, scores))

    def speaking(self, name: Side, reader: Any) -> ReadingSide:
        return reading_side(name, self.model, lambda _: reader, FORWARD_S)

    def heard(
        self,
        sides: Sequence[ReadingSide],
        question: Question,
        settings: DragonSettings,
        link_seed: int = 0,
        jitter_s: float = 0.0,
    ) -> Overheard:
        """Ask the device, the first of the sides; return what crossed until a cadence has ended."""
        device, cloud = sides
        link, marker = (
            LinkProfile(latency_s=LATENCY_S, jitter_s=jitter_s),
            self.model.encode(MARKER),
        )
        listeners: list[Eavesdropper] = []

        def emulate(stream: Stream) -> Stream:
            listeners.append(Eavesdropper(emulated(link, link_seed)(stream)))
            return listeners[0]

        async def ask() -> Overheard:
            serving = SimulatedCloud(cloud)
            async with linked_device(serving, device, emulate) as linked:
                await asyncio.sleep(QUIET_S)
                (listener,) = listeners
                listener.seen.clear()
                arena = Arena(device, linked.connectors)
                given = await arena.ask(question, settings, marker=tuple(marker))
                await linked.connector.wait_ticks_over()
                await asyncio.sleep(QUIET_S)
                frames = FrameDecoder()
                frames.feed(bytes(listener.sent))
                messages = [decode(body) for body in iter(frames.next_body, None)]
                found = Overheard(given, messages, tuple(listener.seen))
            await serving.wait_idle()
            return found

        return loop.run(ask())

    def likelihoods(
        self, heard: Overheard, reader: RecallingReader, weight: float = 1.0
    ) -> list[float]:
        """Return how well each document of the reader explains what crossed, in nats.

        Markers say nothing. With a `weight` below 1 each stands beside the last one.
        """
        text, marker = heard.text(), set(self.model.encode(MARKER))
        hashes = extended([start_hash(heard.given.answer.question.seed)], text)
        said = reader.read(text, hashes, 0)
        found: Any = 0.0
        for step, pairs in heard.clues(self.model.vocabulary).items():
            known = {token: p for token, p in pairs.items() if token not in marker}
            p = said[step].shares(np.array(list(known), np.int64)) / said[step].weights[:, None]
            mixed = weight * p + (1 - weight) * p[-1]
            found = found + np.log(mixed + 1e-12) @ np.array(list(known.values()))
        return [float(each) for each in np.broadcast_to(found, said[0].weights.shape)]


def words(text: str) -> set[str]:
    """Return the words of a text: letters and digits, at least three, in small letters."""
    return set(re.findall(r"[^\W_]{3,}", text.lower()))
