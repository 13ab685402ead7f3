"""The coordinator without any runtime: its text, its rounds, and workers that come and go."""

import itertools
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from msgspec import structs

from dragonrt.distributions import block_steps, codec, decode_block
from dragonrt.errors import SamplingError
from dragonrt.modes.blocks import ReadBlock, Uploads
from dragonrt.modes.federated.machine import Coordinator
from dragonrt.modes.federated.settings import FederatedResources, FederatedSettings
from dragonrt.modes.federated.workers import (
    LEAST_DEADLINE_S,
    FederatedJudging,
    deadline_s,
    round_weights,
)
from dragonrt.modes.messages import Block, Upload
from dragonrt.modes.mode import Effects, Finish, Joined, ModeError, Prepared, Received, TimedOut
from dragonrt.modes.prefix import LOW_BITS
from dragonrt.modes.question import Question
from dragonrt.sampling.samplers import Sampler
from dragonrt.testing.scripted import Script, ScriptedModel, SimulatedModel, SimulatedPrediction
from dragonrt.traces import events
from dragonrt.wire import messages as wire
from dragonrt.wire.fields import MAX_UPLOAD
from dragonrt.wire.reasons import Reason
from tests.modes.machines import of, work_off

V = 6
QUESTION = Question(seed=3, sampler=Sampler(1.0), max_tokens=12)
SETTINGS = FederatedSettings(codec="topk:3:residual", block_tokens=3)
WEIGHTS = {"one": 0.7, "two": 0.3}
RESOURCES = FederatedResources(vocabulary=V, members=WEIGHTS)
MODELS: Mapping[str, SimulatedModel] = {
    "device": ScriptedModel("device", Script(5, vocabulary=V)),
    "one": ScriptedModel("cloud", Script(5, vocabulary=V, worker=0)),
    "two": ScriptedModel("cloud", Script(5, vocabulary=V, worker=1)),
}


def coordinator(settings: FederatedSettings = SETTINGS, question: Question = QUESTION) -> Any:
    return Coordinator(question, settings, RESOURCES)


def joined(settings: FederatedSettings = SETTINGS, question: Question = QUESTION) -> Any:
    """Both workers have a session and the question is read, at 0 s."""
    one = coordinator(settings, question)
    one.handle(Joined("one", 1), 0.0)
    one.handle(Joined("two", 2), 0.0)
    one.handle(Prepared(), 0.0)
    for name, session in (("one", 1), ("two", 2)):
        one.handle(Received(name, wire.Opened(session, 3, 0, 0)), 0.0)
    return one


def blocks(effects: Effects) -> dict[str, Block]:
    return {name: sent for name, sent in effects.send if isinstance(sent, Block)}


def upload(name: str, one: Any, block: Block, settings: Any = SETTINGS) -> Upload:
    """What that worker says of a block."""
    judging = FederatedJudging(QUESTION, settings, RESOURCES)
    steps = range(block.step, block.step + block.count + 1)
    said = [MODELS[name].predict(step, one._prefix.hashes[step]) for step in steps]
    answer = judging.answer(judging.read(block), said)
    return Upload(block.session, block.round, answer.relevance, 500, answer.payloads)


# The text.


def test_a_block_leaves_room_for_the_token_behind_it() -> None:
    short = joined(replace(SETTINGS, block_tokens=8), replace(QUESTION, max_tokens=2))
    assert {block.count for block in blocks(work_off(short, MODELS["device"])).values()} == {1}
    shortest = coordinator(SETTINGS, replace(QUESTION, max_tokens=1))
    shortest.handle(Joined("one", 1), 0.0)
    assert blocks(shortest.handle(Prepared(), 0.0))["one"].count == 0


