"""What every mode does when its links, models and askers do not do what they should.

`observe` holds each answer to its oracle, both sides to each other, and the end to its bound; it
fails on sessions, tasks and connections that are left. So each of these tests checks that, too.
"""

import asyncio
import functools
from collections.abc import Callable
from dataclasses import replace
from itertools import product
from typing import Any

import pytest

from dragonrt.modes.federated.machine import FederationError
from dragonrt.modes.federated.settings import FederatedSettings
from dragonrt.modes.mode import Finish, Work
from dragonrt.modes.question import Question
from dragonrt.modes.settings import Settings
from dragonrt.node.connections.peer import Peer
from dragonrt.sampling.samplers import Sampler
from dragonrt.testing.faults import Cut, HalfOpen, Schedule, Stall
from dragonrt.testing.loop import run
from dragonrt.testing.scripted import Script, SimulatedContext
from dragonrt.timeouts import USUAL, Timeouts
from dragonrt.traces import events
from dragonrt.traces.events import NoticeKind
from dragonrt.wire.reasons import Reason
from scripts.campaign.exploration import Observed, Stage, observe
from scripts.campaign.scenario import FOR_EVER_S, ModelStall, Request, drawn_link
from tests.contract.scenes import STEADY, delay_postprocessing, scene, together

TOKENS = 12


def request(settings: Settings, seed: int = 7, **more: Any) -> Request:
    """Another seed, another temperature and other models."""
    question = Question(
        prompt="0",
        seed=seed,
        sampler=Sampler(temperature=0.8 * (seed % 3 > 0)),
        max_tokens=TOKENS,
        stop_tokens=(0,),
        reweight_every=1,
    )
    script = Script(seed, 16, sharpness=2.0 + seed % 3, disagreement=0.4 * (seed % 4))
    return replace(Request(question, settings, script), **more)


WITHOUT = (NoticeKind.ALONE, NoticeKind.ABSENT, NoticeKind.LATE)


def reasons(found: Observed) -> set[Reason | None]:
    """Why the other sides, all of them, are lost."""
    if isinstance(found.error, FederationError):
        return {end.reason for end in found.error.losses.values()}
    return {found.answer.notices[0].reason}


@functools.cache
def text(asked: Request) -> list[int]:
    """What comes out where nothing goes wrong."""
    question = replace(asked.question, prompt="0")
    alone = Request(question, asked.settings, asked.script)
    (found,) = run(observe(scene(alone)))
    return found.answer.tokens


async def told(stage: Stage, until_s: float) -> None:
    """The test itself makes something go wrong until then."""
    stage.fault(until_s)


def went_alone(found: Observed) -> int | None:
    steps = [step for step, alone in found.device.changes if alone] if found.device else []
    return steps[0] if steps else None


# The text.


@pytest.mark.slow
def test_texts_depend_on_the_seed(way: Settings) -> None:
    """The comparisons here could not fail if all texts were one."""
    script = Script(1, 16, disagreement=0.8, stop=0.0)
    asked = [request(way, 3 * seed + 1, script=script) for seed in range(3)]
    assert len({tuple(text(each)) for each in asked}) == 3


# Links that are slow, and links that fail.

LINKS = (
    Schedule(2),
    Schedule(3, latency_s=0.1, jitter_s=0.1, bandwidth=50e3),
    Schedule(4, latency_s=0.02, device_decode_s=0.2, cloud_decode_s=0.01),
    Schedule(5, latency_s=0.02, device_decode_s=0.01, cloud_decode_s=0.2),
    Schedule(6, latency_s=0.02, cloud_prepare_s=2.0),
    replace(STEADY, faults=(Cut("device", after_s=0.2), Cut("cloud", after_writes=9))),
    replace(STEADY, faults=(Stall(0.15, 3.0),)),
    replace(STEADY, faults=(HalfOpen(("cloud",), 0.1),)),
)


@pytest.mark.slow
def test_no_link_changes_a_token(waiting: Settings) -> None:
    for seed, link in product(range(3), LINKS):
        asked = request(waiting, seed)
        (found,) = run(observe(scene(asked, link)))
        assert found.answer.tokens == text(asked), link
        assert went_alone(found) is None, link


