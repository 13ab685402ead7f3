"""The baselines on a real model in virtual time: what each computes, waits for and sends."""

import asyncio
from dataclasses import dataclass, replace

import numpy as np
import pytest

from dragonrt.backends.backend import Document
from dragonrt.backends.model import LanguageModel
from dragonrt.link.emulation import EmulatedStream
from dragonrt.link.memory import memory_streams
from dragonrt.link.models import LinkModel
from dragonrt.side import Side
from dragonrt.testing import loop
from retrieval import Chunk, Hit
from scripts.papers.dragon.baselines.cloud import serve_baselines
from scripts.papers.dragon.baselines.device import BASELINES, Asked, BaselineDevice, Timed
from scripts.papers.dragon.baselines.exchange import Channel
from scripts.papers.dragon.baselines.reading import (
    BaselineSide,
    RetrievedText,
    concatenated,
    log_probability,
)
from scripts.papers.model_sides import PacedWorker

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
        text = self.model.prompt.document_text(chunk.title, chunk.text)
        return self.model.document_kv(self.model.encode(text))


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


def test_each_baseline_waits_for_what_it_fetches_and_decodes(model: LanguageModel) -> None:
    round_trip = 2 * LATENCY_S
    for name, answer in asked_each(model, ASKED).items():
        times = [time - answer.asked_s for time in answer.times_s]
        reading, last = DECODE_S, DECODE_S * ASKED.tokens  # reading the question, then 5 forwards
        first_s, last_s = {
            "CRCG/device": (reading, last),
            "CRCG/cloud": (round_trip + reading, round_trip + last),
            "DRCG/Text": (round_trip + reading, round_trip + last),
            "DRCG/KV": (round_trip + reading, round_trip + last),
            # both draw at once; the request is half a round trip, the sequence and its score the
            # other half, and each side reads the other's sequence once
            "DRDG/SW": (round_trip + last + DECODE_S,) * 2,
            "DRDG/SW, scores": (round_trip + last + DECODE_S,) * 2,
        }[name]
        assert len(answer.tokens) == ASKED.tokens
        assert times[0] == pytest.approx(first_s), name
        assert times[-1] == pytest.approx(last_s), name


def test_only_fetched_documents_travel(model: LanguageModel) -> None:
    sent = {name: answer.wire_bytes for name, answer in asked_each(model, ASKED).items()}
    text = sum(len(note) for note in NOTES["cloud"])
    assert sent["CRCG/device"] == 0
    assert text < sent["DRCG/Text"] < text + 300
    assert sent["DRCG/KV"] > 100 * sent["DRCG/Text"]
    assert max(sent["CRCG/cloud"], sent["DRDG/SW, scores"]) < 300
    dense = 2 * 4 * model.vocabulary * ASKED.tokens  # of two sequences
    assert dense < sent["DRDG/SW"] < dense + 300


def test_the_answer_depends_on_whose_documents_are_read(model: LanguageModel) -> None:
    texts = {name: model.decode(answer.tokens) for name, answer in asked_each(model, ASKED).items()}
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


def test_fetched_kv_gives_the_tokens_of_rows_that_were_never_apart(model: LanguageModel) -> None:
    fetched = asked_each(model, ASKED, "DRCG/KV")["DRCG/KV"]
    side = side_of("device", model)
    notes = [*NOTES["device"], *NOTES["cloud"]]
    stored = [
        model.document_kv(model.encode(model.prompt.document_text("", note))) for note in notes
    ]

    async def together() -> list[int]:
        reading = await side.read_rows(stored, [0.9, 0.7, 0.9, 0.7], QUESTION, ASKED.tokens)
        return [token async for token, _ in side.decode(reading, 1, 0.0, ASKED.tokens)]

    assert fetched.tokens == loop.run(together())


def test_a_sequence_scores_what_drawing_it_did(model: LanguageModel) -> None:
    side = side_of("device", model)

    async def draw_and_score() -> tuple[float, float]:
        stored = [
            model.document_kv(model.encode(model.prompt.document_text("", note)))
            for note in NOTES["device"]
        ]
        reader = await side.read_rows(stored, [0.9, 0.7], QUESTION, 6)
        drawn = [each async for each in side.decode(reader, 3, 1.0, 6)]
        tokens = [token for token, _ in drawn]
        again = log_probability(tokens, await side.distributions(reader, tokens))
        return log_probability(tokens, [p for _, p in drawn]), again

    drawn, scored = loop.run(draw_and_score())
    assert scored == pytest.approx(drawn, abs=1e-3)
    assert drawn < 0


def test_the_best_documents_stand_last_and_the_worst_are_left_out(model: LanguageModel) -> None:
    found = [
        RetrievedText("", text, score) for text, score in (("a b", 0.2), ("c d", 0.9), ("e f", 0.5))
    ]
    one = len(model.encode(model.prompt.document_text("", "c d")))
    assert model.decode(concatenated(model, found, 2 * one + 1)).split() == [
        *("Document:", "e", "f"),
        *("Document:", "c", "d"),
    ]
    assert np.size(concatenated(model, found, one - 1)) == 0
