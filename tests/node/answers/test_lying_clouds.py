"""A cloud that follows the protocol to the letter and lies about what its model says (SPEC 1.11).

Its machine is the honest one: its messages are real and its hashes right. Only its model lies.
"""

import asyncio
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path

import numpy as np
import pytest

from dragonrt.backends.mixture import SUREST
from dragonrt.backends.model import LanguageModel
from dragonrt.errors import LinkError
from dragonrt.modes.dragon.settings import DragonResources, DragonSettings
from dragonrt.modes.question import Question
from dragonrt.node.answers.client_session import Answer, ClientSession
from dragonrt.node.connections.connector import Connector, kept
from dragonrt.node.connections.peer import Peer
from dragonrt.node.process.composition import Loaded, complete_library, local_side
from dragonrt.node.process.side_settings import SideSettings
from dragonrt.privacy.disclosure import MARKER, Disclosure
from dragonrt.privacy.guards import SURE
from dragonrt.testing.loop import run
from dragonrt.testing.pair import SimulatedCloud, SimulatedSide
from dragonrt.traces.counts import AnswerCounts
from dragonrt.traces.events import AnswerOpened, NoticeKind, Record, TokenDecided, WentAlone
from dragonrt.wire.reasons import Reason
from scripts.campaign.liar import Leading, Says, speaking
from tests.node.virtual import peer_of

V, STOP = 64, 0
HONEST, LED, SECRET = (10, 11, 12, 13), (20, 21, 22, 23), (30, 41, 52, 33)
"""What the device answers; what nobody asked for; what its documents say behind that."""
KIT = DragonResources(vocabulary=V, marker=(3, 4))
QUESTION = Question(
    prompt="who?", seed=3, max_tokens=12, stop_tokens=(STOP,), relevance_temperature=0.05
)
"""A low temperature: a lie of the cloud may outweigh the device by e to the 20."""
ANSWER = DragonSettings(disclose=Disclosure.ANSWER, codec="topk:16:residual", run_ahead=4)
REDACTED = replace(ANSWER, disclose=Disclosure.REDACTED)
BOUND = 1 / QUESTION.relevance_temperature + np.log(QUESTION.most_documents)
LEAST = -BOUND + QUESTION.doubt * np.log(1e-6)


def device_says(tokens: Sequence[int]) -> tuple[Mapping[int, float], float]:
    """The answer; or what a document says, to who begins to read it out."""
    for text in ((*HONEST, STOP), (*LED, *SECRET, STOP)):
        if tuple(tokens) == text[: len(tokens)] and len(tokens) < len(text):
            likely = {text[len(tokens)]: 0.9}
            return (likely | {LED[0]: 4e-4} if not tokens else likely), 12.0
    return {STOP: 0.9}, 12.0


def leading(
    begins: Sequence[int] = LED, sure: float = 1.0, at_first: float = BOUND, then: float = BOUND
) -> Leading:
    """A model that forces a beginning, then lets the device go on."""
    return Leading(begins, sure, at_first, then)


@dataclass(frozen=True)
class Offering:
    """A model that offers the right token among several, each as likely as the others."""

    count: int
    relevance: float = 12.0

    def __call__(self, tokens: Sequence[int]) -> tuple[Mapping[int, float], float]:
        known, _ = device_says(HONEST[: len(tokens)])
        right = next(iter(known))
        others = [token for token in range(5, V) if token != right][: self.count - 1]
        return dict.fromkeys([*others, right], 1 / self.count), self.relevance


@dataclass
class Attack:
    """An answer, the tokens that the cloud was told of it, and how often it was opened with it."""

    answer: Answer
    told: list[int] = field(default_factory=list)
    opened: int = 0

    @property
    def counts(self) -> AnswerCounts:
        return AnswerCounts.of(self.answer.records)

    @property
    def stolen(self) -> int:
        """How many tokens of the secret the cloud was told, in their order."""
        return sum(token in self.told for token in SECRET)

    @property
    def alone_from(self) -> int | None:
        return self.counts.alone_from

    def overhear(self, record: Record) -> None:
        """What the cloud's side of it says."""
        match record.event:
            case AnswerOpened():
                self.opened += 1
            case TokenDecided() as decided:
                self.told.append(decided.token)


@asynccontextmanager
async def reached(
    cloud: SimulatedCloud, device: SimulatedSide, reachable: asyncio.Event
) -> AsyncIterator[Connector]:
    """A device's connection to that cloud, dialled again while it is `reachable`."""

    async def dial() -> Peer:
        if not reachable.is_set():
            raise LinkError("nobody is there")
        return peer_of(device, cloud)

    reachable.set()
    connector = Connector(dial)
    await connector.connect()
    async with kept(connector):
        yield connector
    await cloud.kill()


