"""What an answer of both sides rests on: its sources, their sentences, codes that nobody has."""

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from typing_extensions import override

from dragonrt.control.scheduler import Aggregator
from dragonrt.link.emulation import EmulatedStream
from dragonrt.link.models import LinkModel
from dragonrt.link.stream import Stream
from dragonrt.modes.dragon.settings import DragonSettings
from dragonrt.modes.federated.settings import FederatedSettings
from dragonrt.modes.mode import Prediction, Prepared
from dragonrt.modes.question import Question
from dragonrt.modes.settings import Settings
from dragonrt.modes.speculative.settings import SpeculativeSettings
from dragonrt.node.answers.citing import Passage
from dragonrt.node.answers.model_session import PrefillResult
from dragonrt.node.process.programs import Device
from dragonrt.privacy.disclosure import Disclosure
from dragonrt.sampling.samplers import Sampler
from dragonrt.service.answer import Answer, Piece
from dragonrt.service.chat import Chat, News
from dragonrt.side import Side
from dragonrt.testing.pair import SimulatedCloud, SimulatedSide, linked_device
from dragonrt.testing.scripted import Script, SimulatedContext, scripted_resources
from dragonrt.timeouts import USUAL, Timeouts

from .conftest import END, VOCABULARY, ByteModel

ANSWER = "on Friday, 15:00"
UNSURE = "·"
MARKER = b" -"
QUESTION = Question(max_tokens=40, sampler=Sampler(temperature=0.0))

DANCE = Passage("Emil", "emil.md", 0.8, "Emil dances. The class is on Friday, Tom drives.", 90)
ROPE = Passage("Rope", "rope.txt", 0.3, "Dad wants a rope on Monday. Call 555-0163.")
SCHOOL = Passage("School", "school.md", 0.7, "We are in Norholm. On Friday we begin at 15:00.")
SALT = Passage("Salt", "salt.md", 0.3, "Salt is boiled at 15 degrees.")


def says(text: str, first: int = 0, last: int | None = None) -> str:
    """A row that knows this part of a text, and has no idea of the rest."""
    end = len(text) if last is None else last
    return UNSURE * first + text[first:end] + UNSURE * (len(text) - end)


@dataclass(frozen=True, slots=True)
class Rows:
    """Implements Said and SimulatedModel: each document is sure of its bytes, else of nothing."""

    texts: tuple[str, ...]
    step: int = 0
    relevance: float = 0.0
    kept: float = 0.0

    def predict(self, step: int, prefix_hash: int) -> Prediction:
        return replace(self, step=step)

    @property
    def weights(self) -> NDArray[np.float64]:
        return np.full(len(self.texts), 1 / len(self.texts))

    @property
    def p(self) -> NDArray[np.float32]:
        mixed: NDArray[np.float32] = self.shares(np.arange(VOCABULARY)).sum(0).astype(np.float32)
        return mixed

    @property
    def hidden(self) -> NDArray[np.float32]:
        return np.zeros(1, dtype=np.float32)

    def shares(self, tokens: NDArray[np.int64]) -> NDArray[np.float64]:
        rows = np.full((len(self.texts), VOCABULARY), 1 / VOCABULARY)
        for row, text in enumerate(self.texts):
            letter = text[self.step] if self.step < len(text) else chr(END)
            if letter != UNSURE:
                rows[row] *= 0.04
                rows[row, ord(letter)] += 0.96
        given: NDArray[np.float64] = (rows * self.weights[:, None])[:, tokens]
        return given


@dataclass(slots=True)
class ReadingSide(SimulatedSide):
    """Has read some passages, each of which says a text."""

    read: Sequence[tuple[Passage, str]] = ()
    relevance: float = 0.0
    model: ByteModel = field(default_factory=ByteModel)
    library: None = None

    @override
    async def prepare(self, question: Question, **how: object) -> PrefillResult:
        passages = tuple(passage for passage, _ in self.read)
        names = list(dict.fromkeys(passage.file for passage in passages))
        grounds = Prepared(files=[names.index(passage.file) for passage in passages])
        rows = Rows(tuple(text for _, text in self.read), relevance=self.relevance)
        context = SimulatedContext(rows, lambda: 0.0)
        return PrefillResult(context, grounds, passages, 3, 0.0, 0.0, decode=self.model.decode)


