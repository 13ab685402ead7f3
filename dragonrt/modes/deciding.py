"""What two drafts of a step come to: on the spot where that is quick, in a head where it is not.

With a codec that says all, any two drafts of a step decide it. The race codec says what may win:
then a step is decided as soon as the winner is proved, and until then entries are missing.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dragonrt.distributions import Codec, Distribution, Step, decode_distribution
from dragonrt.distributions.race_codec import OwnRace, RaceEntries
from dragonrt.modes.drafts import SideDraft
from dragonrt.modes.evidence import evidence_bits
from dragonrt.sampling.aggregation import (
    Candidate,
    Coupled,
    Rule,
    expected_acceptance_algorithm1,
    side_weights,
)
from dragonrt.side import Side

Listing = Callable[[int, NDArray[np.floating[Any]]], Step]
"""What the codec is to know of a step and the distribution there."""

LIGHT_BYTES = 2048
"""A payload of so many bytes lists so few tokens that it is mixed on the spot."""
MIXED_AT_ONCE = 2**18
"""Mixtures on the spot that one input may lead to, times the vocabulary: a head has the others."""
REMEMBERED = 512
"""Targets of undecided steps that need not be found again when a line comes by again."""
RACED_AT_ONCE = 32
"""The same of races, in which the vocabulary does not count."""


@dataclass(frozen=True, slots=True)
class Mixed:
    """A step as both sides decide it: the target, the device's share of its probability.

    `p` and `q` are the target's probability of the token, and the cloud's, as far as they are
    known. `expected` are the acceptances of device and cloud by DRAGON Eq. 5, where they are
    wanted; `files` the evidence of each of the own files, `cloud` that of all of the cloud's.
    """

    token: int
    share: float
    p: float
    q: float
    expected: tuple[float, float] | None
    files: tuple[float, ...]
    cloud: float


@dataclass(frozen=True, slots=True)
class Missing:
    """The tokens whose probabilities on the other side would tell, the likeliest first."""

    step: int
    prefix_hash: int
    tokens: Sequence[int]


@dataclass(frozen=True, slots=True)
class Found:
    """What a head found of a step, and the drafts that it decoded."""

    result: Mixed | Missing
    own: SideDraft
    theirs: SideDraft


def decoded(code: Codec, draft: SideDraft) -> SideDraft:
    """The draft with its distribution; CodecError for a malformed payload."""
    if draft.distribution is not None:
        return draft
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
    expected = None
    if expects:
        expected = (
            expected_acceptance_algorithm1(p, q, weights[0]),
            expected_acceptance_algorithm1(q, p, weights[1]),
        )
    return _told(token, device, cloud, weights, expected)


def _told(
    token: int,
    device: SideDraft,
    cloud: SideDraft,
    weights: tuple[float, float],
    expected: tuple[float, float] | None = None,
) -> Mixed:
    """The decided token with what is told of it; of a race's token parts of it may be guesses."""
    p_token, q_token = (
        0.0 if draft.distribution is None else draft.distribution.probability(token)
        for draft in (device, cloud)
    )
    of_device = weights[0] * p_token
    total = of_device + weights[1] * q_token
    files: tuple[float, ...] = ()
    for draft, weight, others in (
        (device, weights[0], q_token),
        (cloud, weights[1], p_token),
    ):
        if draft.rows is not None:  # those of the own draft
            files = draft.rows.without_each(token, weight, others)
    return Mixed(
        token,
        of_device / total if total > 0 else 0.5,
        total,
        q_token,
        expected,
        files,
        evidence_bits(total, p_token),
    )


class Deciding:
    """Mixes the drafts of one answer, on its `side`; `expects` wants expected acceptances, too."""

    def __init__(self, side: Side, by: Rule, code: Codec, expects: bool) -> None:
        self._side = side
        self._rule = by
        self._codec = code
        self._expects = expects
        most = RACED_AT_ONCE if not code.complete else MIXED_AT_ONCE // code.vocabulary
        self._most = max(1, most)
        self._done = 0
        self._targets: dict[int, int] = {}  # of guesses, by prefix hash

    def begin(self) -> None:
        """A new input has come."""
        self._done = 0

    def listing(self, tau: float) -> Listing:
        """What is listed with this threshold, where the codec lists. Pure: for heads."""
        by = self._rule
        if self._codec.complete or not isinstance(by, Coupled):
            return lambda step, p: Step(step)
        return lambda step, p: by.listing(step, p, tau)

    def taken(self, step: int, payload: bytes) -> Distribution | None:
        """What a payload says, where decoding it is quick. Raises CodecError."""
        quick = self._codec.light and len(payload) <= LIGHT_BYTES
        return decode_distribution(self._codec, payload, Step(step)) if quick else None

    def is_light(self, own: SideDraft, theirs: SideDraft) -> bool:
        """Whether `now` may be asked: it would not keep the event loop."""
        if not self._codec.light or self._done >= self._most:
            return False
        return max(len(own.payload), len(theirs.payload)) <= LIGHT_BYTES

    def now(self, step: int, own: SideDraft, theirs: SideDraft) -> Mixed | Missing:
        """What two decoded drafts of a step come to."""
        self._done += 1
        return self._result(step, own, theirs)

    def in_head(self, step: int, own: SideDraft, theirs: SideDraft) -> Found:
        """The same of drafts that need not be decoded. Pure. Raises CodecError."""
        known = decoded(self._codec, theirs)
        return Found(self._result(step, own, known), own, known)

    def light_target(self, step: int, own: SideDraft, theirs: SideDraft) -> int | None:
        """The target of a step, where finding it is quick and it can be known."""
        if own.prefix_hash in self._targets:
            return self._targets[own.prefix_hash]
        if not self.is_light(own, theirs):
            return None
        found = self.now(step, own, theirs)
        if not isinstance(found, Mixed):
            return None
        if len(self._targets) >= REMEMBERED:
            self._targets.clear()
        self._targets[own.prefix_hash] = found.token
        return found.token

    def _result(self, step: int, own: SideDraft, theirs: SideDraft) -> Mixed | Missing:
        device, cloud = (own, theirs) if self._side == "device" else (theirs, own)
        mine, other = own.distribution, theirs.distribution
        if not (isinstance(mine, OwnRace) and isinstance(other, RaceEntries)):
            return mixed(self._rule, step, device, cloud, expects=self._expects)
        if not isinstance(self._rule, Coupled):
            raise ValueError("only coupled noise can be raced with")
        weights = side_weights(device.relevance, cloud.relevance)
        ours = weights if self._side == "device" else (weights[1], weights[0])
        proof = self._rule.certified(step, mine, other, ours)
        if proof.winner is None:
            return Missing(step, own.prefix_hash, proof.missing.tolist())
        return _told(proof.winner, device, cloud, weights)
