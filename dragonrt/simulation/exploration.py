"""Run a scenario on the real runtime and check what must hold in every run.

Every decided token of either side is what the oracle gives for the tokens before it; the two
sides decide the same; nobody drafts beyond the agreed run-ahead; every answer ends; and when all
is over no task, no session and no connection is left.
"""

import asyncio
import signal
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from threading import current_thread, main_thread
from typing import Any

from dragonrt.errors import DragonError
from dragonrt.runtime.draft import extend_hash, start_hash
from dragonrt.runtime.drafter import Drafter
from dragonrt.runtime.modes.dragon import Answer, Asking
from dragonrt.runtime.plan import Plan
from dragonrt.side import Side
from dragonrt.simulation.drafter import Script, SimulatedDrafter
from dragonrt.simulation.loop import run
from dragonrt.simulation.oracle import Oracle
from dragonrt.simulation.pair import SimulatedCloud, simulated_cloud, simulated_device
from dragonrt.simulation.scenario import ModelStall, Question, Scenario

LONGEST_RUN_S = 1800.0
"""Virtual seconds after which a run counts as hung."""
LONGEST_COMPUTING_S = 60.0
"""Real seconds after which it does too; a run takes some hundredths of one."""
SETTLED_S = 5.0
SETTLED_WITH_FAULTS_S = 40.0
"""Virtual seconds after which nothing of an answer may be left on a living connection."""
BREACHES = (
    "further ahead",
    "another text",
    "target token",
    "internal error",
    "vocabulary",
    "more drafts",
)
"""What a side says of the other one when that has broken the protocol."""


class ViolationError(DragonError):
    """Something that must hold did not; the line says what."""


class HangError(KeyboardInterrupt):
    """A run was interrupted. An interrupt leaves the loop past whatever catches errors in it."""


@dataclass(frozen=True, slots=True)
class Outcome:
    """One run: `violation` is None where everything held; times are virtual seconds."""

    seed: int
    violation: str | None
    tokens: int
    duration_s: float


@dataclass(slots=True)
class _Taking:
    """One generation on one side, as its trace tells it."""

    seed: int
    accepted: int
    decided: list[int] = field(default_factory=list)
    alone: list[tuple[int, bool]] = field(default_factory=list)
    """From which steps on the device was alone (True) or together again."""


class _Watch:
    """A trace that keeps both sides' decisions and checks the run-ahead while they are made."""

    def __init__(self, plans: dict[int, Plan], peer: str = "") -> None:
        self.takings: list[_Taking] = []
        self._plans = plans
        self._open: dict[tuple[str, int], _Taking] = {}
        self._peer = peer

    def of(self, peer: str) -> "_Watch":
        watch = _Watch(self._plans, peer)
        watch.takings, watch._open = self.takings, self._open
        return watch

    def event(self, session: int, event: str, **fields: Any) -> None:
        key = (self._peer, session)
        if event == "open":
            taking = self._open[key] = _Taking(fields["seed"], fields["accepted"])
            self.takings.append(taking)
        elif event in ("decide", "decode", "alone", "resume", "diverge"):
            self._take(self._open[key], event, fields)

    def _take(self, taking: _Taking, event: str, fields: dict[str, Any]) -> None:
        step, reached = fields["step"], taking.accepted + len(taking.decided)
        match event:
            case "decide":
                if step != reached:
                    raise ViolationError(f"step {step} was decided where {reached} was next")
                taking.decided.append(fields["token"])
            case "decode":
                bound = reached + self._plans[taking.seed].run_ahead
                if step + fields["tokens"] > bound:
                    raise ViolationError(f"step {step} was drafted beyond the bound {bound}")
            case "alone" | "resume":
                taking.alone.append((step, event == "alone"))
            case _:
                raise ViolationError(f"the two sides decided different texts before step {step}")


class _Device(_Watch):
    """The trace of one answer on the device, over all the connections it was made on."""

    def event(self, session: int, event: str, **fields: Any) -> None:
        if event != "open" or not self.takings:
            super().event(0, event, **fields)


def explore(seeds: Iterable[int]) -> list[Outcome]:
    """The outcomes of the scenarios of these seeds, in their order."""
    return [explore_one(Scenario.draw(seed)) for seed in seeds]


def explore_one(scenario: Scenario) -> Outcome:
    """Run one scenario. A failure of any kind is a violation: none is expected."""
    try:
        with _limited():
            tokens, duration_s = run(_run(scenario))
    except (Exception, HangError) as error:
        text = " ".join(str(_first(error)).split())
        return Outcome(scenario.seed, f"{type(_first(error)).__name__}: {text}", 0, 0.0)
    return Outcome(scenario.seed, None, tokens, duration_s)


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

    before = signal.signal(signal.SIGALRM, interrupt)
    signal.setitimer(signal.ITIMER_REAL, LONGEST_COMPUTING_S, LONGEST_COMPUTING_S)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


def _first(error: BaseException) -> BaseException:
    """What lies behind the groups that task groups make of an error."""
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    return error


async def _run(scenario: Scenario) -> tuple[int, float]:
    """All questions of a scenario, checked; the tokens decided and the virtual seconds."""
    loop = asyncio.get_running_loop()
    plans = {question.plan.seed: question.plan for question in scenario.questions}
    on_cloud = _Watch(plans)
    try:
        async with asyncio.timeout(LONGEST_RUN_S):
            asked = await _ask_all(scenario, on_cloud, plans)
    except TimeoutError:
        raise ViolationError(f"the run hangs: no end in {LONGEST_RUN_S:g} s") from None
    for question, answer, on_device in asked:
        _check(scenario, question, answer, on_device, on_cloud)
    return sum(len(answer.tokens) for _, answer, _ in asked), loop.time()


