"""The driver by itself: what goes into a mode, in which order, and how effects are carried out."""

import asyncio
from collections.abc import Awaitable, Callable, Coroutine
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any

import pytest
from typing_extensions import override

from dragonrt.errors import DragonError
from dragonrt.modes.messages import Target
from dragonrt.modes.mode import (
    Computed,
    Effects,
    Finish,
    Input,
    Joined,
    Leave,
    Left,
    Measured,
    Mode,
    ModeError,
    Preempted,
    Prepared,
    Received,
    Stopped,
    TimedOut,
    Work,
)
from dragonrt.modes.question import Question
from dragonrt.node.answers.driver import AnswerSession, Driver
from dragonrt.node.answers.model_session import ForwardResult, PrefillResult
from dragonrt.privacy.evidence import AnswerEvidence
from dragonrt.testing.loop import run
from dragonrt.testing.pair import SimulatedSide
from dragonrt.testing.scripted import Script
from dragonrt.timeouts import USUAL
from dragonrt.traces.events import Event, Noticed, NoticeKind, Record, TokenDecided
from dragonrt.wire import messages as wire
from dragonrt.wire.reasons import End, Reason

TARGET = Target(8, 0, 0, 3, "cloud")
USELESS = End(Reason.ERROR, "useless")
FIRST, SECOND, NESTED = (Noticed(NoticeKind.BACK, each) for each in ("first", "second", "nested"))


def decided(step: int) -> TokenDecided:
    return TokenDecided(step, 5, True, None, "own", 0.0, 1.0)


@dataclass(frozen=True)
class Scripted(TimedOut):
    """An input that leads to these effects."""

    effects: Effects


@dataclass
class ScriptedMode(Mode):
    """Implements Mode: answers each input as it is told, and keeps what came in."""

    effects: dict[type[Input], Callable[[], Effects]] = field(default_factory=dict)
    work: list[Work] = field(default_factory=list)
    due: float | None = None
    heard: list[Input] = field(default_factory=list)
    timed_out: list[float] = field(default_factory=list)
    decided: tuple[int, ...] = ()
    evidence: AnswerEvidence = field(default_factory=AnswerEvidence)
    times_bandwidth = True
    verifies = False

    @override
    def disclosed(self, question: Question) -> Question:
        return question.resumed(self.decided)

    @override
    def handle(self, happened: Input, now: float) -> Effects:
        if isinstance(happened, Scripted):
            return happened.effects
        self.heard.append(happened)
        if isinstance(happened, TimedOut):
            self.due = None
            self.timed_out.append(now)
        if isinstance(happened, Stopped):
            return Effects(finished=happened.reason)
        return self.effects.get(type(happened), Effects)()

    @override
    def wanted(self) -> Work | None:
        return self.work.pop(0) if self.work else None

    @override
    def deadline(self) -> float | None:
        return self.due

    def kinds(self) -> list[type[Input]]:
        return [type(each) for each in self.heard if not isinstance(each, Measured)]


@dataclass
class StubContext:
    """Implements BackendSession: keeps what was started for the test to end."""

    started: list[tuple[Work, Callable[[ForwardResult], None]]] = field(default_factory=list)
    preempted: int = 0
    closed: bool = False

    def start(self, work: Work, done: Callable[[ForwardResult], None]) -> None:
        self.started.append((work, done))

    def preempt(self) -> None:
        self.preempted += 1

    def close(self) -> None:
        self.closed = True

    def end(self, **outcome: Any) -> None:
        """The oldest work comes to this."""
        work, done = self.started.pop(0)
        done(ForwardResult(work, outcome.pop("seconds", 0.25), **outcome))


@dataclass
class StubPeer:
    """What a session needs of a Peer; a message takes `size` bytes, `taken` says all were read."""

    size: int = 100
    round_trip_s: float = 0.1
    sent: list[wire.SessionMessage] = field(default_factory=list)
    closed: list[tuple[int, End]] = field(default_factory=list)
    taken: asyncio.Event = field(default_factory=asyncio.Event)
    bandwidth: Any = field(default_factory=lambda: SimpleNamespace(average=5e6))

    def send(self, message: wire.SessionMessage) -> int:
        self.sent.append(message)
        return self.size

    def close(self, number: int, end: End) -> None:
        self.closed.append((number, end))

    async def drain(self) -> None:
        await self.taken.wait()


