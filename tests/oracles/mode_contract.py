"""The contract of modes, as checks of one mode with its settings (as trio.testing does).

Each check of CHECKS takes a Case and raises ContractError. The modes run in virtual time, on
scripted models, by the code that two processes run.
"""

import asyncio
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from typing import Any

from dragonrt.errors import DragonError
from dragonrt.modes import MODES
from dragonrt.modes.dragon.drafts import Draft
from dragonrt.modes.messages import Block, Target, Upload, Verdict
from dragonrt.modes.mode import Joined, Mode, ModeError, Prepared, Received
from dragonrt.modes.prefix import start_hash
from dragonrt.modes.question import Question
from dragonrt.modes.settings import ModeEntry, Settings
from dragonrt.node.answers.client_session import Answer
from dragonrt.sampling.samplers import Sampler
from dragonrt.side import SIDES, Side
from dragonrt.testing.faults import Cut, HalfOpen, Schedule, Stall
from dragonrt.testing.loop import run
from dragonrt.testing.pair import Link, SimulatedCloud, SimulatedSide, faulty_device
from dragonrt.testing.scripted import (
    COUNTERPART,
    Script,
    ScriptedHost,
    ScriptedModel,
    scripted_resources,
)
from dragonrt.timeouts import USUAL
from dragonrt.traces.events import Disclosed, MessageSent, Record
from dragonrt.wire import messages as wire
from dragonrt.wire.fields import MAX_32
from tests.oracles import oracle
from tests.oracles.asked import Attendance

VOCABULARY = 16
STEADY = Schedule(1, latency_s=0.01)
LINKS: Mapping[str, Schedule] = {
    "no delay": Schedule(2),
    "a slow link with jitter": Schedule(3, latency_s=0.1, jitter_s=0.1, bandwidth=50e3),
    "a slow device": Schedule(4, latency_s=0.02, device_decode_s=0.2, cloud_decode_s=0.01),
    "a slow cloud": Schedule(5, latency_s=0.02, device_decode_s=0.01, cloud_decode_s=0.2),
    "a cloud that reads long": Schedule(6, latency_s=0.02, cloud_prepare_s=2.0),
    "two cuts": replace(STEADY, faults=(Cut("device", after_s=0.2), Cut("cloud", after_writes=9))),
    "a stall": replace(STEADY, faults=(Stall(0.15, 3.0),)),
    "a half-open connection": replace(STEADY, faults=(HalfOpen(("cloud",), 0.1),)),
}
GONE = replace(STEADY, faults=(Stall(0.15, 1e6),) + (Cut("cloud", after_bytes=0),) * 200)


class ContractError(DragonError):
    """A mode does not keep a promise; the line says which."""


@dataclass(frozen=True, slots=True)
class Case:
    """A mode with settings under which a lost side is waited for."""

    entry: ModeEntry[Any, Any]
    settings: Settings

    @property
    def clouds(self) -> list[str]:
        """The names of the other sides."""
        return ["worker 0", "worker 1"] if self.entry.several else ["cloud"]

    @property
    def weights(self) -> dict[str, float]:
        """Those of the other sides, equal."""
        return dict.fromkeys(self.clouds, 1 / len(self.clouds))

    @property
    def resources(self) -> Any:
        """The device's resources; its entry must be in place."""
        return scripted_resources(self.settings, VOCABULARY, self.weights)

    def right(self, question: Question, script: Script) -> list[int]:
        """Return the tokens of the right answer."""
        models = {"device": ScriptedModel("device", script)}
        models |= {name: ScriptedModel("cloud", script) for name in self.clouds}
        course = Attendance(weights=lambda step: self.weights)
        with registered(self.entry):
            return oracle(question, self.settings, models, course, self.resources)


def asked(seed: int) -> tuple[Question, Script]:
    """Return a question and what the models say then."""
    sampler = Sampler(temperature=(0.0, 0.8, 1.2)[seed % 3])
    question = Question(
        prompt=str(seed),
        seed=seed,
        sampler=sampler,
        max_tokens=8 + seed % 9,
        stop_tokens=(0,),
        reweight_every=1,
    )
    script = Script(seed, VOCABULARY, sharpness=2.0, disagreement=0.4 * (seed % 4), stop=0.03)
    return question, script