def test_a_drafted_stop_token_ends_block_and_answer() -> None:
    sure = np.full(V, 0.01, np.float32)
    sure[2] = 1

    class Sure:
        def predict(self, step: int, prefix_hash: int) -> SimulatedPrediction:
            return SimulatedPrediction(sure, 0.0, np.zeros(1, np.float32))

    settings = replace(SETTINGS, codec="topk:6:renorm")
    question = replace(QUESTION, stop_tokens=(2,), sampler=Sampler(0.0))
    one = joined(settings, question)
    sent = blocks(work_off(one, Sure()))
    assert {block.count for block in sent.values()} == {1}
    judging = FederatedJudging(question, settings, RESOURCES)
    for name, block in sent.items():
        uploads = judging.answer(judging.read(block), [Sure().predict(0, 0)] * 2)
        one.handle(Received(name, Upload(block.session, 1, 0.0, 0, uploads.payloads)), 0.0)
    effects = work_off(one, Sure())
    assert (list(one.decided), effects.finished) == ([2], Finish.STOP)
    (judged,) = of(effects, events.BlockJudged)
    assert (judged.tokens, judged.accepted, judged.token) == (1, 1, 2)


def test_the_payload_holds_the_block() -> None:
    one = joined()
    effects = work_off(one, MODELS["device"])
    sent = blocks(effects)
    assert {name: block.session for name, block in sent.items()} == {"one": 1, "two": 2}
    for block in sent.values():
        assert block.prefix_hash == one._prefix.hashes[0] & LOW_BITS
        drafted = decode_block(codec("ids", V), block.payload, block_steps(0, 3))
        assert drafted == (one._prefix.tokens, None)
    (told,) = of(effects, events.BlockSent)
    assert (told.round, told.step, told.tokens) == (1, 0, 3)
    assert told.seconds == pytest.approx(0.03)


# Rounds.


def test_a_round_is_told_with_its_weights() -> None:
    one = joined()
    for name, block in blocks(work_off(one, MODELS["device"], 1.0)).items():
        one.handle(Received(name, upload(name, one, block)), 1.5)
    effects = work_off(one, MODELS["device"], 1.8)
    (told,) = of(effects, events.RoundDecided)
    assert told.weights == pytest.approx(WEIGHTS)
    assert (told.round, told.step, told.missing) == (1, 0, ())
    decided = of(effects, events.TokenDecided)
    assert [event.step for event in decided] == list(range(told.decided))
    assert [event.waited for event in decided] == [pytest.approx(0.8), *[0.0] * (told.decided - 1)]
    assert len(blocks(effects)) == 2, "the next round is asked"


def test_a_worker_that_joins_later_is_asked_once_it_has_read() -> None:
    one = coordinator()
    one.handle(Joined("one", 1), 0.0)
    one.handle(Prepared(), 0.0)
    one.handle(Received("one", wire.Opened(1, 3, 0, 0)), 0.0)
    first = blocks(work_off(one, MODELS["device"]))
    one.handle(Joined("two", 2), 0.1)
    one.handle(Received("one", upload("one", one, first["one"])), 0.2)
    second = blocks(work_off(one, MODELS["device"], 0.2))
    assert second.keys() == {"one"}
    one.handle(Received("two", wire.Opened(2, 3, 0, 0)), 0.3)
    one.handle(Received("one", upload("one", one, second["one"])), 0.4)
    assert blocks(work_off(one, MODELS["device"], 0.4)).keys() == {"one", "two"}


# What workers say.


def test_uploads_are_bounded_by_their_codec_and_by_their_message() -> None:
    lattice = replace(SETTINGS, codec="qs:100")
    one = joined(lattice)
    work_off(one, MODELS["device"])
    with pytest.raises(ModeError):
        one.handle(Received("one", Upload(1, 1, 0.0, 0, (bytes(2**14),) * 4)), 0.0)
    big = 2**17
    settings = FederatedSettings(codec="dense:fp32")
    judging = FederatedJudging(QUESTION, settings, FederatedResources(vocabulary=big))
    flat = SimulatedPrediction(np.full(big, 1 / big, np.float32), 0.0, np.zeros(1, np.float32))
    fits = judging.answer(ReadBlock(0, [1] * 4, None), [flat] * 5)
    assert sum(map(len, fits.payloads)) <= MAX_UPLOAD
    with pytest.raises(ModeError):
        judging.answer(ReadBlock(0, [1] * 6, None), [flat] * 7)