@dataclass
class Bench:
    """A driver in its loop, begun, with one session that is open as number 8."""

    mode: ScriptedMode
    driver: Driver
    context: StubContext
    peer: StubPeer
    session: AnswerSession
    records: list[Record]

    @property
    def events(self) -> list[Event]:
        return [record.event for record in self.records]

    def feed(self, **effects: Any) -> None:
        self.driver.feed(Scripted(Effects(**effects)))


def driven(
    talk: Callable[[Bench], Awaitable[None]],
    mode: ScriptedMode | None = None,
    *,
    connector: Any = None,
    on_record: Callable[[Bench, Record], None] = lambda bench, record: None,
) -> None:
    """`talk` to a driver in virtual time, which leaves nothing behind."""

    async def talking() -> None:
        bench: Bench

        def take(record: Record) -> None:
            bench.records.append(record)
            on_record(bench, record)

        chosen = mode or ScriptedMode()
        side = SimulatedSide("device", lambda _: Script(1))
        driver = Driver(chosen, side.recorder.also(take), side.timeouts)
        session = driver.add("cloud", connector)
        bench = Bench(chosen, driver, StubContext(), StubPeer(), session, [])
        session.attach(bench.peer, 8)  # type: ignore[arg-type]
        driver.begin(PrefillResult(bench.context, Prepared(), (), 3, 0.0, 0.0))
        bench.records.clear()
        await talk(bench)
        await driver.settle()
        assert bench.context.closed

    run(talking())


def on_driver(talk: Callable[[Bench], Awaitable[None]]) -> Callable[[], None]:
    """Make a test of what `talk` does with a driver of its own."""
    return lambda: driven(talk)


class Connected:
    """A connector whose connection is there, or not."""

    def __init__(self, connected: bool) -> None:
        self.connected = connected


# Inputs in their order.


def test_what_comes_in_meanwhile_waits_for_its_turn() -> None:
    def on_record(bench: Bench, record: Record) -> None:
        if isinstance(record.event, Noticed) and record.event == FIRST:
            bench.feed(events=[NESTED])

    async def talk(bench: Bench) -> None:
        bench.feed(events=[FIRST, SECOND], send=[("cloud", TARGET)])
        texts = [event.text for event in bench.events if isinstance(event, Noticed)]
        assert texts == ["first", "second", "nested"]
        assert bench.peer.sent == [TARGET]

    driven(talk, on_record=on_record)


@on_driver
async def test_after_the_end_nothing_is_fed_or_kept(bench: Bench) -> None:
    bench.mode.work = [Work(len)]
    bench.feed(finished=Finish.LENGTH)
    assert bench.context.started == []
    for _ in range(1000):
        bench.session.receive(TARGET)
        bench.feed(events=[decided(9)])
    assert bench.events == []
    await bench.driver.wait_over()


class Hasty(ScriptedMode):
    """Decides once more when it is stopped."""

    @override
    def handle(self, happened: Input, now: float) -> Effects:
        effects = super().handle(happened, now)
        if isinstance(happened, Stopped):
            effects.events.append(decided(1))
        return effects


def test_a_token_decided_as_the_person_stops_is_not_shown() -> None:
    async def talk(bench: Bench) -> None:
        bench.feed(events=[decided(0)])
        bench.driver.stop(Finish.CANCELLED)
        assert bench.events == [decided(0)]
        assert bench.driver.finish is Finish.CANCELLED

    driven(talk, Hasty())


# What fails.


class UnableToWant(ScriptedMode):
    @override
    def wanted(self) -> Work | None:
        raise ZeroDivisionError


