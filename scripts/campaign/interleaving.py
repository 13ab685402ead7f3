"""Run one answer without a clock: a seed chooses which of the possible inputs comes next.

In virtual time the order of inputs follows from delays, so some orders never occur. Here the modes
run without driver or network: each message, each finished work, each cut of a connection and each
new session is an input that is ready, and any of them may be the next. Only messages from one side
to another keep their order. No timeout runs out.
"""

import random
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial

from dragonrt.modes import MODES
from dragonrt.modes.mode import (
    Computed,
    Effects,
    Finish,
    Joined,
    Left,
    Mode,
    Preempted,
    Prepared,
    Received,
    Work,
)
from dragonrt.modes.question import Question
from dragonrt.node.answers.client_session import Answer
from dragonrt.side import Side
from dragonrt.testing.scripted import SimulatedModel, predictions_of, scripted_resources
from dragonrt.traces import events
from dragonrt.wire import messages as wire
from dragonrt.wire.fields import pack, unpack
from dragonrt.wire.reasons import End, Reason
from scripts.campaign.invariants import Taking, ViolationError, check
from scripts.campaign.scenario import Request, Scenario

LONGEST = 20_000
"""Inputs after which an answer counts as endless; it takes some hundreds."""
CUTS = 3
"""Connections that end early, at most."""
CUT = 0.05
"""How often one does."""
STEP_S = 1e-3


@dataclass(slots=True, eq=False)
class _Machine:
    """One side's mode with what it has under way; `inboxes` are in the order of sending."""

    name: str
    mode: Mode
    model: SimulatedModel
    prepared: Prepared
    taking: Taking
    inboxes: dict[str, deque[wire.SessionMessage]] = field(default_factory=dict)
    works: list[Work] = field(default_factory=list)
    preempted: list[Work] = field(default_factory=list)
    records: list[events.Record] = field(default_factory=list)
    ready: bool = False
    finish: Finish | None = None


