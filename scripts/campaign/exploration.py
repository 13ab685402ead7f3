"""Run scenarios and find violations in the decisions of both sides and in how answers end."""

import asyncio
import logging
import multiprocessing
import os
import signal
from collections.abc import Callable, Coroutine, Iterable, Iterator
from concurrent.futures import ProcessPoolExecutor, as_completed
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from threading import current_thread, main_thread
from typing import Any

from dragonrt.modes.federated.machine import FederationError
from dragonrt.node.answers.client_session import Answer, ClientSession
from dragonrt.side import Side
from dragonrt.testing.loop import run
from dragonrt.testing.pair import (
    Link,
    SimulatedCloud,
    SimulatedDevice,
    SimulatedSide,
    faulty_device,
)
from dragonrt.testing.scripted import SimulatedContext, SimulatedModel
from dragonrt.traces import events
from dragonrt.traces.file import Sink
from scripts.campaign.interleaving import Interleaving
from scripts.campaign.invariants import Taking, ViolationError, check
from scripts.campaign.liveness import bound_s, longest_absence_s
from scripts.campaign.scenario import FOR_EVER_S, Request, Scenario

_log = logging.getLogger("dragonrt")

LONGEST_RUN_S = 1800.0
"""Virtual seconds after which a run counts as hung."""
LONGEST_COMPUTING_S = 60.0
"""Seconds of the processor after which it does too; a run takes some hundredths of one."""
SETTLED_S = 5.0
SETTLED_WITH_FAULTS_S = 40.0
"""Virtual seconds after which nothing of an answer may be left on a living connection."""


OF_CLOUD = (
    *(events.TokenDecided, events.BlockJudged, events.TargetDecoded),
    *(events.MessageReceived, events.TextsDiverged, events.Drafted),
)
"""What a cloud decides, or drafts."""


class HangError(KeyboardInterrupt):
    """A run computed for too long. An interrupt passes the loop's handlers of other exceptions."""


@dataclass(frozen=True, slots=True)
class RunOutcome:
    """The result of one run: `violation` says which invariant failed, None if all held.

    `duration_s` is in virtual seconds. `slowest` is an answer's largest share of its time limit.
    """

    mode: str
    seed: int
    violation: str | None
    tokens: int = 0
    duration_s: float = 0.0
    slowest: float = 0.0


def explore(seeds: Iterable[int], mode: str | None = None) -> list[RunOutcome]:
    """Return the outcomes of the scenarios of `seeds`, in order, in `mode` (None: all modes)."""
    return [explore_one(Scenario.draw(seed, mode)) for seed in seeds]


BATCH = 50
"""Runs that a process is given at once."""


def explore_many(
    runs: int,
    seed: int,
    mode: str | None = None,
    on_progress: Callable[[int], None] = lambda done: None,
) -> list[RunOutcome]:
    """Run the scenarios of the seeds `seed` … `seed + runs - 1`, on as many cores as there are.

    They are of `mode`, or of all modes if it is None. `on_progress` gets the number of runs done. A
    run depends on its seed alone, not on the process or the order in which runs are made.
    """
    end = seed + runs
    batches = [range(first, min(first + BATCH, end)) for first in range(seed, end, BATCH)]
    if len(batches) == 1:
        level = _log.level
        _be_quiet()
        found = explore(batches[0], mode)
        _log.setLevel(level)
        return found
    found = []
    spawn = multiprocessing.get_context("spawn")
    workers = min(len(batches), os.cpu_count() or 1)
    with ProcessPoolExecutor(workers, mp_context=spawn, initializer=_be_quiet) as pool:
        for done in as_completed([pool.submit(explore, batch, mode) for batch in batches]):
            found += done.result()
            on_progress(len(found))
    return sorted(found, key=lambda outcome: outcome.seed)


def _be_quiet() -> None:
    """Broken links are what these runs are about: their warnings say nothing."""
    _log.setLevel(logging.CRITICAL)


def explore_one(scenario: Scenario) -> RunOutcome:
    """Run one scenario; an exception of any kind is a violation in the outcome."""

    async def outcome() -> RunOutcome:
        answers = await observe(scenario)
        tokens = sum(len(each.answer.tokens) for each in answers)
        slowest = max(each.slowness for each in answers)
        end_s = asyncio.get_running_loop().time()
        return RunOutcome(scenario.mode, scenario.seed, None, tokens, end_s, slowest)

    try:
        with _limited():
            found = run(outcome())
            Interleaving(scenario, scenario.requests[0]).run()
    except (Exception, HangError) as error:
        text = " ".join(str(error).split())
        return RunOutcome(scenario.mode, scenario.seed, f"{type(error).__name__}: {text}")
    return found


Disturb = Callable[["Stage"], Coroutine[Any, Any, None]]


async def observe(scenario: Scenario, disturb: Disturb | None = None) -> "list[Observed]":
    """Return a scenario's answers, in the order of its requests. Raises ViolationError and others.

    `disturb` runs at the same time and may act as a dishonest side; one side's complaints about the
    other then are no violation. Call inside `dragonrt.testing.loop.run`.
    """
    return await Stage(scenario, disturb).observed()