@pytest.mark.parametrize("where", ["input", "callback", "wanted"])
def test_a_defect_ends_the_answer_not_the_process(where: str) -> None:
    def fail() -> Effects:
        raise ZeroDivisionError

    def on_record(bench: Bench, record: Record) -> None:
        if where == "callback" and record.event == decided(0):
            raise ZeroDivisionError

    async def talk(bench: Bench) -> None:
        if where == "input":
            bench.mode.effects[Joined] = fail
            bench.driver.feed(Joined("cloud", 9))
        bench.feed(events=[decided(0)])
        with pytest.raises(ZeroDivisionError):
            await bench.driver.wait_over()
        assert bench.driver.finish is None

    driven(talk, UnableToWant() if where == "wanted" else None, on_record=on_record)


def test_a_message_that_a_mode_refuses_is_its_peers_to_hear_of() -> None:
    """The peer closes that session; nothing else is touched."""

    def refuse() -> Effects:
        raise ModeError("out of place")

    async def talk(bench: Bench) -> None:
        bench.mode.effects[Received] = refuse
        bench.session.receive(TARGET)
        assert bench.peer.closed == [(8, End(Reason.PROTOCOL, "out of place"))]
        assert bench.mode.heard[-1] == Left("cloud", End(Reason.PROTOCOL, "out of place"), False)
        assert not bench.driver.over.is_set()

    driven(talk)


@on_driver
async def test_an_answer_resumes_only_with_its_own_documents(bench: Bench) -> None:
    for evidence in ("a1", "a1"):
        bench.session.receive(wire.Opened(8, 3, 0, 0, evidence))
    with pytest.raises(DragonError):
        bench.session.receive(wire.Opened(8, 3, 0, 0, "b2"))


# Work.


@on_driver
async def test_work_is_begun_and_its_outcome_fed_in(bench: Bench) -> None:
    bench.mode.work = [Work(len), Work(len)]
    bench.driver.feed()
    assert len(bench.context.started) == 2
    bench.context.end(value=7)
    bench.context.end(preempted=True, seconds=0.5)
    first, second = bench.mode.heard[-2:]
    assert isinstance(first, Computed)
    assert (first.result, first.seconds) == (7, 0.25)
    assert isinstance(second, Preempted)
    assert second.seconds == 0.5
    bench.feed(preempt=True)
    assert bench.context.preempted == 1


@on_driver
async def test_a_head_that_fails_on_a_peers_input_ends_its_session(bench: Bench) -> None:
    bench.mode.work = [Work(len, peer="cloud")]
    bench.driver.feed()
    bench.context.end(error=DragonError("bad bits"))
    assert bench.peer.closed == [(8, End(Reason.PROTOCOL, "bad bits"))]
    assert bench.mode.heard[-2] == Left("cloud", End(Reason.PROTOCOL, "bad bits"), False)
    assert isinstance(bench.mode.heard[-1], Preempted)
    assert not bench.driver.over.is_set()
    bench.driver.sessions["cloud"].send(TARGET)
    assert bench.peer.sent == []


@pytest.mark.parametrize(
    ("peer", "error"), [(None, DragonError("no model")), ("cloud", MemoryError("out of memory"))]
)
def test_any_other_failure_of_work_fails_the_answer(peer: str | None, error: Exception) -> None:
    async def talk(bench: Bench) -> None:
        bench.mode.work = [Work(len, peer=peer)]
        bench.driver.feed()
        bench.context.end(error=error)
        with pytest.raises(type(error), match=str(error)):
            await bench.driver.wait_over()
        assert Computed not in bench.mode.kinds()

    driven(talk)


# A side that takes nothing in.


@on_driver
async def test_no_work_begins_before_the_other_side_has_read(bench: Bench) -> None:
    bench.peer.size = 64 * 1024
    bench.mode.work = [Work(len)]
    bench.feed(send=[("cloud", TARGET), ("cloud", TARGET)])
    assert bench.session.congested
    assert bench.context.started == []
    bench.driver.feed()
    assert bench.context.started == []
    await asyncio.sleep(1.0)
    bench.peer.taken.set()
    await asyncio.sleep(0.1)
    assert not bench.session.congested
    assert len(bench.context.started) == 1
    bench.peer.size = 10
    bench.feed(send=[("cloud", TARGET)])
    assert not bench.session.congested, "what was taken in is not counted again"