class Interleaving:
    """The answer to one request, with the inputs of both sides' modes in a random order."""

    def __init__(self, scenario: Scenario, request: Request) -> None:
        self._chance = random.Random(f"order {scenario.mode} {scenario.seed}")
        self._scenario, self._request = scenario, request
        self._entry, self._models = MODES[scenario.mode], scenario.models(request)
        device = self._entry.device(request.question, request.settings, scenario.resources(request))
        self._device = self._machine("device", device, Taking(request.settings, 0))
        self._clouds: dict[str, _Machine] = {}
        self._over: set[str] = set()
        self._takings: list[Taking] = []
        self._sessions: list[Taking] = []
        self._cuts = CUTS
        self._now = 0.0

    def run(self) -> None:
        """Run the answer. Raises ViolationError if it does not end or an invariant fails."""
        for name in self._scenario.clouds:
            self._join(name)
        while self._device.finish is None:
            ready = self._ready()
            if not ready or self._now > LONGEST * STEP_S:
                raise ViolationError(f"in another order of inputs: no end, {len(ready)} are ready")
            self._now += STEP_S
            self._chance.choice(ready)()
        asked, device, finish = self._request, self._device, self._device.finish
        answer = Answer(
            question=asked.question, settings=asked.settings, records=device.records, finish=finish
        )
        told = answer, device.taking, self._sessions, self._takings
        try:
            check(self._scenario, asked, *told, given_up=False, quiet=False)
        except ViolationError as error:
            raise ViolationError(f"in another order of inputs: {error}") from None

    def _machine(self, name: str, mode: Mode, taking: Taking) -> _Machine:
        side: Side = "device" if name == "device" else "cloud"
        prepared = Prepared(texts=self._scenario.texts(self._request, side))
        return _Machine(name, mode, self._models[name], prepared, taking)

    # What may happen next.

    def _ready(self) -> list[Callable[[], None]]:
        inputs: list[Callable[[], None]] = []
        for machine in (self._device, *self._clouds.values()):
            if not machine.ready:
                inputs.append(partial(self._prepare, machine))
            inputs += [partial(self._work_off, machine, work) for work in machine.works]
            for peer, inbox in machine.inboxes.items():
                if inbox:
                    inputs.append(partial(self._deliver, machine, peer))
        away = self._scenario.clouds.keys() - self._clouds.keys() - self._over
        inputs += [partial(self._join, name) for name in sorted(away)]
        if self._cuts and self._clouds and self._chance.random() < CUT:
            self._cuts -= 1
            inputs = [partial(self._part, self._chance.choice(sorted(self._clouds)))]
        return inputs

    def _prepare(self, machine: _Machine) -> None:
        machine.ready = True
        if machine is not self._device:
            self._device.inboxes[machine.name].append(wire.Opened(1, 0, 0, 0))
        self._carry_out(machine, machine.mode.handle(machine.prepared, self._now))

    def _join(self, name: str) -> None:
        """A session from the decided text on, with a cloud that knows what is sent to it."""
        mode = self._device.mode
        question = unpack(Question, pack(mode.disclosed(self._request.question)))
        settings = unpack(self._entry.settings, pack(self._request.settings))
        vocabulary, timeouts = self._scenario.vocabulary, self._scenario.timeouts
        resources = scripted_resources(settings, vocabulary, side="cloud", timeouts=timeouts)
        taking = Taking(settings, len(question.accepted))
        cloud = self._machine(name, self._entry.cloud(question, settings, resources), taking)
        self._clouds[name] = cloud
        self._takings.append(taking)
        self._sessions.append(Taking(self._request.settings, len(mode.decided)))
        cloud.inboxes["device"] = deque()
        self._device.inboxes[name] = deque()
        self._carry_out(cloud, cloud.mode.handle(Joined("device", 1), self._now))
        self._carry_out(self._device, mode.handle(Joined(name, 1), self._now))

    def _part(self, name: str) -> None:
        """The connection is cut: what is under way on it is lost."""
        self._close(name)
        left = Left(name, End(Reason.LOST, "cut"), True)
        self._carry_out(self._device, self._device.mode.handle(left, self._now))

    def _close(self, name: str) -> None:
        del self._clouds[name], self._device.inboxes[name]

    def _deliver(self, machine: _Machine, peer: str) -> None:
        effects = machine.mode.handle(Received(peer, machine.inboxes[peer].popleft()), self._now)
        if machine.finish is not None:  # the other side may need an answer to come as far
            self._send(machine, effects)
        self._carry_out(machine, effects)

    def _work_off(self, machine: _Machine, work: Work) -> None:
        """A work's end; a preempted one may have come to it before."""
        machine.works.remove(work)
        chance, mode = self._chance, machine.mode
        if work in machine.preempted and chance.random() < 0.5:
            effects = mode.handle(Preempted(work, STEP_S), self._now)
        else:
            result = work.postprocess(predictions_of(machine.model, work))
            effects = mode.handle(Computed(work, result, STEP_S), self._now)
        self._carry_out(machine, effects)

    # What comes of it.

    def _carry_out(self, machine: _Machine, effects: Effects) -> None:
        if machine.finish is not None:
            return
        for event in effects.events:
            machine.records.append(events.Record(self._now, "device", 0, event))
            if machine is self._device or not isinstance(event, events.ForwardDone):
                machine.taking.take(event)
            if machine is self._device and isinstance(event, events.BlockJudged):
                self._sessions[-1].take(event)
        self._send(machine, effects)
        for leave in effects.leave:
            if machine is not self._device or not (leave.again or machine.taking.parted):
                raise ViolationError(f"in another order of inputs: {machine.name}: {leave.end}")
            if not leave.again:
                self._over.add(leave.peer)
            if leave.peer in self._clouds:
                self._close(leave.peer)
        if effects.failed is not None:
            raise effects.failed
        machine.finish = effects.finished
        if effects.preempt:
            machine.preempted = [work for work in machine.works if work.span is not None]
        while machine.ready and machine.finish is None and (work := machine.mode.wanted()):
            machine.works.append(work)

    def _send(self, machine: _Machine, effects: Effects) -> None:
        for name, message in effects.send:
            there = self._clouds[name] if machine is self._device else self._device
            there.inboxes[machine.name].append(message)
