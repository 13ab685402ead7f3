"""Answers of real models, replayed in virtual time over other links and schedulers.

Both sides' traces hold every draft with its distribution. The text of an answer depends on neither
the network nor the scheduler (SPEC section 0), so what the models said along it is all on record.
Drafts of lines that died in the replay only may not be: a stand-in takes their place, which costs
time like any other draft and is never part of the text.
"""

import binascii
from base64 import b64decode
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from statistics import median
from typing import Any

import numpy as np

from dragonrt.distributions import Step, codec, decode_distribution
from dragonrt.errors import DragonError
from dragonrt.runtime.draft import Line, start_hash
from dragonrt.runtime.drafter import Prediction, quantize
from dragonrt.runtime.modes.dragon import Answer
from dragonrt.runtime.plan import Plan, placement_of
from dragonrt.runtime.scheduler import Placement
from dragonrt.sampling.samplers import Sampler
from dragonrt.side import Side
from dragonrt.simulation.drafter import TimedDrafter


class RecordingError(DragonError):
    """Traces that hold no answer to replay; the line says what is missing."""


@dataclass(frozen=True, slots=True)
class RecordedDraft:
    """What one side's model said after one prefix, and the seconds it took."""

    payload: bytes
    relevance: float
    decode_s: float


@dataclass(frozen=True, slots=True)
class Recording:
    """One answer: `drafts` of each side by prefix hash, the times on the device's clock."""

    plan: Plan
    vocabulary: int
    tokens: tuple[int, ...]
    decided_s: tuple[float, ...]
    accepted: dict[Side, float]
    """The share of the drafts of each side that became target tokens."""
    drafts: dict[Side, dict[int, RecordedDraft]]

    @property
    def seconds_per_token(self) -> float:
        """As recorded, between the first token and the last."""
        return (self.decided_s[-1] - self.decided_s[0]) / (len(self.decided_s) - 1)

    def under(
        self, placement: Placement | None, run_ahead: int | None, follow: bool | None
    ) -> "Recording":
        """The same answer with another scheduler; None leaves a setting as it was.

        Raises DragonError for a scheduler that the rule does not allow.
        """
        plan = replace(
            self.plan,
            placement=self.plan.placement if placement is None else placement,
            run_ahead=self.plan.run_ahead if run_ahead is None else run_ahead,
            follow=self.plan.follow if follow is None else follow,
        )
        plan.check()
        return replace(self, plan=plan)

    def check(self, answer: Answer, standing_in: "dict[Side, set[int]]") -> None:
        """Raises RecordingError if a replayed text is another or rests on stand-ins."""
        hashes = Line(start_hash(self.plan.seed), self.tokens).hashes[:-1]
        for step, prefix_hash in enumerate(hashes):
            for side, missing in standing_in.items():
                if prefix_hash in missing:
                    raise RecordingError(
                        f"the {side}'s trace has no draft of step {step} for the recorded text: "
                        "was it killed, or is it of another run?"
                    )
        if tuple(answer.tokens) != self.tokens:
            raise RecordingError("the replay decided another text: are both traces of one run?")


class RecordedDrafter(TimedDrafter):
    """A model that says again what it said in a recording, and takes as long.

    `standing_in` collects the hashes of prefixes that the recording does not have.
    """

    def __init__(self, side: Side, plan: Plan, recording: Recording, standing_in: set[int]) -> None:
        self._drafts = recording.drafts[side]
        self._usual_s = median(draft.decode_s for draft in self._drafts.values())
        super().__init__(lambda: self._usual_s)
        self._side = side
        self._rule = plan.aggregation_rule()
        self._codec = codec(plan.codec, recording.vocabulary)
        self._vocabulary = recording.vocabulary
        self._standing_in = standing_in

    def _forward_s(self, hashes: list[int]) -> float:
        drafts = (self._drafts.get(prefix_hash) for prefix_hash in hashes)
        return sum(self._usual_s if draft is None else draft.decode_s for draft in drafts)

    def _predict(self, step: int, prefix_hash: int, decode_s: float) -> Prediction:
        draft = self._drafts.get(prefix_hash)
        if draft is None:
            self._standing_in.add(prefix_hash)
            p = np.zeros(self._vocabulary)
            p[prefix_hash % self._vocabulary] = 1.0
            token, distribution, payload = quantize(p, self._side, step, self._rule, self._codec)
            return Prediction(token, distribution, payload, 0.0, 0, decode_s)
        distribution = decode_distribution(self._codec, draft.payload, Step(step))
        token = self._rule.draft(self._side, step, distribution)
        return Prediction(token, distribution, draft.payload, draft.relevance, 0, decode_s)