@pytest.mark.slow
def test_a_cut_at_every_message_and_at_every_few_bytes(waiting: Settings) -> None:
    """Beginning within the handshake, and ending behind the answer's last message."""
    asked = request(waiting)
    asked = replace(asked, question=replace(asked.question, max_tokens=7))
    cuts = [
        *(Cut("device", after_writes=n, reset=n % 2 == 0) for n in range(14)),
        *(Cut("cloud", after_writes=n, reset=n % 2 == 1) for n in range(14)),
        *(Cut(("device", "cloud")[n % 2], after_bytes=79 * n, reset=n < 3) for n in range(6)),
    ]
    for n, cut in enumerate(cuts):
        (found,) = run(observe(scene(asked, replace(STEADY, seed=n, faults=(cut,)))))
        assert found.answer.tokens == text(asked), cut
        assert went_alone(found) is None, cut


@pytest.mark.slow
def test_whoever_does_not_wait_goes_on_without_and_says_so(way: Settings) -> None:
    without = 0
    for seed in range(6, 12):
        schedule = drawn_link(seed, cuts=1 + seed % 3)
        impatient = Timeouts(rejoin_s=0.0)
        (found,) = run(observe(scene(request(way, seed), schedule, timeouts=impatient)))
        since, notices = went_alone(found), found.answer.notices
        if since is not None:
            assert NoticeKind.ALONE in [notice.kind for notice in notices], schedule
        without += any(notice.kind in WITHOUT for notice in notices)
    assert without > 1


@pytest.mark.slow
def test_a_cloud_that_does_not_come_back_ends_the_wait(waiting: Settings) -> None:
    gone = (Cut("cloud", after_bytes=0),) * 200
    ended = 0
    for n in (5, 7):
        schedule = replace(STEADY, faults=(Cut("cloud", after_writes=n), *gone))
        (found,) = run(observe(scene(request(waiting), schedule)))
        if isinstance(waiting, FederatedSettings):
            assert isinstance(found.error, FederationError)
            assert "worker 0" in found.error.losses
        elif went_alone(found) is None:
            continue  # the answer was complete before the cut
        assert found.answer.notices[0].kind is NoticeKind.WAITING
        assert USUAL.answer_s < found.ended_s < 2 * USUAL.answer_s
        ended += 1
    assert ended


def test_without_any_worker_an_answer_ends_with_one_line() -> None:
    gone = replace(STEADY, faults=(Stall(0.2, 1000.0),))
    asked = request(FederatedSettings(codec="topk:4:residual", block_tokens=1), 8)
    links = (gone, replace(gone, seed=2))
    (found,) = run(observe(replace(scene(asked), schedules=(links,))))
    assert isinstance(found.error, FederationError)
    assert [*found.error.losses] == ["worker 0", "worker 1"]
    assert "\n" not in str(found.error)
    assert found.answer.tokens
    assert found.ended_s < 2 * USUAL.answer_s


# Clouds that fail while their connection lives.


def test_a_cloud_that_reads_for_minutes_is_waited_for(waiting: Settings) -> None:
    asked = request(waiting)
    (found,) = run(observe(scene(asked, replace(STEADY, cloud_prepare_s=90.0))))
    assert found.ended_s > 2 * USUAL.answer_s
    assert found.answer.tokens == text(asked)
    assert went_alone(found) is None


@pytest.mark.slow
def test_a_cloud_that_stops_in_mid_answer_is_left_after_timeouts(way: Settings) -> None:
    """A forward on a dead line is stopped before: then nothing is lost."""
    script, left = Script(7, 16, disagreement=1.2, stop=0.0), 0
    for forward in (0, 1, 3):
        stall = ModelStall("cloud", forward, FOR_EVER_S)
        (found,) = run(observe(scene(request(way, script=script), stall=stall)))
        assert found.ended_s < 2 * USUAL.answer_s
        if isinstance(way, FederatedSettings):
            left += found.answer.notices[0].kind in WITHOUT
        elif went_alone(found) is not None:
            left += found.answer.notices[0].reason is Reason.MUTE
    assert left > 1


@pytest.mark.slow
def test_a_cloud_that_never_reads_is_left_after_timeouts(way: Settings) -> None:
    busy = replace(STEADY, cloud_prepare_s=1e6)
    asked = request(replace(way, require_all=True) if isinstance(way, FederatedSettings) else way)

    patiently = scene(asked, busy)
    (found,) = run(observe(patiently, lambda stage: told(stage, USUAL.read_s + USUAL.answer_s)))
    assert USUAL.read_s < found.ended_s < USUAL.read_s + 2 * USUAL.answer_s
    if found.error is not None:
        assert reasons(found) == {Reason.MUTE}
    else:
        assert went_alone(found) is not None