@on_driver
async def test_an_answer_that_ends_leaves_no_drain_behind(bench: Bench) -> None:
    # the simulated loop refuses a task left behind
    bench.peer.size = 64 * 1024 + 1
    bench.feed(send=[("cloud", TARGET)])
    bench.driver.stop(Finish.CANCELLED)


# Time.


@on_driver
async def test_ticks_come_at_the_modes_deadline_and_follow_it(bench: Bench) -> None:
    begun = asyncio.get_running_loop().time()
    bench.mode.due = begun + 10.0
    bench.driver.feed()
    await asyncio.sleep(5.0)
    bench.mode.due = begun + 7.0
    bench.driver.feed()
    bench.driver.feed()
    await asyncio.sleep(20.0)
    assert bench.mode.timed_out == [begun + 7.0]
    bench.mode.due = begun + 30.0
    bench.driver.feed()
    bench.mode.due = None
    bench.driver.feed()
    await asyncio.sleep(20.0)
    assert len(bench.mode.timed_out) == 1
    bench.mode.due = begun + 50.0
    bench.driver.feed()
    bench.driver.stop(Finish.CANCELLED)
    await asyncio.sleep(20.0)
    assert len(bench.mode.timed_out) == 1


# Sessions.


def test_a_lost_connection_returns_and_a_closed_session_not() -> None:
    over, busy = wire.Close(8, Reason.ERROR, "gone"), wire.Close(8, Reason.BUSY, "gone", 2500)
    for connector, close, returns in (
        (Connected(False), None, True),
        (Connected(True), over, False),
        (Connected(True), busy, True),
        (None, None, False),
    ):

        async def talk(
            bench: Bench, close: wire.Close | None = close, returns: bool = returns
        ) -> None:
            for _ in range(2):  # it is said once
                if close is None:
                    bench.session.lost(End(Reason.LOST, "gone"))
                else:
                    bench.session.closed(close)
            assert bench.session.retry_s == (2.5 if close is busy else 0.0)
            left = [each for each in bench.mode.heard if isinstance(each, Left)]
            end = End(Reason.LOST if close is None else close.reason, "gone")
            assert left == [Left("cloud", end, returns)]
            assert bench.session.gone.is_set() is returns
            assert bench.session.rtt_s == 0.1
            for round_trip_s, largest in ((0.3, 0.3), (0.2, 0.3)):
                nearer: Any = StubPeer(round_trip_s=round_trip_s)
                bench.session.attach(nearer, 9)
                bench.session.lost(End(Reason.LOST, "gone"))
                assert bench.session.rtt_s == largest

        driven(talk, connector=connector)


def test_a_mode_leaves_a_session_and_may_want_it_again() -> None:
    for again in (False, True):

        async def talk(bench: Bench, again: bool = again) -> None:
            bench.feed(leave=[Leave("cloud", USELESS, again=again)])
            assert bench.peer.closed == [(8, USELESS)]
            assert bench.session.gone.is_set() is again
            assert Left not in bench.mode.kinds(), "it knows that"

        driven(talk, connector=Connected(True))

    async def cloud(bench: Bench) -> None:
        bench.feed(leave=[Leave("cloud", USELESS)])
        assert bench.mode.heard[-1] == Left("cloud", USELESS, False)

    driven(cloud)


@on_driver
async def test_the_link_is_told_and_records_have_their_session(bench: Bench) -> None:
    assert bench.mode.heard[0] == Measured("cloud", 0.1, 5e6)
    assert bench.session.times_bandwidth
    bench.feed(events=[decided(0)])
    bench.driver.add("another")
    bench.feed(events=[decided(1)])
    assert [record.session for record in bench.records] == [8, 0]


@on_driver
async def test_the_wait_for_a_session_to_close_is_bounded(bench: Bench) -> None:
    waiting: Coroutine[Any, Any, None] = bench.session.wait_closed()
    with pytest.raises(DragonError):
        await waiting
    assert asyncio.get_running_loop().time() >= USUAL.answer_s
    bench.session.lost(End(Reason.LOST, "closed"))
    await bench.session.wait_closed()
