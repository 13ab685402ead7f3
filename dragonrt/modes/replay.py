"""An answer is a fold over its mode's inputs: these are recorded, and folded again.

No model, document or network is needed: the inputs hold what was computed. They hold no text of
documents, of which a mode only makes guesses that are read by then.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from itertools import count
from typing import Any

from typing_extensions import override

from dragonrt.errors import DragonError
from dragonrt.modes.mode import Computed, Effects, Input, Mode, Preempted, Prepared, Work
from dragonrt.modes.question import Question
from dragonrt.modes.registry import ModeEntry, Resources, mode_entry
from dragonrt.modes.settings import Settings
from dragonrt.side import Side
from dragonrt.traces.events import ModeInput, Record
from dragonrt.traces.file import Recorder
from dragonrt.traces.packed import UnpackError, digest, pack, unpack

_ANSWERS = count(1)


@dataclass(frozen=True, slots=True)
class Begun:
    """The parts of a mode's machine, without the question's words and trained networks."""

    mode: str
    side: Side
    question: Question
    settings: Settings
    resources: Resources

    def machine(self) -> Mode:
        """Return a machine in its first state, which may compute nothing."""
        entry = mode_entry(self.mode)
        make = entry.device if self.side == "device" else entry.cloud
        return make(self.question, self.settings, self.resources)


def machine(
    entry: ModeEntry,
    side: Side,
    question: Question,
    settings: Settings,
    resources: Resources,
    recorder: Recorder,
) -> Mode:
    """Return the machine of one side, whose inputs are recorded if the recorder keeps them."""
    make = entry.device if side == "device" else entry.cloud
    made = make(question, settings, resources)
    if not recorder.keeps_inputs:
        return made
    wordless = replace(question, prompt="", instructions="", history=(), shown=())
    begun = Begun(entry.name, side, wordless, settings, resources.recorded())
    return _Recorded(made, recorder, begun)


class _Recorded(Mode):
    """Another mode, of which each input is recorded with the effects that it led to.

    A Work is recorded by its number. `_asked` counts the calls of `wanted` since the last input.
    """

    def __init__(self, mode: Mode, recorder: Recorder, begun: Begun) -> None:
        super().__init__()
        self._mode = mode
        self.moved, self.times_bandwidth = mode.moved, mode.times_bandwidth
        self._recorder = recorder
        self._answer = next(_ANSWERS)
        self._asked = 0
        self._count = 0
        self._works: dict[int, tuple[int, Work]] = {}  # under way, by identity
        recorder.event(0, ModeInput(self._answer, 0.0, pack(begun), ""))

    @property
    @override
    def decided(self) -> Sequence[int]:
        return self._mode.decided

    @override
    def disclosed(self, question: Question) -> Question:
        return self._mode.disclosed(question)

    @override
    def deadline(self) -> float | None:
        return self._mode.deadline()

    @override
    def wanted(self) -> Work | None:
        self._asked += 1
        work = self._mode.wanted()
        if work is not None:
            self._works[id(work)] = self._count, work
            self._count += 1
        return work

    @override
    def handle(self, happened: Input, now: float) -> Effects:
        shown: Any = happened
        match happened:
            case Prepared():
                shown = replace(happened, texts=(), question=())
            case Computed(work=work) | Preempted(work=work):
                shown = replace(shown, work=self._works.pop(id(work))[0])
        effects: Effects | DragonError
        try:
            effects = self._mode.handle(happened, now)
        except DragonError as error:
            effects = error
            raise
        finally:
            asked, self._asked = self._asked, 0
            taken = ModeInput(self._answer, now, pack(shown), digest(effects), asked)
            self._recorder.event(0, taken)
        return effects


@dataclass(frozen=True, slots=True)
class Replayed:
    """One answer of a trace, folded again: `inputs` were handled, and gave the `tokens`.

    `differs` is the number of the first input that led to something else, `problem` why there is
    no more of it.
    """

    mode: str
    side: Side
    inputs: int = 0
    tokens: tuple[int, ...] = ()
    differs: int | None = None
    problem: str = ""


def replayed(records: Iterable[Record]) -> list[Replayed]:
    """Fold every answer of a trace again. Raises DragonError if the trace holds no inputs."""
    answers: dict[int, list[ModeInput]] = {}
    for record in records:
        if isinstance(record.event, ModeInput):
            answers.setdefault(record.event.answer, []).append(record.event)
    if not answers:
        raise DragonError("the trace holds no answer: record one with --trace")
    return [_fold(inputs) for inputs in answers.values()]


def _fold(inputs: Sequence[ModeInput]) -> Replayed:
    begun = unpack(inputs[0].input)
    if not isinstance(begun, Begun):
        raise UnpackError("the beginning of an answer is missing in the trace")
    mode, found = begun.machine(), Replayed(begun.mode, begun.side)
    works: list[Work] = []
    for number, each in enumerate(inputs[1:], start=1):
        effects: Effects | DragonError
        try:
            for _ in range(each.asked):
                if (work := mode.wanted()) is not None:
                    works.append(work)
            happened: Any = unpack(each.input)
            if type(happened) in (Computed, Preempted):
                happened = replace(happened, work=works[happened.work])
            effects = mode.handle(happened, each.now)
        except UnpackError as error:
            return replace(found, problem=str(error))
        except DragonError as error:
            effects = error
        found = replace(found, inputs=number, tokens=tuple(mode.decided))
        if digest(effects) != each.effects:
            return replace(found, differs=number)
    return found