Asked = tuple[Question, Answer, _Device]


async def _ask_all(scenario: Scenario, on_cloud: _Watch, plans: dict[int, Plan]) -> list[Asked]:
    def script(text: str) -> Script:
        return scenario.questions[int(text or 0)].script

    make = _stalling(scenario.stall) if scenario.stall is not None else SimulatedDrafter
    cloud = simulated_cloud(scenario.schedules[0], script, make, on_cloud)
    asked: list[Asked] = []
    all_answered = asyncio.Barrier(len(scenario.schedules))

    async def device(number: int) -> None:
        schedule = scenario.schedules[number]
        async with simulated_device(cloud, schedule, script, make) as connected:
            async with asyncio.TaskGroup() as tasks:
                for index, question in enumerate(scenario.questions):
                    if question.device != number:
                        continue
                    watch = _Device(plans)
                    side = replace(connected.side, trace=watch, seed=schedule.seed + index)
                    asking = Asking(
                        side,
                        connected.connector,
                        question.plan,
                        on_decision=lambda decision: None,
                        on_notice=lambda text: None,
                        on_loss=question.on_loss,
                    )
                    asked.append((question, asking.answer, watch))
                    tasks.create_task(_ask(asking, question, str(index)))
            await all_answered.wait()
            await asyncio.sleep(SETTLED_WITH_FAULTS_S if scenario.may_lose_the_cloud else SETTLED_S)
            if left := {
                name for task in asyncio.all_tasks() if (name := task.get_name())[:8] == "session "
            }:
                raise ViolationError(f"sessions of finished answers are left: {left}")

    kill = None
    if scenario.killed_s is not None:
        kill = asyncio.create_task(_kill(cloud, scenario.killed_s), name="kill")
    async with asyncio.TaskGroup() as tasks:
        for number in range(len(scenario.schedules)):
            tasks.create_task(device(number), name=f"device {number}")
    if kill is not None:
        await kill
    await cloud.wait_idle()
    return asked


async def _ask(asking: Asking, question: Question, text: str) -> None:
    """Ask, and give up when it is time to."""
    await asyncio.sleep(question.start_s)
    task = asyncio.create_task(asking.ask(text), name=f"ask {text}")
    if question.end_s is not None:
        await asyncio.wait([task], timeout=question.end_s)
        if question.stops:
            asking.stop()
        else:
            task.cancel()
    await asyncio.wait([task])
    if not task.cancelled():
        task.result()


async def _kill(cloud: SimulatedCloud, after_s: float) -> None:
    await asyncio.sleep(after_s)
    await cloud.kill()


def _stalling(
    stall: ModelStall,
) -> Callable[[Side, Plan, Script, Callable[[], float]], Drafter]:
    """Makes models one forward of which takes too long."""

    def make(side: Side, plan: Plan, script: Script, delay_s: Callable[[], float]) -> Drafter:
        forwards = iter(range(2**62))

        def stalled_s() -> float:
            held_up = side == stall.side and next(forwards) == stall.forward
            return delay_s() + (stall.length_s if held_up else 0.0)

        return SimulatedDrafter(side, plan, script, stalled_s)

    return make


# What must hold.


def _check(
    scenario: Scenario, question: Question, answer: Answer, on_device: _Device, on_cloud: _Watch
) -> None:
    """Raises ViolationError unless both sides' parts of an answer are what they must be."""
    plan, tokens = question.plan, answer.tokens
    right = Oracle(plan, question.script)
    for taking in on_device.takings:
        if taking.decided != tokens:
            raise ViolationError("the device shows another text than it decided")
        _check_text(right, plan, [], tokens, taking.alone, "device")
    for taking in on_cloud.takings:
        if taking.seed == plan.seed:
            _check_text(right, plan, tokens[: taking.accepted], taking.decided, [], "cloud")
    _check_end(question, answer)
    for notice in answer.notices:
        if any(breach in notice for breach in BREACHES):
            raise ViolationError(f"a side broke the protocol: {notice}")
        if "alone" in notice and not scenario.may_lose_the_cloud:
            raise ViolationError(f"the cloud was left without need: {notice}")


def _check_text(
    right: Oracle,
    plan: Plan,
    accepted: list[int],
    decided: list[int],
    changes: list[tuple[int, bool]],
    side: Side,
) -> None:
    """Every token, and with it the hash of every prefix, follows from the tokens before it."""
    prefix_hash = start_hash(plan.seed)
    for token in accepted:
        prefix_hash = extend_hash(prefix_hash, token)
    alone_at = dict(changes)
    alone = False
    for step, token in enumerate(decided, start=len(accepted)):
        alone = alone_at.get(step, alone)
        expected = (right.alone if alone else right.target)(step, prefix_hash)
        if token != expected:
            raise ViolationError(
                f"the {side} decided {token} at step {step} where the oracle gives {expected}"
            )
        prefix_hash = extend_hash(prefix_hash, token)


def _check_end(question: Question, answer: Answer) -> None:
    """An answer that nobody gave up ends with a stop token or at its full length."""
    plan, tokens = question.plan, answer.tokens
    stopped = bool(tokens) and tokens[-1] in plan.stop_tokens
    complete = stopped or len(tokens) == plan.max_tokens
    if not complete and question.end_s is None:
        raise ViolationError(f"the answer ended with {len(tokens)} of {plan.max_tokens} tokens")
    if len(tokens) > plan.max_tokens or any(token in plan.stop_tokens for token in tokens[:-1]):
        raise ViolationError("the answer goes on behind its end")
    if answer.finish.value != "cancelled" and not complete:
        raise ViolationError(f"an incomplete answer says it ended by {answer.finish.value}")