def attack(
    says: Says,
    settings: DragonSettings,
    question: Question = QUESTION,
    *,
    lost_at: int | None = None,
) -> Attack:
    """Ask with that cloud; with `lost_at` it leaves after so many tokens, and soon comes back."""
    found = Attack(Answer(question=question, settings=settings))

    async def ask() -> None:
        device_s = 0.01 if lost_at is None else 2.0
        asks = speaking("device", device_says, V, device_s, lambda record: None)
        cloud = SimulatedCloud(speaking("cloud", says, V, 0.01, found.overhear))
        reachable, leaving = asyncio.Event(), list[asyncio.Task[None]]()

        def watch(record: Record) -> None:
            match record.event:
                case TokenDecided(step=step) if lost_at is not None and step + 1 == lost_at:
                    reachable.clear()
                    leaving.append(asyncio.create_task(cloud.kill()))
                case WentAlone():
                    reachable.set()

        async with reached(cloud, asks, reachable) as connector:
            asking = ClientSession(asks, {"cloud": connector}, question, settings, KIT, watch)
            found.answer = await asking.ask()
            await connector.wait_ticks_over()
            await asyncio.gather(*leaving)

    run(ask())
    return found


ALONE = [*HONEST, STOP]


def test_an_honest_cloud_is_told_the_answer_and_nothing_is_ended() -> None:
    for settings in (ANSWER, REDACTED):
        found = attack(lambda tokens: (device_says(tokens)[0], 11.0), settings)
        assert found.answer.tokens == ALONE
        assert found.told[:4] == list(HONEST)
        assert (found.answer.notices, found.alone_from) == ([], None)
        assert found.counts.revealed == pytest.approx(0, abs=0.005)


@pytest.mark.parametrize("settings", [ANSWER, REDACTED])
@pytest.mark.parametrize("relevance", [1e6, -1e6, 1.01 * BOUND, 1.01 * LEAST])
def test_no_cloud_is_more_relevant_than_its_documents_can_be(
    settings: DragonSettings, relevance: float
) -> None:
    found = attack(leading(at_first=relevance, then=relevance), settings)
    assert (found.answer.tokens, found.told, found.alone_from) == (ALONE, [], 0)
    assert found.opened == 1
    (notice,) = found.answer.notices
    assert (notice.kind, notice.reason) == (NoticeKind.ALONE, Reason.PROTOCOL)
    assert f"{relevance:g}" in notice.text


def test_a_cloud_whose_relevance_moves_learns_no_more() -> None:
    for begins in (LED, LED[:1]):
        found = attack(leading(begins, at_first=BOUND, then=LEAST), ANSWER)
        assert (found.told, found.alone_from) == (list(begins), len(begins))
        assert found.answer.tokens == [*LED, *SECRET, STOP], "the device goes on with its own text"
        assert found.stolen == 0


def test_unrelated_documents_are_not_read_if_drafts_are_kept() -> None:
    floors = {
        level: attack(device_says, replace(ANSWER, disclose=level)).answer.question.relevance_floor
        for level in Disclosure
    }
    assert floors == {Disclosure.DRAFTS: None, Disclosure.ANSWER: 0.25, Disclosure.REDACTED: 0.25}
    chosen = replace(QUESTION, relevance_floor=-1.0)
    assert attack(device_says, ANSWER, chosen).answer.question.relevance_floor == -1.0


@dataclass(frozen=True)
class Agreeing:
    """An honest model, whose documents are ranked again as the question wants it."""

    question: Question

    def __call__(self, tokens: Sequence[int]) -> tuple[Mapping[int, float], float]:
        relevance, every = 9.0 - 10.0 * self.question.doubt, self.question.reweight_every
        if every:
            relevance += len(tokens) // every
        return device_says(tokens)[0], relevance


def test_relevance_keeps_the_bounds_of_the_question() -> None:
    for question in (
        replace(QUESTION, reweight_every=1),
        replace(QUESTION, reweight_every=2),
        replace(QUESTION, doubt=4.0),
    ):
        assert attack(Agreeing(question), ANSWER, question).alone_from is None
    certain = replace(QUESTION, doubt=0.0)
    assert attack(Agreeing(replace(QUESTION, doubt=4.0)), ANSWER, certain).alone_from == 0
    rarely = replace(QUESTION, reweight_every=3)
    assert attack(Agreeing(replace(QUESTION, reweight_every=2)), ANSWER, rarely).alone_from == 2


def test_a_forced_beginning_does_not_reveal_the_continuation() -> None:
    """Within the bound of relevance, never moving it: the attack made patient."""
    for liar in (leading(), leading(sure=0.85), leading(sure=0.1)):
        found = attack(liar, ANSWER)
        assert found.answer.tokens == [*LED, *SECRET, STOP]
        assert found.stolen <= 2, "each is 5.8 bits, and 16 may be told"
        assert found.alone_from == len(LED) + found.stolen
        assert found.told == found.answer.tokens[: found.alone_from]
        (notice,) = found.answer.notices
        assert (notice.kind, notice.reason) == (NoticeKind.ALONE, Reason.STEERED)
        assert [event.withheld for _, event in found.answer.decisions] == [
            step >= found.alone_from for step in range(len(found.answer.tokens))
        ]