@contextmanager
def _limited() -> Iterator[None]:
    """End a run that computes without end, in which virtual time stands still.

    Only where the system has timers that interrupt, and in a process's main thread.
    """
    if not hasattr(signal, "setitimer") or current_thread() is not main_thread():
        yield
        return

    def interrupt(*_: object) -> None:
        raise HangError(f"the run computes for more than {LONGEST_COMPUTING_S:g} s")

    before = signal.signal(signal.SIGPROF, interrupt)
    signal.setitimer(signal.ITIMER_PROF, LONGEST_COMPUTING_S, LONGEST_COMPUTING_S)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0)
        signal.signal(signal.SIGPROF, before)


@dataclass(slots=True)
class Observed:
    """One answer, as the device's trace records it: the whole answer, and each session of it.

    `error` is what it failed with, if the scenario makes it fail; `slowness` is the share of its
    time limit that it took.
    """

    request: Request
    asking: ClientSession
    asked_s: float = 0.0
    ended_s: float = 0.0
    slowness: float = 0.0
    given_up: bool = False
    error: BaseException | None = None
    device: Taking | None = None
    sessions: list[Taking] = field(default_factory=list)

    @property
    def answer(self) -> Answer:
        """Return the device's Answer, with all events so far."""
        return self.asking.answer

    def take(self, record: events.Record) -> None:
        """Add a record of the device's trace to the whole answer and to its current session."""
        event = record.event
        if isinstance(event, events.AnswerOpened):
            self.sessions.append(Taking(self.request.settings, event.accepted))
            self.device = self.device or Taking(self.request.settings, event.accepted)
        elif self.device is not None:
            self.device.take(event)
            if isinstance(event, events.BlockJudged):
                self.sessions[-1].take(event)


class _Clouds:
    """A sink for the records of all clouds: the part that each took in each session."""

    def __init__(self, scenario: Scenario) -> None:
        self._requests = {each.question.seed: each for each in scenario.requests}
        self._open: dict[tuple[str, str, int], Taking] = {}
        self.takings: dict[int, list[Taking]] = {seed: [] for seed in self._requests}

    def take(self, name: str, record: events.Record) -> None:
        event, key = record.event, (name, record.peer, record.session)
        if isinstance(event, events.AnswerOpened):
            seed = event.settings["seed"]
            self._open.pop(key, None)
            if seed in self._requests:  # a stranger may ask, too
                self._open[key] = Taking(self._requests[seed].settings, event.accepted)
                self.takings[seed].append(self._open[key])
        elif key in self._open and isinstance(event, OF_CLOUD):
            self._open[key].take(event)