def side_of(side: Side, *read: tuple[Passage, str], timeouts: Timeouts = USUAL) -> ReadingSide:
    script = Script(0, vocabulary=VOCABULARY)
    return ReadingSide(side, lambda _: script, timeouts=timeouts, read=read)


@asynccontextmanager
async def talking(
    device: ReadingSide, cloud: ReadingSide, settings: Settings, latency_s: float = 0.0
) -> AsyncIterator[Chat]:
    def far(stream: Stream) -> Stream:
        up, down = (LinkModel(latency_s=latency_s) for _ in range(2))
        return EmulatedStream(stream, up, down)

    async with linked_device(SimulatedCloud(cloud), device, far) as linked:
        found = scripted_resources(settings, VOCABULARY, timeouts=device.timeouts)
        resources = replace(found, marker=tuple(MARKER))
        stands_in: Any = device  # for the side of a real model
        yield Chat(Device(stands_in, linked.connectors, settings, resources), QUESTION)


async def answered(
    device: ReadingSide,
    cloud: ReadingSide,
    settings: Settings | None = None,
    question: str = "When is the dance class?",
    latency_s: float = 0.0,
) -> Answer:
    settings = settings or DragonSettings()
    async with talking(device, cloud, settings, latency_s) as conversation:
        return await conversation.ask(question)


def both() -> tuple[ReadingSide, ReadingSide]:
    """The day stands on the device, the time on the cloud; each has read another document, too."""
    day = (DANCE, says(ANSWER, 0, 9))
    time = (SCHOOL, says(ANSWER, 9))
    nothing = UNSURE * len(ANSWER)
    return side_of("device", (ROPE, nothing), day), side_of("cloud", time, (SALT, nothing))


def named(reply: Answer) -> list[tuple[str, str]]:
    return [(source.side, source.file) for source in reply.sources]


@pytest.mark.parametrize(
    ("disclose", "aggregator"),
    [
        (Disclosure.DRAFTS, Aggregator.BOTH),
        (Disclosure.DRAFTS, Aggregator.DEVICE),
        (Disclosure.DRAFTS, Aggregator.CLOUD),
        (Disclosure.ANSWER, Aggregator.BOTH),
        (Disclosure.REDACTED, Aggregator.BOTH),
    ],
)
async def test_moving_files_are_named_with_sentences(
    disclose: Disclosure, aggregator: Aggregator
) -> None:
    settings = DragonSettings(disclose=disclose, aggregator=aggregator)
    device, cloud = both()
    if settings.redacts:  # it reads the marker for the day
        (school, said), salt = cloud.read
        cloud.read = ((school, UNSURE * len(MARKER) + said[9:]), salt)
        device.relevance = 1.0  # the device's day stands where both sides are as sure
    reply = await answered(device, cloud, settings)
    assert reply.text == ANSWER
    assert named(reply) == [("device", "emil.md"), ("cloud", "school.md")]
    sentences = [source.sentence for source in reply.sources]
    assert sentences == ["The class is on Friday, Tom drives.", "On Friday we begin at 15:00."]
    assert reply.not_found == []
    assert reply.to_object()["sources"][1]["bits"] > 10


async def test_a_cloud_may_share_no_sources() -> None:
    device, cloud = both()
    cloud.share_sources = False
    reply = await answered(device, cloud)
    assert reply.text == ANSWER
    assert named(reply) == [("device", "emil.md")]
    assert reply.not_found == [], "15:00 may stand in what the cloud has read"


async def test_an_answer_does_not_wait_for_a_cloud_that_is_slow_to_say() -> None:
    device, cloud = both()
    device.timeouts = replace(USUAL, rejoin_s=0.0)
    reply = await answered(device, cloud, latency_s=0.05)
    assert (reply.text, named(reply)) == (ANSWER, [("device", "emil.md")])
    assert reply.not_found == []


async def test_a_refusal_rests_on_nothing() -> None:
    said = "I don't know."
    reply = await answered(side_of("device", (DANCE, said)), side_of("cloud", (SALT, said)))
    assert reply.text == said
    assert reply.sources == []