def answered(
    case: Case, seed: int, schedule: Schedule, heard: Callable[[Record], None] | None = None
) -> tuple[Answer, float]:
    """Return an answer over such a link, and its virtual seconds; `heard` gets all records."""
    question, script = asked(seed)
    sinks = () if heard is None else (heard,)

    def side(name: Side, prepare_s: float, decode_s: float, seed: int = 0) -> SimulatedSide:
        of_side = name, lambda _: script, seed, prepare_s, decode_s
        return SimulatedSide(*of_side, sinks=sinks)

    async def ask() -> tuple[Answer, float]:
        time, links = asyncio.get_running_loop().time, {}
        for number, name in enumerate(case.clouds):
            cloud = side("cloud", schedule.cloud_prepare_s, schedule.cloud_decode_s, number)
            link = replace(schedule, seed=schedule.seed + number)
            links[name] = Link(SimulatedCloud(cloud), link)
        async with faulty_device(side("device", 0.0, schedule.device_decode_s), links) as device:
            began_s, answer = time(), device.asking(question, case.settings)
            with suppress(DragonError):  # a mode may say that it cannot go on
                await answer.ask()
            took_s = time() - began_s
        for each in links.values():
            await each.cloud.kill()
        return answer.answer, took_s

    with registered(case.entry):
        return run(ask())


@contextmanager
def registered(entry: ModeEntry[Any, Any]) -> Iterator[None]:
    """Have this entry in place of the one of its name, and then that again."""
    before = dict(MODES)
    MODES[entry.name] = entry
    try:
        yield
    finally:
        MODES.clear()
        MODES.update(before)


def check_texts(case: Case) -> None:
    """Latency, jitter, speeds and lost connections change no token."""
    for seed in range(6):
        right = case.right(*asked(seed))
        for name, schedule in LINKS.items():
            tokens = answered(case, seed, schedule)[0].tokens
            if tokens != right:
                raise ContractError(f"seed {seed}, {name}: the text is {tokens}, and not {right}")


def check_waits(case: Case) -> None:
    """An answer ends, whatever the other side does not do."""
    mute = replace(STEADY, cloud_prepare_s=1e6)
    for name, schedule in (("lost for good", GONE), ("never ready", mute)):
        given, took_s = answered(case, 1, schedule)
        if took_s > USUAL.read_s + 2 * USUAL.answer_s:
            raise ContractError(f"with a cloud {name} an answer took {took_s:g} s")
        if given.tokens != case.right(*asked(1))[: len(given.tokens)] and not given.notices:
            raise ContractError(f"with a cloud {name} the text is another, and nobody was told")


def check_ledger(case: Case) -> None:
    """Every message of the device is in the ledger."""
    sent, told = Counter[str](), Counter[str]()

    def count(record: Record) -> None:
        if record.side == "device" and isinstance(record.event, MessageSent):
            sent[record.event.message] += 1
        elif isinstance(record.event, Disclosed):
            told[record.event.message] += 1

    for name, schedule in LINKS.items():
        answered(case, 2, schedule, count)
        if any(told[name] != count for name, count in sent.items() if name not in UNTOLD):
            raise ContractError(f"{name}: of {dict(sent)} messages the ledger has {dict(told)}")


UNTOLD = (*(each.__name__.lower() for each in wire.CONNECTION_MESSAGES), "close")
"""Messages of the connection, and the one that ends a session: of a device, without documents."""
FAR, TEXT, NOISE = 900, 0x1234, b"\xff" * 9


def bad_messages(step: int, prefix_hash: int, round_: int) -> Sequence[wire.SessionMessage]:
    """Return messages that fit no answer, for the place of one."""
    return (
        Draft(1, step, prefix_hash, FAR, 0.0, 0, 0, TEXT, NOISE),
        Draft(1, step, prefix_hash, 1, 0.0, 0, 0, TEXT, NOISE),
        Target(1, step, prefix_hash, FAR, "cloud"),
        Target(1, step, prefix_hash ^ 1, 1, "cloud"),
        Block(1, round_, step, prefix_hash & MAX_32, 3, (), (), NOISE),
        Verdict(1, round_, 200, FAR, 0),
        Upload(1, round_, 0.0, 0, (b"\xff",)),
    )


def check_messages(case: Case) -> None:
    """A message that fits no answer is refused by ModeError, or leads to nothing."""
    question = asked(1)[0]
    entry, others = case.entry, dict.fromkeys(case.clouds, COUNTERPART)
    device, cloud = (
        (question, case.settings, entry.prepare(ScriptedHost(side, VOCABULARY), of, case.settings))
        for side, of in zip(SIDES, (others, {}), strict=True)
    )
    for place in ((FAR, TEXT, FAR), (0, start_hash(question.seed), 1)):
        for message in bad_messages(*place):
            _rejects(entry.device(*device), case.clouds[0], message)
            _rejects(entry.cloud(*cloud), "device", message)


def _rejects(mode: Mode, peer: str, message: wire.SessionMessage) -> None:
    mode.handle(Joined(peer, 1), 0.0)
    mode.handle(Prepared(), 0.1)
    mode.wanted()
    before = list(mode.decided)
    try:
        effects = mode.handle(Received(peer, message), 0.2)
    except ModeError:
        return
    except Exception as error:
        raise ContractError(f"{message} led to {type(error).__name__}: {error}") from error
    if effects.finished or effects.failed or list(mode.decided) != before:
        raise ContractError(f"{message} was believed")


CHECKS = (check_texts, check_waits, check_ledger, check_messages)