def test_an_unreadable_upload_leaves_its_worker_out() -> None:
    one = joined()
    block = blocks(work_off(one, MODELS["device"]))
    bad = (b"\xff",) * (block["one"].count + 1)
    damaged = structs.replace(upload("one", one, block["one"]), payloads=bad)
    one.handle(Received("one", damaged), 0.1)
    one.handle(Received("two", upload("two", one, block["two"])), 0.1)
    effects = work_off(one, MODELS["device"])
    (leave,) = effects.leave
    assert (leave.peer, leave.end.reason, leave.again) == ("one", Reason.PROTOCOL, False)
    (decided,) = of(effects, events.RoundDecided)
    assert (decided.weights, decided.missing) == ({"two": 1.0}, ("one",))
    assert blocks(effects).keys() == {"two"}, "it is asked no more"


def test_an_upload_of_an_earlier_round_decides_nothing() -> None:
    """It came too late for its own round, and is of another text than the next one."""
    one = joined(replace(SETTINGS, quorum_deadline=0.5))
    first = blocks(work_off(one, MODELS["device"]))
    late = upload("two", one, first["two"])
    one.handle(Received("one", upload("one", one, first["one"])), 0.1)
    work_off(one, MODELS["device"], 0.1)
    one.handle(TimedOut(), 0.6)
    effects = work_off(one, MODELS["device"], 0.6)
    (told,) = of(effects, events.RoundDecided)
    assert told.missing == ("two",)
    second = blocks(effects)
    assert second.keys() == {"one"}
    one.handle(Received("two", late), 0.7)
    work_off(one, MODELS["device"], 0.7)
    one.handle(Received("one", upload("one", one, second["one"])), 0.8)
    (told,) = of(work_off(one, MODELS["device"], 0.8), events.RoundDecided)
    assert (told.round, told.missing) == (2, ("two",))
    assert told.weights == {"one": 1.0}


def test_weights_by_relevance_are_those_of_the_round() -> None:
    one = joined(replace(SETTINGS, weights="relevance"))
    relevances = {"one": 0.0, "two": float(np.log(3))}
    for name, block in blocks(work_off(one, MODELS["device"])).items():
        one.handle(
            Received(name, structs.replace(upload(name, one, block), relevance=relevances[name])),
            0.0,
        )
    (told,) = of(work_off(one, MODELS["device"]), events.RoundDecided)
    assert told.weights == pytest.approx({"one": 0.25, "two": 0.75})


def test_a_judging_uploads_the_models_own_distributions() -> None:
    """Sampling parameters apply to the mixture, at the coordinator."""
    question = replace(QUESTION, sampler=Sampler(0.0))
    p = np.array([0.5, 0.3, 0.1, 0.05, 0.03, 0.02], np.float32)
    judging = FederatedJudging(question, FederatedSettings(codec="dense:fp32"), RESOURCES)
    said = SimulatedPrediction(p, 1.5, np.zeros(1, np.float32))
    found = judging.answer(ReadBlock(0, [], None), [said])
    assert isinstance(found, Uploads)
    assert found.relevance == 1.5
    longer = judging.answer(ReadBlock(0, [1], None), [said, replace(said, relevance=9.0)])
    assert isinstance(longer, Uploads)
    assert longer.relevance == 1.5, "the one that the round began with"
    again = FederatedJudging(QUESTION, FederatedSettings(codec="dense:fp32"), RESOURCES)
    assert again.answer(ReadBlock(0, [], None), [said]).payloads == found.payloads


def test_the_weights_of_those_present() -> None:
    assert round_weights("fixed", (0.5, 0.3, 0.2), (0.0, None, 9.0)) == pytest.approx(
        (5 / 7, 0, 2 / 7)
    )
    for present in itertools.product([True, False], repeat=3):
        relevances = [h if here else None for h, here in zip((0.0, 1.0, 2.0), present, strict=True)]
        if not any(present):
            with pytest.raises(SamplingError):
                round_weights("relevance", (1, 1, 1), relevances)
            continue
        weights = round_weights("relevance", (1, 1, 1), relevances)
        expected = [np.exp(h) if h is not None else 0.0 for h in relevances]
        assert weights == pytest.approx(np.array(expected) / sum(expected), abs=1e-12)


def test_the_deadline_follows_the_slowest_median() -> None:
    quick, slow = [0.1], [0.5, 0.6, 40.0]  # one slip leaves the median where it was
    assert deadline_s([[], []]) == LEAST_DEADLINE_S
    assert deadline_s([quick, slow]) == pytest.approx(2.4)
    assert deadline_s([quick, []]) == LEAST_DEADLINE_S
