"""The baselines on a real model in virtual time: what each computes, waits for and sends."""

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, replace

import pytest

from dragonrt.backends.backend import Document
from dragonrt.backends.model import LanguageModel
from dragonrt.link.emulation import EmulatedStream, memory_streams
from dragonrt.link.models import LinkModel
from dragonrt.link.stream import Stream
from dragonrt.side import Side
from dragonrt.testing import loop
from dragonrt.wire.connection import Connection
from dragonrt.wire.fields import NONCE_BYTES
from dragonrt.wire.messages import PROTOCOL_VERSION, Hello
from retrieval import Chunk, Hit
from scripts.lab.model_sides import PacedWorker
from scripts.papers.dragon.baselines.cloud import BaselineError, Channel, serve_baselines
from scripts.papers.dragon.baselines.device import BASELINES, BaselineDevice, Timed
from scripts.papers.dragon.baselines.reading import Asked, BaselineSide, log_probability

QUESTION = "What do I do when the printer beeps?"
NOTES = {
    "device": ["When the printer beeps, press green twice.", "The door code is 4711."],
    "cloud": ["Printers print on paper.", "The ferry leaves at 9:30 from pier two."],
}
ASKED = Asked(QUESTION, documents=2, seed=1, temperature=0.0, tokens=6)
DECODE_S, LATENCY_S = 0.01, 0.1
"""10 ms a forward, 100 ms each way."""


@dataclass
class Notes:
    """A Library of a side's notes; the first is the most relevant."""

    side: Side
    model: LanguageModel

    def find(self, question: str, k: int) -> list[Hit]:
        return [
            Hit(Chunk(str(rank), text, "", "note", 0, len(text)), 0.9 - 0.2 * rank)
            for rank, text in enumerate(NOTES[self.side][:k])
        ]

    def document_kv(self, chunk: Chunk) -> Document:
        return stored(self.model, [chunk.text])[0]


def stored(model: LanguageModel, notes: list[str]) -> list[Document]:
    texts = [model.prompt.document_text("", note) for note in notes]
    return [model.document_kv(model.encode(text)) for text in texts]


def side_of(name: Side, model: LanguageModel) -> BaselineSide:
    return BaselineSide(name, model, Notes(name, model), PacedWorker(DECODE_S), PacedWorker(0.0))


def asked_each(model: LanguageModel, asked: Asked, *names: str) -> dict[str, Timed]:
    """The answer of each baseline, in turn over one connection; all of them by default."""

    async def ask() -> dict[str, Timed]:
        ours, theirs = memory_streams()
        links = [LinkModel(latency_s=LATENCY_S, direction=way) for way in ("up", "down")]
        channel = Channel(EmulatedStream(ours, *links))
        cloud = asyncio.create_task(serve_baselines(theirs, side_of("cloud", model)))
        await channel.greet(model.document_fingerprint)
        device = BaselineDevice(side_of("device", model), channel)
        answers = {name: await device.ask(name, asked) for name in names or BASELINES}
        await channel.close()
        await cloud
        return answers

    return loop.run(ask())


@pytest.fixture(scope="module")
def answers(model: LanguageModel) -> dict[str, Timed]:
    return asked_each(model, ASKED)


def test_each_baseline_waits_for_what_it_fetches_and_decodes(answers: dict[str, Timed]) -> None:
    round_trip = 2 * LATENCY_S
    reading, last = DECODE_S, DECODE_S * ASKED.tokens  # reading the question, then 5 forwards
    fetched = (round_trip + reading, round_trip + last)
    expected = dict.fromkeys(BASELINES, fetched) | {"CRCG/device": (reading, last)}
    # both draw at once; the request is half a round trip, the sequence and its score the other
    # half, and each side reads the other's sequence once
    expected |= dict.fromkeys(("DRDG/SW", "DRDG/SW, scores"), (round_trip + last + DECODE_S,) * 2)
    for name, answer in answers.items():
        times = [time - answer.asked_s for time in answer.times_s]
        assert len(answer.tokens) == ASKED.tokens
        assert (times[0], times[-1]) == pytest.approx(expected[name]), name