def failing(broken: int) -> Callable[[SimulatedContext, Work], Any]:
    """The cloud's model runs out of memory in the answer on the script of that seed."""
    right = SimulatedContext._value

    def value(context: SimulatedContext, work: Work) -> Any:
        model: Any = context._model
        its_own = (model.side, model.script.seed) == ("cloud", broken)
        if its_own and work.span is not None and work.span.first >= 2:
            raise MemoryError("out of memory")
        return right(context, work)

    return value


def test_a_cloud_that_fails_says_so_and_serves_the_next_question(
    way: Settings, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    first, second = request(way, 7), replace(request(way, 10), start_s=5.0)
    expected = text(second)
    monkeypatch.setattr(SimulatedContext, "_value", failing(7))

    first_answer, answer = run(observe(together(first, second), lambda stage: told(stage, 0.0)))
    assert "out of memory" in caplog.text
    assert reasons(first_answer) == {Reason.INTERNAL}
    assert answer.answer.tokens == expected
    assert not answer.answer.notices


@pytest.mark.slow
def test_a_cloud_process_that_ends_is_replaced_by_the_next(waiting: Settings) -> None:
    """At any moment, the last one of the handshake included."""
    expected = text(request(waiting))
    for killed_s in (0.02, 0.0200001, 0.021, 0.05, 0.17):
        (found,) = run(observe(scene(request(waiting), killed_s=killed_s)))
        assert found.answer.tokens == expected
        assert went_alone(found) is None


# Several at once.


def test_a_thing_that_takes_long_holds_up_its_own_session_only(
    way: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Reading and judging on the cloud, off its loop, takes ten seconds a time."""
    slow, quick = request(way, 7), request(way, 10)
    expected = text(quick)
    delay_postprocessing(monkeypatch, 7)
    scenario = together(replace(slow, end_s=9.0, stops=True), replace(quick, start_s=0.1))
    _, second = run(observe(scenario, lambda stage: told(stage, 10.0)))
    assert second.answer.tokens == expected
    assert second.ended_s < 3.0


# Ending early.


@pytest.mark.slow
@pytest.mark.parametrize("stops", [True, False])
def test_an_answer_that_is_given_up_leaves_nothing_behind(waiting: Settings, stops: bool) -> None:
    expected = text(request(waiting))
    again = request(waiting, 10, start_s=2.0)
    for moment in range(5):
        given_up = request(waiting, end_s=0.07 * moment, stops=stops)
        first, second = run(observe(together(given_up, again)))
        tokens = first.answer.tokens
        assert tokens == expected[: len(tokens)], moment
        assert tokens == expected or first.answer.finish is Finish.CANCELLED
        assert second.answer.tokens == text(again)


@pytest.mark.slow
def test_who_is_shown_a_token_can_end_the_answer_there(
    way: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In the middle of a verdict, too: nothing behind it is shown."""
    asked = [request(way, seed) for seed in range(1, 3)]
    expected = [text(each) for each in asked]
    right = Observed.take

    def take(found: Observed, record: events.Record) -> None:
        right(found, record)
        if isinstance(record.event, events.TokenDecided) and record.event.step == 2:
            found.given_up = True
            found.asking.stop(Finish.STOP)

    monkeypatch.setattr(Observed, "take", take)
    for each, whole in zip(asked, expected, strict=True):
        (found,) = run(observe(scene(replace(each, end_s=100.0))))
        assert found.answer.tokens == whole[:3]
        assert found.answer.finish is Finish.STOP or len(whole) <= 3


async def never(peer: Peer) -> None:
    await asyncio.Event().wait()


@pytest.mark.parametrize("stops", [False, True])
def test_the_wait_for_a_side_that_reads_nothing_is_bounded(
    way: Settings, stops: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Peer, "drain", never)
    monkeypatch.setattr("dragonrt.node.answers.driver.CONGESTED_BYTES", 64)
    asked = request(way, end_s=1.0 if stops else 100.0, stops=stops)

    (found,) = run(observe(scene(asked), lambda stage: told(stage, USUAL.answer_s)))
    if stops:
        assert found.ended_s < 1.1
    else:
        assert found.ended_s < 2 * USUAL.answer_s
        assert reasons(found) <= {Reason.MUTE, Reason.IDLE}
