"""Drafts of mode dragon, kept for each side and looked up by step and prefix hash (SPEC 1.3).

A draft of step `t` carries a 64-bit running hash of the tokens it was conditioned on. Nothing
else, no step number and no order of arrival, decides whether it may be aggregated.
"""

from dataclasses import dataclass, replace

from dragonrt.distributions import Codec, Distribution, Step, decode_distribution
from dragonrt.modes.evidence import FileShares, evidence_bits
from dragonrt.sampling.acceptance import expected_acceptance_algorithm1
from dragonrt.sampling.aggregation import Candidate, Rule, side_weights


@dataclass(frozen=True, slots=True)
class SideDraft:
    """One side's next-token guess for one prefix.

    `payload` is the encoded distribution as it travels, `distribution` the same, decoded: a side
    knows its own; the other side's is None while decoding it is left to a head. `relevance` is h̃,
    the log-sum-exp of the side's document relevances; `decode_s` the seconds the forward took;
    `document` the own row that carried the token, `files` what each own file gave.
    """

    step: int
    prefix_hash: int
    token: int
    payload: bytes
    relevance: float
    decode_s: float
    distribution: Distribution | None = None
    document: int | None = None
    files: FileShares | None = None


@dataclass(frozen=True, slots=True)
class Mixed:
    """A step as both sides decide it: the target, the device's share of its probability.

    `expected` are the acceptances of device and cloud by DRAGON Eq. 5, where they are wanted;
    `evidence` and `files` what a TokenDecided says of the token.
    """

    token: int
    share: float
    expected: tuple[float, float] | None
    evidence: float
    files: tuple[float, ...]


def decoded(code: Codec, draft: SideDraft) -> SideDraft:
    """The draft with its distribution; CodecError for a malformed payload."""
    distribution = decode_distribution(code, draft.payload, Step(draft.step))
    return replace(draft, distribution=distribution)


def mixed(
    by: Rule, step: int, device: SideDraft, cloud: SideDraft, *, expects: bool = False
) -> Mixed:
    """What two decoded drafts of a step, each after the decided prefix, come to."""
    p, q = device.distribution, cloud.distribution
    if p is None or q is None:
        raise ValueError("the drafts are not decoded yet")
    weights = side_weights(device.relevance, cloud.relevance)
    token = by.target(step, Candidate(device.token, p), Candidate(cloud.token, q), weights)
    q_token = q.probability(token)
    of_device = weights[0] * p.probability(token)
    total = of_device + weights[1] * q_token
    expected = None
    if expects:
        expected = (
            expected_acceptance_algorithm1(p, q, weights[0]),
            expected_acceptance_algorithm1(q, p, weights[1]),
        )
    return Mixed(
        token,
        of_device / total if total > 0 else 0.5,
        expected,
        evidence_bits(total, q_token),
        () if device.files is None else device.files.without_each(token, weights[0], q_token),
    )


LINES_PER_STEP = 4
"""Drafts kept per step. The newest are kept: once a side has drafted along the decided prefix it
never leaves it, so a valid draft cannot be pushed out by later ones of dead lines."""


class DraftQueue:
    """Bounded: at most `LINES_PER_STEP` drafts for each undecided step inside the window.

    The window begins at `decided`, the first undecided step, and moves on with every decision.
    """

    def __init__(self, window: int, decided: int = 0) -> None:
        self._window = window
        self._decided = decided
        self._drafts: dict[int, dict[int, SideDraft]] = {}

    def reaches(self, step: int) -> bool:
        """Whether a step lies in the window or before it; an honest side drafts no other."""
        return step < self._decided + self._window

    def put(self, draft: SideDraft) -> None:
        """Keep a draft of a step in the window; one that is already decided comes too late."""
        if draft.step < self._decided:
            return
        lines = self._drafts.setdefault(draft.step, {})
        lines.pop(draft.prefix_hash, None)
        lines[draft.prefix_hash] = draft
        if len(lines) > LINES_PER_STEP:
            del lines[next(iter(lines))]

    def get(self, step: int, prefix_hash: int) -> SideDraft | None:
        """The draft of `step` that is valid for the prefix with this hash, if it is here."""
        lines = self._drafts.get(step)
        return lines.get(prefix_hash) if lines else None

    def decide(self, step: int) -> None:
        """Drop everything up to and including `step`."""
        self._drafts.pop(step, None)
        self._decided = step + 1

    def clear(self) -> None:
        """Drop everything; the window stays where it is."""
        self._drafts.clear()

    def __len__(self) -> int:
        return sum(len(lines) for lines in self._drafts.values())