class Stage:
    """One run of a scenario, with its simulated sides and links; made in the run's event loop."""

    def __init__(self, scenario: Scenario, disturb: Disturb | None = None) -> None:
        self._scenario = scenario
        self._disturb = disturb
        self._clouds_say = _Clouds(scenario)
        self.clouds = {
            name: SimulatedCloud(self._cloud_side(number, name))
            for number, name in enumerate(scenario.clouds)
        }
        self.devices: dict[int, SimulatedDevice] = {}
        self.answers: dict[int, Observed] = {}
        self._healed_s = 0.0
        self._all_answered = asyncio.Barrier(len(scenario.schedules))

    async def unchecked(self) -> list[Observed]:
        """Run the scenario; return its answers, without checking invariants."""
        try:
            async with asyncio.timeout(LONGEST_RUN_S):
                await self._ask_all()
        except TimeoutError:
            raise ViolationError(f"the run hangs: no end in {LONGEST_RUN_S:g} s") from None
        except BaseExceptionGroup as errors:
            error: BaseException = errors
            while isinstance(error, BaseExceptionGroup):  # task groups in task groups
                error = error.exceptions[0]
            raise error from None
        return [self.answers[number] for number in sorted(self.answers)]

    async def observed(self) -> list[Observed]:
        """Run the scenario; return its answers, or raise ViolationError if an invariant fails."""
        answers = await self.unchecked()
        for each in answers:
            if each.device is not None:
                clouds = self._clouds_say.takings[each.request.question.seed]
                told = each.request, each.answer, each.device, each.sessions, clouds
                honest = self._disturb is None
                check(self._scenario, *told, given_up=each.given_up, honest=honest)
            self._check_end(each)
        return answers

    def _check_end(self, asked: Observed) -> None:
        """The answer ended in time."""
        limit_s = bound_s(self._scenario, asked.request)
        since_s = max(self._healed_s, asked.asked_s)
        if asked.ended_s > since_s + limit_s:
            raise ViolationError(
                f"an answer ended {asked.ended_s - since_s:.1f} s after the last fault, "
                f"later than {limit_s:.1f} s"
            )
        asked.slowness = max(0.0, asked.ended_s - since_s) / limit_s

    # The sides.

    def _cloud_side(self, number: int, name: str) -> SimulatedSide:
        schedule = self._scenario.schedules[0][number]
        sink = partial(self._clouds_say.take, name)
        costs = schedule.seed, schedule.cloud_prepare_s, schedule.cloud_decode_s
        return self._side("cloud", name, costs, stalls=number == 0, sinks=(sink,))

    def _device_side(self, number: int) -> SimulatedSide:
        schedule = self._scenario.schedules[number][0]
        costs = schedule.seed, schedule.device_prepare_s, schedule.device_decode_s
        return self._side("device", "device", costs)

    def _side(
        self,
        side: Side,
        name: str,
        costs: tuple[int, float, float],
        *,
        stalls: bool = True,
        sinks: tuple[Sink, ...] = (),
    ) -> SimulatedSide:
        scenario = self._scenario
        return SimulatedSide(
            side,
            lambda prompt: scenario.scripts(self._request(prompt))[name],
            *costs,
            make_context=partial(self._context, side) if stalls else SimulatedContext,
            sinks=sinks,
            timeouts=scenario.timeouts,
            documents=lambda prompt: scenario.texts(self._request(prompt), side),
        )

    def _request(self, prompt: str) -> Request:
        return self._scenario.requests[int(prompt or 0)]

    def _context(
        self, side: Side, model: SimulatedModel, delay_s: Callable[[], float]
    ) -> SimulatedContext:
        """A model's place, one forward of which may take too long."""
        stall, forwards = self._scenario.stall, iter(range(2**62))

        def stalled_s() -> float:
            if stall is None or stall.side != side or next(forwards) != stall.forward:
                return delay_s()
            lasts_s = 0.0 if stall.length_s == FOR_EVER_S else stall.length_s
            self.fault(asyncio.get_running_loop().time() + lasts_s)
            return delay_s() + stall.length_s

        return SimulatedContext(model, stalled_s)

    def fault(self, until_s: float) -> None:
        """Note a fault until `until_s`: the time limits of answers begin after the last fault."""
        self._healed_s = max(self._healed_s, until_s)

    # What they do.

    async def _ask_all(self) -> None:
        scenario = self._scenario
        async with asyncio.TaskGroup() as tasks:
            for number in range(len(scenario.schedules)):
                tasks.create_task(self._device(number), name=f"device {number}")
            if self._disturb is not None:
                tasks.create_task(self._disturb(self), name="disturbance")
            if scenario.killed_s is not None:
                tasks.create_task(self._kill(scenario.killed_s), name="kill")
        for cloud in self.clouds.values():
            await cloud.wait_idle()

    async def _device(self, number: int) -> None:
        scenario = self._scenario
        links = {
            name: Link(cloud, schedule, self.fault)
            for (name, cloud), schedule in zip(
                self.clouds.items(), scenario.schedules[number], strict=True
            )
        }
        async with faulty_device(self._device_side(number), links) as device:
            self.devices[number] = device
            async with asyncio.TaskGroup() as tasks:
                for request in scenario.requests:
                    if request.device == number:
                        tasks.create_task(self._ask(device, request), name="asker")
            await self._all_answered.wait()
            await asyncio.sleep(SETTLED_WITH_FAULTS_S if scenario.faulty else SETTLED_S)
            if left := {
                name for task in asyncio.all_tasks() if (name := task.get_name())[:8] == "session "
            }:
                raise ViolationError(f"sessions of finished answers are left: {left}")
            if any(cloud.sessions for cloud in self.clouds.values()):
                raise ViolationError("sessions of finished answers are left on a connection")

    async def _ask(self, device: SimulatedDevice, request: Request) -> None:
        """Ask, and give up when it is time to."""
        loop = asyncio.get_running_loop()
        await asyncio.sleep(request.start_s)

        def take(record: events.Record) -> None:
            asked.take(record)

        resources = self._scenario.resources(request)
        asking = device.asking(request.question, request.settings, resources, take)
        asked = Observed(request, asking, loop.time())
        self.answers[int(request.question.prompt)] = asked
        task = asyncio.create_task(asking.ask(), name="ask")
        if request.end_s is not None:
            await asyncio.wait([task], timeout=request.end_s)
            if request.stops:
                asking.stop()
            else:
                task.cancel()
        await asyncio.wait([task])
        asked.ended_s = loop.time()
        asked.given_up = request.end_s is not None
        if not task.cancelled() and self._may_fail(task):
            asked.error, asked.given_up = task.exception(), True
        elif not task.cancelled():
            task.result()

    def _may_fail(self, task: asyncio.Task[Answer]) -> bool:
        """Whether workers that were away for longer than timeouts ended an answer."""
        long = longest_absence_s(self._scenario) > self._scenario.timeouts.answer_s
        expected = long or self._disturb is not None
        return expected and isinstance(task.exception(), FederationError)

    async def _kill(self, after_s: float) -> None:
        await asyncio.sleep(after_s)
        self.fault(asyncio.get_running_loop().time())
        await next(iter(self.clouds.values())).kill()
