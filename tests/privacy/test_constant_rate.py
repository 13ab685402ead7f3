"""Padding and cadence, as somebody on the wire sees them, in virtual time."""

import asyncio
from collections.abc import Sequence
from dataclasses import replace

import pytest

from dragonrt.link.stream import Stream
from dragonrt.modes.dragon.settings import DragonSettings
from dragonrt.modes.question import Question
from dragonrt.node.answers.client_session import Answer
from dragonrt.privacy.disclosure import Disclosure
from dragonrt.sampling.samplers import Sampler
from dragonrt.testing.loop import run
from dragonrt.testing.pair import SimulatedCloud, SimulatedSide, linked_device
from dragonrt.testing.scripted import Script, ScriptedModel
from dragonrt.traces.counts import AnswerCounts
from dragonrt.traces.statistics import statistics
from dragonrt.wire.encoding import PACED, SIZES
from scripts.papers.dragon.crossing import Eavesdropper, Seen
from tests.oracles import oracle

QUESTION = Question(prompt="what?", seed=3, sampler=Sampler(0.8), max_tokens=12, reweight_every=1)
PADDED = DragonSettings(codec="topp:0.95", disclose=Disclosure.ANSWER)
PACED_BY = replace(PADDED, traffic="constant:20ms:60")
PLAIN = replace(PADDED, traffic="plain")


def asked(
    settings: DragonSettings,
    question: Question = QUESTION,
    decode_s: float = 0.01,
    beside: Sequence[DragonSettings] = (),
) -> tuple[Answer, list[Seen]]:
    """The answer, and what was seen from the question on until all is quiet.

    With each of the settings `beside` it is asked at the same time, later on the connection.
    """
    script = Script(5, vocabulary=32, stop=0.0)
    taps: list[Eavesdropper] = []

    def tap(stream: Stream) -> Stream:
        taps.append(Eavesdropper(stream))
        return taps[0]

    async def answer() -> Answer:
        device, cloud = (
            SimulatedSide(side, lambda _: script, prepare_s=0.05, decode_s=decode_s)
            for side in ("device", "cloud")
        )
        serving = SimulatedCloud(cloud)
        async with linked_device(serving, device, tap) as linked:
            await asyncio.sleep(0.1)
            taps[0].seen.clear()
            asking = (linked.asking(question, each).ask() for each in (settings, *beside))
            given, *_ = await asyncio.gather(*asking)
            await linked.connector.wait_ticks_over()
            await asyncio.sleep(0.0)
            found.extend(taps[0].seen)
        await serving.wait_idle()
        return given

    found: list[Seen] = []
    return run(answer()), found


def text(settings: DragonSettings, question: Question = QUESTION) -> list[int]:
    script = Script(5, vocabulary=32, stop=0.0)
    models = {side: ScriptedModel(side, script) for side in ("device", "cloud")}
    return oracle(question, settings, dict(models))


def test_padding_leaves_few_sizes_and_changes_no_token() -> None:
    plain, open_frames = asked(PLAIN)
    padded, frames = asked(PADDED)
    assert plain.tokens == padded.tokens == text(PADDED)
    assert len({each.size for each in open_frames}) > 6
    assert {each.size for each in frames if each.up} <= set(SIZES)
    assert all(each.size % SIZES[0] == 0 for each in frames)
    numbers = statistics(AnswerCounts.of(padded.records))
    assert 0 < numbers["padding_sent"] < numbers["bytes_sent"]
    assert 0 < numbers["padding_received"] < numbers["bytes_received"]
    assert numbers["frame_wait_ms"] is None
    plain_numbers = statistics(AnswerCounts.of(plain.records))
    assert plain_numbers["padding_sent"] == plain_numbers["padding_received"] == 0


def up(frames: list[Seen]) -> list[tuple[float, int]]:
    return [(round(each.time_s, 6), each.size) for each in frames if each.up]


def down(frames: list[Seen]) -> list[tuple[float, int]]:
    return [(round(each.time_s, 6), each.size) for each in frames if not each.up]


def test_a_cadence_looks_the_same_whatever_is_asked_and_answered() -> None:
    given, frames = asked(PACED_BY)
    assert given.tokens == text(PACED_BY)
    assert {size for _, size in up(frames)} == {PACED}
    start_s = up(frames)[0][0]
    assert [time for time, _ in up(frames)] == pytest.approx(
        [start_s + 0.02 * tick for tick in range(60)]
    )
    assert sum(size for _, size in down(frames)) >= 59 * PACED
    other = replace(QUESTION, prompt="something longer " * 40, seed=9, max_tokens=5)
    shorter, others = asked(PACED_BY, other)
    assert shorter.tokens == text(PACED_BY, other)
    assert up(others) == up(frames)
    assert down(others)[:50] == down(frames)[:50]
    numbers = statistics(AnswerCounts.of(given.records))
    assert numbers["frame_wait_ms"] > 5
    assert numbers["padding_sent"] > 0.8 * numbers["bytes_sent"]


def test_an_answer_beside_another_shortens_no_budget() -> None:
    _, frames = asked(PACED_BY, beside=[replace(PACED_BY, traffic="constant:20ms:5")])
    assert len(up(frames)) >= 60


def test_an_answer_that_takes_longer_takes_another_budget() -> None:
    _, frames = asked(PACED_BY, decode_s=0.2)
    assert len(up(frames)) % 60 == 0
    assert len(up(frames)) > 60
