"""Answers of real models, replayed in virtual time over other links and schedulers.

Both sides' traces hold every draft with its distribution. The text of an answer depends on neither
the network nor the scheduler (SPEC section 0), so what the models said along it is all on record.
Drafts of lines that died in the replay only may not be: a stand-in takes their place, which costs
time like any other draft and is never part of the text.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from statistics import median
from typing import Any

from dragonrt.distributions import Step, codec, decode_distribution, encode_distribution
from dragonrt.errors import DragonError
from dragonrt.modes.dragon.drafts import SideDraft
from dragonrt.modes.dragon.planner import ForwardDrafts
from dragonrt.modes.mode import Span, Work
from dragonrt.modes.prefix import TokenPrefix, extended, start_hash
from dragonrt.modes.question import Question
from dragonrt.modes.settings import DragonSettings
from dragonrt.node.client_session import Answer
from dragonrt.sampling.aggregation import rule
from dragonrt.sampling.noise import Noise
from dragonrt.settings import assemble, entries, flat
from dragonrt.side import Side
from dragonrt.testing.scripted import SimulatedContext, SimulatedModel
from dragonrt.traces import events
from dragonrt.traces.events import Record


class RecordingError(DragonError):
    """Traces that hold no answer to replay; the line says what is missing."""


@dataclass(frozen=True, slots=True)
class Recording:
    """One answer: `drafts` of each side by prefix hash, the times on the device's clock.

    `accepted` is the share of the drafts of each side that became target tokens.
    """

    question: Question
    settings: DragonSettings
    vocabulary: int
    tokens: tuple[int, ...]
    decided_s: tuple[float, ...]
    accepted: dict[Side, float]
    drafts: dict[Side, dict[int, events.Drafted]]

    @property
    def seconds_per_token(self) -> float:
        """As recorded, between the first token and the last."""
        return (self.decided_s[-1] - self.decided_s[0]) / (len(self.decided_s) - 1)

    def under(self, changes: Mapping[str, Any]) -> "Recording":
        """The same answer with other settings, by name.

        Raises DragonError for settings that do not fit together.
        """
        settings = assemble(DragonSettings, {**flat(self.settings), **changes})
        return replace(self, settings=settings)

    def check(self, answer: Answer, standing_in: "dict[Side, set[int]]") -> None:
        """Raises RecordingError if a replayed text is another or rests on stand-ins."""
        hashes = TokenPrefix(start_hash(self.question.seed), self.tokens).hashes[:-1]
        for step, prefix_hash in enumerate(hashes):
            for side, missing in standing_in.items():
                if prefix_hash in missing:
                    raise RecordingError(
                        f"the {side}'s trace has no draft of step {step} for the recorded text: "
                        "was it killed, or is it of another run?"
                    )
        if tuple(answer.tokens) != self.tokens:
            raise RecordingError("the replay decided another text: are both traces of one run?")


class RecordedContext(SimulatedContext):
    """A model that says again what it said in a recording, and takes as long.

    What the recording does not have `model` says instead; `standing_in` collects the hashes of
    those prefixes.
    """

    def __init__(
        self, side: Side, recording: Recording, model: SimulatedModel, standing_in: set[int]
    ) -> None:
        self._drafts = recording.drafts[side]
        took = [draft.seconds for draft in self._drafts.values() if draft.seconds]
        self._usual_s = median(took or [0.0])
        super().__init__(model, lambda: self._usual_s, self._forward_s)
        self._side = side
        question, settings = recording.question, recording.settings
        self._rule = rule(settings.rule, Noise(question.seed), question.sampler)
        self._codec = codec(settings.codec, recording.vocabulary)
        self._standing_in = standing_in

    def _forward_s(self, hashes: list[int]) -> float:
        drafts = (self._drafts.get(prefix_hash) for prefix_hash in hashes)
        return sum(
            self._usual_s if draft is None or (draft.step and not draft.seconds) else draft.seconds
            for draft in drafts
        )

    def _value(self, work: Work) -> Any:
        """What the mode's head made of the distributions, which the recording has encoded."""
        return super()._value(work) if work.span is None else self._drafted(work.span, work.guess)

    def _drafted(self, span: Span, guess: Sequence[int]) -> ForwardDrafts:
        hashes = extended(span.hashes, guess)
        drafts: list[SideDraft] = []
        for step in range(span.first, len(hashes)):
            beyond = step - len(span.tokens)
            if beyond > 0 and drafts[-1].token != guess[beyond - 1]:
                break
            drafts.append(self._draft(step, hashes[step]))
        return ForwardDrafts(len(guess), drafts)

    def _draft(self, step: int, prefix_hash: int) -> SideDraft:
        recorded = self._drafts.get(prefix_hash)
        if recorded is None:
            self._standing_in.add(prefix_hash)
            said = self._model.said(step, prefix_hash)
            quantized = self._codec.quantize(self._rule.shape(said.p), Step(step))
            payload, relevance = encode_distribution(self._codec, quantized), said.relevance
        else:
            payload, relevance = recorded.payload, recorded.relevance
        distribution = decode_distribution(self._codec, payload, Step(step))
        token = self._rule.draft(self._side, step, distribution)
        return SideDraft(step, prefix_hash, token, payload, relevance, 0.0, distribution)