@pytest.mark.parametrize(
    ("theirs", "marked"), [("Salt is dear.", ["plum-39"]), ("The code plum-39 is old.", [])]
)
async def test_a_code_that_stands_in_no_document_is_marked(theirs: str, marked: list[str]) -> None:
    said = "It is plum-39."
    hive = Passage("Hive", "hive.md", 0.9, "The code of the gate is plum-otter-39.")
    device = side_of("device", (hive, said), (ROPE, UNSURE * len(said)))
    reply = await answered(device, side_of("cloud", (replace(SALT, text=theirs), UNSURE * 14)))
    assert [code.text for code in reply.not_found] == marked
    assert named(reply) == [("device", "hive.md")], "its sentence shows what is right"
    asked = await answered(device, side_of("cloud", (SALT, UNSURE * 14)), None, "What is plum-39?")
    assert asked.not_found == [], "who asks knows it"


@pytest.mark.parametrize("settings", [SpeculativeSettings(), FederatedSettings()])
async def test_modes_of_the_cloud_name_its_documents(settings: Settings) -> None:
    device = side_of("device", (DANCE, ANSWER))
    nothing = UNSURE * len(ANSWER)
    cloud = side_of("cloud", (SCHOOL, ANSWER), (SALT, nothing))
    reply = await answered(device, cloud, settings)
    assert reply.text == ANSWER
    assert named(reply) == [("cloud", "school.md")]


async def test_a_device_that_is_alone_names_its_only_file() -> None:
    device = side_of("device", (DANCE, ANSWER))
    async with talking(device, side_of("cloud", (SALT, "")), DragonSettings()) as conversation:
        conversation.device = replace(conversation.device, connectors={})
        reply = await conversation.ask("When?")
    assert named(reply) == [("device", "emil.md")]
    assert [code.text for code in reply.not_found] == ["15:00"]


def marked(reply: Answer) -> list[tuple[str, str, str]]:
    return [(reply.text[m.start : m.end], m.side, m.source.name) for m in reply.marked]


@pytest.mark.parametrize("aggregator", [Aggregator.BOTH, Aggregator.CLOUD])
async def test_words_carry_the_file_that_moved_them(aggregator: Aggregator) -> None:
    device, cloud = both()
    reply = await answered(device, cloud, DragonSettings(aggregator=aggregator))
    expected = [("on Friday", "device", "emil.md"), ("15:00", "cloud", "school.md")]
    assert marked(reply) == expected
    assert [mark.place for mark in reply.marked] == [DANCE.place, None]


async def test_a_word_that_both_sides_have_is_of_the_one_that_is_named() -> None:
    device = side_of("device", (ROPE, UNSURE * 16), (DANCE, says(ANSWER, 0, 9)))
    reply = await answered(device, side_of("cloud", (SCHOOL, ANSWER), (SALT, UNSURE * 16)))
    assert marked(reply) == [("Friday, 15:00", "cloud", "school.md")]


async def test_the_clouds_file_with_the_word_is_marked() -> None:
    said = "salt boiled, 15:00"
    cloud = side_of("cloud", (SCHOOL, says(said, 13)), (SALT, says(said, 0, 13)))
    reply = await answered(side_of("device", (ROPE, UNSURE * len(said))), cloud)
    assert marked(reply) == [("salt boiled", "cloud", "salt.md"), ("15:00", "cloud", "school.md")]


async def test_words_of_a_refusal_are_nobodys() -> None:
    said = "I don't know."
    news: list[News] = []
    device, cloud = side_of("device", (DANCE, said)), side_of("cloud", (SALT, UNSURE * len(said)))
    async with talking(device, cloud, DragonSettings()) as conversation:
        reply = await conversation.ask("When?", on_news=news.append)
    assert (reply.text, reply.marks) == (said, [])
    assert {each.device_share for each in news if isinstance(each, Piece)} == {0.5}


@pytest.mark.parametrize("settings", [SpeculativeSettings(), FederatedSettings()])
async def test_without_evidence_the_words_of_a_sentence_are_marked(settings: Settings) -> None:
    device, cloud = side_of("device", (DANCE, ANSWER)), side_of("cloud", (SCHOOL, ANSWER))
    reply = await answered(device, cloud, settings)
    assert marked(reply) == [("Friday, 15:00", "cloud", "school.md")]