def test_a_cloud_that_led_and_left_does_not_receive_the_rest() -> None:
    found = attack(leading(), ANSWER, lost_at=len(LED))
    assert found.answer.tokens == [*LED, *SECRET, STOP]
    assert (found.stolen, found.opened) == (0, 1)
    assert Reason.STEERED in [notice.reason for notice in found.answer.notices]


def test_an_honest_cloud_that_left_gets_the_later_tokens() -> None:
    found = attack(lambda tokens: (device_says(tokens)[0], 11.0), ANSWER, lost_at=2)
    assert found.opened == 2
    assert found.answer.tokens == ALONE


@pytest.mark.parametrize("count", [2, 4, 8])
def test_candidates_read_no_more_than_the_budget(count: int) -> None:
    """Each candidate as likely as the others: none is withheld by what the mixture makes of it."""
    bits = np.log2(0.9 * count)
    unbounded = attack(Offering(count), replace(REDACTED, reveal=1e6))
    assert unbounded.told == ALONE
    assert unbounded.counts.revealed == pytest.approx(5 * bits, rel=0.02)
    for budget in (0.0, 4.0, 8.0):
        found = attack(Offering(count), replace(REDACTED, reveal=budget))
        assert found.answer.tokens[:4] == list(HONEST)
        assert (found.counts.revealed or 0.0) <= budget
        known = min(4, int(budget / bits))
        assert sum(token in found.told for token in HONEST) == known
        assert found.answer.notices == []


@pytest.mark.parametrize("sure", [1.0, 0.1])
def test_a_flat_distribution_of_great_weight_is_no_excuse(sure: float) -> None:
    """The mixture is nearly the cloud's, and the device's documents decide it all the same."""
    unbounded = attack(leading(sure=sure), replace(REDACTED, reveal=1e6))
    assert unbounded.told[: len(LED) + 4] == [*LED, *SECRET]
    found = attack(leading(sure=sure), REDACTED)
    assert found.answer.tokens == [*LED, *SECRET, STOP]
    assert found.stolen <= 1, "each is 5.8 bits, and 8 may be told"
    assert found.answer.notices == []


def test_the_bound_knows_how_sure_a_document_may_be() -> None:
    assert pytest.approx(1 - SUREST) == SURE


# A real model.

PLANTED = {"printer": "plum otter", "bicycle": "silver anchor", "ferry": "cedar button"}
CANARY = " The canary word of this note is"


@pytest.mark.slow
async def test_planted_words_stay_where_they_are(model: LanguageModel, tmp_path: Path) -> None:
    """Notes with a word each, of which nobody asks. Unbounded, each is told whole."""
    notes = tmp_path / "notes"
    notes.mkdir()
    for topic, word in PLANTED.items():
        text = f"Note about the {topic}. The {topic} must be paid in May. {CANARY.strip()} {word}."
        (notes / f"{topic}.txt").write_text(text)
    sides = SideSettings("device", on="cpu", documents=(notes,), index=tmp_path / "index")
    library = complete_library(sides, model)
    size, begins = model.vocabulary, tuple(model.encode(CANARY))
    heavy = 1 / QUESTION.relevance_temperature  # the bound of one document
    resources = DragonResources(vocabulary=size, marker=tuple(model.encode(MARKER)))
    hello = speaking("device", device_says, size, 0.0, lambda record: None)
    async with local_side(Loaded(sides, model, library)) as asks:
        for floor, read in ((None, 2), (-1.0, 2), (0.99, 0)):
            unrelated = replace(QUESTION, prompt="How do eels swim?", relevance_floor=floor)
            prepared = await asks.prepare(unrelated, verifies=False)
            prepared.context.close()
            assert len(prepared.passages) == read
        for liar, moves in (
            (leading(begins, at_first=heavy, then=-heavy), True),
            (leading(begins, at_first=heavy, then=heavy), False),
            (leading(begins, sure=0.05, at_first=heavy, then=heavy), False),
        ):
            for topic, word in PLANTED.items():
                question = replace(
                    QUESTION,
                    documents=1,
                    prompt=f"When must the {topic} be paid?",
                    max_tokens=20,
                    stop_tokens=model.with_stops(model.prompt.template.stops),
                )
                found = Attack(Answer(question=question, settings=ANSWER))
                cloud = SimulatedCloud(speaking("cloud", liar, size, 0.0, found.overhear))
                async with reached(cloud, hello, asyncio.Event()) as connector:
                    asking = ClientSession(asks, {"cloud": connector}, question, ANSWER, resources)
                    found.answer = await asking.ask()
                assert [each.file for each in found.answer.passages] == [f"{topic}.txt"]
                assert word not in model.decode(found.told)
                assert found.alone_from is not None
                assert moves or found.answer.notices[0].reason is Reason.STEERED