def test_only_fetched_documents_travel(model: LanguageModel, answers: dict[str, Timed]) -> None:
    sent = {name: answer.wire_bytes for name, answer in answers.items()}
    text = sum(len(note) for note in NOTES["cloud"])
    assert sent["CRCG/device"] == 0
    assert text < sent["DRCG/Text"] < text + 300
    assert sent["DRCG/KV"] > 100 * sent["DRCG/Text"]
    assert max(sent["CRCG/cloud"], sent["DRDG/SW, scores"]) < 300
    dense = 2 * 4 * model.vocabulary * ASKED.tokens  # of two sequences
    assert dense < sent["DRDG/SW"] < dense + 300


def test_the_answer_depends_on_whose_documents_are_read(
    model: LanguageModel, answers: dict[str, Timed]
) -> None:
    texts = {name: model.decode(answer.tokens) for name, answer in answers.items()}
    knowing = ("CRCG/device", "DRCG/Text")
    assert all(texts[name].startswith(" press green twice") for name in knowing)
    assert not texts["CRCG/cloud"].startswith(" press green")


def test_a_seed_repeats_an_answer_and_another_changes_it(model: LanguageModel) -> None:
    warm = replace(ASKED, temperature=1.5)
    names = ("CRCG/device", "DRDG/SW", "DRDG/SW, scores")
    first, again = (asked_each(model, warm, *names) for _ in range(2))
    other = asked_each(model, replace(warm, seed=2), *names)
    for name in names:
        assert first[name].tokens == again[name].tokens
        assert first[name].tokens != other[name].tokens
    assert first["DRDG/SW"].tokens == first["DRDG/SW, scores"].tokens


def test_fetched_kv_gives_the_tokens_of_local_rows(
    model: LanguageModel, answers: dict[str, Timed]
) -> None:
    fetched = answers["DRCG/KV"]
    side = side_of("device", model)

    async def together() -> list[int]:
        notes = stored(model, [*NOTES["device"], *NOTES["cloud"]])
        reading = await side.read_rows(notes, [0.9, 0.7, 0.9, 0.7], ASKED)
        return [token async for token, _ in side.decode(reading, ASKED)]

    assert fetched.tokens == loop.run(together())


def test_a_sequence_scores_what_drawing_it_did(model: LanguageModel) -> None:
    side, warm = side_of("device", model), replace(ASKED, seed=3, temperature=1.0)

    async def draw_and_score() -> tuple[float, float]:
        reader = await side.read_rows(stored(model, NOTES["device"]), [0.9, 0.7], warm)
        tokens, p = zip(*[each async for each in side.decode(reader, warm)], strict=True)
        again = log_probability(tokens, await side.distributions(reader, tokens))
        return log_probability(tokens, p), again

    drawn, scored = loop.run(draw_and_score())
    assert scored == pytest.approx(drawn, abs=1e-3)
    assert drawn < 0


async def other_model(one: Channel, other: Channel) -> None:
    await asyncio.gather(one.greet("a"), other.greet("b"))


async def out_of_turn(one: Channel, other: Channel) -> None:
    await one.send("Token", 1)
    await other.receive_until_end("Text")


async def hung_up(one: Channel, other: Channel) -> None:
    await one.close()
    await other.receive("Text")


@pytest.mark.parametrize("talk", [other_model, out_of_turn, hung_up])
def test_sides_that_do_not_fit_part(talk: Callable[[Channel, Channel], Awaitable[None]]) -> None:
    async def meet() -> None:
        await talk(*map(Channel, memory_streams()))

    with pytest.raises(BaselineError):
        loop.run(meet())


def connection(side: Side) -> Connection:
    return Connection(side, Hello(PROTOCOL_VERSION, bytes(NONCE_BYTES), side, "t", 8, "m", "s"))


def test_a_normal_device_is_hung_up_on(model: LanguageModel) -> None:
    async def dial() -> bytes:
        ours, theirs = memory_streams()
        serving = asyncio.create_task(serve_baselines(theirs, side_of("cloud", model)))
        ours.write(connection("device").data_to_send())
        received = await _all(ours)
        await serving
        return received

    assert b"Greeting" in loop.run(dial())


async def _all(stream: Stream) -> bytes:
    received = b""
    while data := await stream.receive():
        received += data
    return received