# Reading traces.


@dataclass(slots=True)
class _Answer:
    """One answer in one trace: `whole` if neither resumed nor ever without the other side."""

    opened: events.AnswerOpened
    whole: bool
    vocabulary: int | None = None
    times: list[float] = field(default_factory=list)
    decisions: list[events.TokenDecided] = field(default_factory=list)
    drafts: dict[int, events.Drafted] = field(default_factory=dict)

    @property
    def tokens(self) -> list[int]:
        return [decision.token for decision in self.decisions]

    def take(self, record: Record) -> None:
        match record.event:
            case events.SideReady(vocabulary=vocabulary):
                self.vocabulary = vocabulary
            case events.TokenDecided() as decision:
                self.times.append(record.t)
                self.decisions.append(decision)
            case events.Drafted() as draft:
                self.drafts[draft.prefix] = draft
            case events.WentAlone() | events.Rejoined():
                self.whole = False


def recordings(device: Iterable[Record], cloud: Iterable[Record]) -> list[Recording]:
    """The answers that both traces hold from beginning to end, in the device's order.

    Raises RecordingError if there is no such answer of at least two tokens.
    """
    on_cloud = _answers(cloud, "cloud")
    found = []
    for answer in _answers(device, "device"):
        if not answer.whole or len(answer.tokens) < 2:
            continue
        partner = next((other for other in on_cloud if _same(answer, other)), None)
        if partner is not None:
            on_cloud.remove(partner)
            found.append(_recording(answer, partner))
    if not found:
        raise RecordingError(
            "the traces have no answer in common that both sides gave together from its first "
            "token on, and not redacted: record both sides of one run with --trace"
        )
    return found


def _answers(records: Iterable[Record], side: Side) -> list[_Answer]:
    """The answers of mode dragon that both sides read; the others' drafts are not on record."""
    answers: list[_Answer] = []
    current: dict[tuple[str, int], _Answer] = {}
    for record in records:
        if record.side != side:
            raise RecordingError(f"the {side}'s trace was expected, this one is the other side's")
        key, event = (record.peer, record.session), record.event
        if isinstance(event, events.AnswerOpened):
            current.pop(key, None)
            # Where a cloud reads less than is decided, its drafts are for another text.
            if event.mode == "dragon" and event.settings.get("disclose") != "redacted":
                current[key] = _Answer(event, whole=event.accepted == 0)
                answers.append(current[key])
        elif key in current:
            current[key].take(record)
    return answers


def _same(device: _Answer, cloud: _Answer) -> bool:
    """Whether both are of one answer; the cloud may miss the last tokens."""
    return (
        device.opened.settings.get("seed") == cloud.opened.settings.get("seed")
        and cloud.whole
        and bool(cloud.tokens)
        and cloud.tokens == device.tokens[: len(cloud.tokens)]
    )


def _recording(device: _Answer, cloud: _Answer) -> Recording:
    if device.vocabulary is None or not cloud.drafts or not device.drafts:
        raise RecordingError("the traces hold no drafts: record the run again with this version")
    question: Question = _fields(Question, device.opened)
    settings: DragonSettings = _fields(DragonSettings, device.opened)
    compared = [each for each in device.decisions if each.cloud is not None]
    return Recording(
        replace(question, max_tokens=len(device.tokens)),
        settings,
        device.vocabulary,
        tuple(device.tokens),
        tuple(device.times),
        {"device": _share(compared, "device"), "cloud": _share(compared, "cloud")},
        {"device": device.drafts, "cloud": cloud.drafts},
    )


def _fields(cls: Any, opened: events.AnswerOpened) -> Any:
    """What was asked or how, as far as a trace says it."""
    names = [entry.name for entry in entries(cls) if entry.about.traced]
    for name in names:
        if name not in opened.settings:
            raise RecordingError(
                f"the device's trace does not say {name!r}: record the run again with this version"
            )
    return assemble(cls, {name: opened.settings[name] for name in names})


def _share(decisions: Sequence[events.TokenDecided], side: Side) -> float:
    known = [accepted for each in decisions if (accepted := each.accepted(side)) is not None]
    return sum(known) / len(known) if known else 0.0