# Reading traces.


@dataclass(slots=True)
class _Answer:
    """One answer in one trace."""

    opened: dict[str, Any]
    vocabulary: int | None = None
    decisions: list[dict[str, Any]] = field(default_factory=list)
    drafts: dict[int, RecordedDraft] = field(default_factory=dict)
    whole: bool = True
    """Neither resumed, nor without the other side for a while."""

    @property
    def tokens(self) -> list[int]:
        return [decision["token"] for decision in self.decisions]


def recordings(
    device: Iterable[dict[str, Any]], cloud: Iterable[dict[str, Any]]
) -> list[Recording]:
    """The answers that both traces hold from beginning to end, in the device's order.

    The events are as `trace_summary.read_events` returns them. Raises RecordingError if there is
    no such answer of at least two tokens.
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
            "token on: record both sides of one run with --trace"
        )
    return found


def _answers(events: Iterable[dict[str, Any]], side: Side) -> list[_Answer]:
    answers: list[_Answer] = []
    current: dict[tuple[Any, int], _Answer] = {}
    for event in events:
        if event["side"] != side:
            raise RecordingError(f"the {side}'s trace was expected, this one is the other side's")
        key = (event.get("peer"), event["session"])
        if event["event"] == "open":
            current[key] = _Answer(event, whole=event["accepted"] == 0)
            answers.append(current[key])
        elif key in current:
            _take(current[key], event)
    return answers


def _take(answer: _Answer, event: dict[str, Any]) -> None:
    try:
        match event["event"]:
            case "ready":
                answer.vocabulary = int(event["vocabulary"])
            case "decide":
                answer.decisions.append(event)
            case "draft":
                answer.drafts[int(event["prefix"], 16)] = RecordedDraft(
                    b64decode(event["payload"], validate=True),
                    float(event["relevance"]),
                    float(event["seconds"]),
                )
            case "alone" | "resume":
                answer.whole = False
    except (KeyError, TypeError, ValueError, binascii.Error):
        raise RecordingError(
            f"a {event['event']} event lacks what a replay needs: "
            "record the run again with this version"
        ) from None


def _same(device: _Answer, cloud: _Answer) -> bool:
    """Whether both are of one answer; the cloud may miss the last tokens."""
    return (
        device.opened.get("seed") == cloud.opened.get("seed")
        and cloud.whole
        and bool(cloud.tokens)
        and cloud.tokens == device.tokens[: len(cloud.tokens)]
    )


def _recording(device: _Answer, cloud: _Answer) -> Recording:
    opened = device.opened
    try:
        plan = Plan(
            seed=opened["seed"],
            sampler=Sampler(
                opened["temperature"], opened["top_k"], opened["top_p"], opened["min_p"]
            ),
            rule=opened["rule"],
            placement=placement_of(opened["aggregator"]),
            codec=opened["codec"],
            max_tokens=len(device.tokens),
            run_ahead=opened["run_ahead"],
            follow=opened["follow"],
        )
        compared = [each for each in device.decisions if each["cloud"] is not None]
        accepted: dict[Side, float] = {
            side: _share([each[side] for each in compared]) for side in ("device", "cloud")
        }
    except KeyError as error:
        raise RecordingError(
            f"the device's trace does not say {error}: record the run again with this version"
        ) from None
    plan.check()
    if device.vocabulary is None or not cloud.drafts or not device.drafts:
        raise RecordingError("the traces hold no drafts: record the run again with this version")
    return Recording(
        plan,
        device.vocabulary,
        tuple(device.tokens),
        tuple(decision["t"] for decision in device.decisions),
        accepted,
        {"device": device.drafts, "cloud": cloud.drafts},
    )


def _share(accepted: Sequence[bool | None]) -> float:
    known = [each for each in accepted if each is not None]
    return sum(known) / len(known) if known else 0.0
