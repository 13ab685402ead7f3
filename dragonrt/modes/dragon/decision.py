"""Computes target tokens from both sides' drafts: at once if quick, else off the event loop."""

from collections.abc import Sequence
from dataclasses import dataclass, replace

from dragonrt.control.scheduler import SMOOTHING
from dragonrt.distributions import Step, mix
from dragonrt.distributions.byte_codecs import ByteCodec
from dragonrt.modes.dragon.drafts import LONGEST_ENTRY, Draft
from dragonrt.modes.dragon.settings import DragonSetup
from dragonrt.modes.mode import ModeError, Prediction, Work
from dragonrt.privacy.evidence import Mixed, SideDraft, evidence_bits
from dragonrt.privacy.guards import (
    DISCLOSED,
    Guard,
    Guards,
    Ruling,
    SteadyRelevance,
    Steering,
    Withholding,
)
from dragonrt.sampling.rules import Candidate, expected_acceptance_algorithm1, side_weights
from dragonrt.side import SIDES, Side
from dragonrt.traces.events import Cause, TokenDecided, TokenRanked

LIGHT_BYTES = 2048  # a payload of so many bytes lists so few tokens that it is mixed at once
MIXED_AT_ONCE = 2**18  # mixtures one input may lead to, times the vocabulary: others are a Work
REMEMBERED = 512  # targets of undecided steps that are kept, by prefix hash


@dataclass(frozen=True, slots=True)
class DecidedToken:
    """A token decided in mode dragon. `own` is this side's draft of its step, `theirs` the peer's.

    A draft or the mixture `mixed` is None if unknown. `ruling` says if the cloud gets the token.
    """

    step: int
    token: int
    own: SideDraft | None
    theirs: SideDraft | None = None
    mixed: Mixed | None = None
    ruling: Ruling = DISCLOSED

    def event(self, side: Side, cause: Cause, waited: float, share: float) -> TokenDecided:
        """Return the trace event of this token, decided on `side` by the input `cause`.

        `waited` is the seconds since the token before was decided. Without a mixture, `share` is
        the device's part in the token's probability.
        """
        token, mixed, carrier = self.token, self.mixed, None
        own = theirs = None  # whether each side drafted the token, if that is known
        if self.own is not None:
            own = self.own.token == token
            if own and self.own.rows is not None:
                carrier = self.own.rows.carrier(token)
        if self.theirs is not None and not self.ruling.withheld:
            theirs = self.theirs.token == token
        return TokenDecided(
            self.step,
            token,
            *((own, theirs) if side == "device" else (theirs, own)),
            cause,
            waited,
            share if mixed is None else mixed.share,
            carrier,
            None if mixed is None else evidence_bits(mixed.p, mixed.q),
            () if mixed is None else mixed.files,
            self.ruling.withheld,
            self.ruling.bits,
        )


def guards_of(setup: DragonSetup) -> Guards | None:
    """Return what checks each token before the cloud gets it (Guards); None if drafts are sent."""
    question, settings = setup.question, setup.settings
    if not setup.keeps_drafts:
        return None
    bound: Guard = Steering()
    if settings.redacts:
        bound = Withholding(settings.withhold, settings.reveal)
    bounds = question.relevance_temperature, question.most_documents, question.doubt
    return Guards(SteadyRelevance(*bounds, question.reweight_every), bound)


class Decision:
    """Computes the target token of each step of one answer from both sides' drafts."""

    def __init__(self, setup: DragonSetup) -> None:
        self._setup = setup
        self._on_device = setup.side == "device"
        self._expects = setup.expects_acceptance
        self._light: ByteCodec | None = None
        if isinstance(setup.codec, ByteCodec) and setup.codec.light:
            self._light = setup.codec
        self.most = max(1, MIXED_AT_ONCE // setup.codec.vocabulary)
        """Mixtures that one input may lead to; `left` are those that the newest may still."""
        self.left = self.most
        self._targets: dict[int, int] = {}
        self.acceptance: dict[Side, float] = {"device": 0.5, "cloud": 0.5}
        """Moving averages of how often each side's draft becomes the target."""

    def received(self, message: Draft) -> SideDraft:
        """Convert the peer's Draft to a SideDraft; decode its distribution only if that is quick.

        Otherwise `work` decodes it. Raises CodecError or, for a bad token or size, ModeError.
        """
        vocabulary, payload = self._setup.codec.vocabulary, message.payload
        if message.token >= vocabulary:
            raise ModeError(f"a draft's token {message.token} is outside the vocabulary")
        if len(payload) > LONGEST_ENTRY * vocabulary + LONGEST_ENTRY:
            raise ModeError(f"a draft of {len(payload)} bytes is longer than any codec makes it")
        quick = self._light is not None and len(payload) <= LIGHT_BYTES
        return SideDraft(
            message.step,
            message.prefix_hash,
            message.token,
            payload,
            message.relevance,
            message.decode_us / 1e6,
            self._light.decode(payload) if self._light is not None and quick else None,
            kept=message.kept,
        )

    def at_once(self, own: SideDraft, theirs: SideDraft) -> DecidedToken | None:
        """Mix a step's two drafts and decide its token; None if too slow for the event loop."""
        longest = max(len(own.payload), len(theirs.payload))
        if self._light is None or self.left <= 0 or longest > LIGHT_BYTES:
            return None
        self.left -= 1
        return self._mixed(own, theirs)

    def work(self, own: SideDraft, theirs: SideDraft, peer: str) -> Work:
        """Return the Work that decodes and mixes a step's two drafts, if `at_once` gave None.

        If the draft `theirs`, from `peer`, cannot be decoded, the session with the peer ends.
        """

        def postprocess(_: Sequence[Prediction]) -> DecidedToken:
            found = theirs
            if found.distribution is None:
                distribution = self._setup.codec.decode(found.payload, Step(found.step))
                found = replace(found, distribution=distribution)
            return self._mixed(own, found)

        return Work(postprocess, peer=peer)

    def target(self, own: SideDraft, theirs: SideDraft) -> int | None:
        """Return the token that an undecided step will get, to draft on; None if mixing is slow."""
        known = self._targets.get(own.prefix_hash)
        if known is not None:
            return known
        found = self.at_once(own, theirs)
        if found is None:
            return None
        if len(self._targets) >= REMEMBERED:
            self._targets.clear()
        self._targets[own.prefix_hash] = found.token
        return found.token

    def compared(
        self, device: float | None, cloud: float | None, *, expected: bool = False
    ) -> None:
        """Update each side's moving average in `acceptance` by its sample, None if unknown.

        A sample is 1 for an accepted and 0 for a rejected draft or, if `expected`, the probability
        of acceptance. Nothing changes if `expected` differs from `DragonSetup.expects_acceptance`.
        """
        rates = self.acceptance
        for side, sample in zip(SIDES, (device, cloud), strict=True):
            if sample is not None and expected is self._expects:
                rates[side] = (1 - SMOOTHING) * rates[side] + SMOOTHING * sample

    def _mixed(self, own: SideDraft, theirs: SideDraft) -> DecidedToken:
        """Mix two decoded drafts of a step. Pure: for postprocessing, too."""
        device, cloud = (own, theirs) if self._on_device else (theirs, own)
        p, q = device.distribution, cloud.distribution
        if p is None or q is None:
            raise ValueError("the drafts are not decoded yet")
        weights = side_weights(device.relevance + device.kept, cloud.relevance + cloud.kept)
        candidates = Candidate(device.token, p), Candidate(cloud.token, q)
        token, expected = self._setup.rule.target(own.step, *candidates, weights), None
        if self._expects:
            expected = (
                expected_acceptance_algorithm1(p, q, weights[0]),
                expected_acceptance_algorithm1(q, p, weights[1]),
            )
        p_token, q_token = p.probability(token), q.probability(token)
        of_device = weights[0] * p_token
        total = of_device + weights[1] * q_token
        files: tuple[float, ...] = ()
        if device.rows is not None:  # own drafts have rows
            files = device.rows.without_each(token, weights[0], q_token)
        if cloud.rows is not None:
            files = cloud.rows.without_each(token, weights[1], p_token)
        share = of_device / total if total > 0 else 0.5
        of_cloud = evidence_bits(total, p_token)
        mixed = Mixed(share, total, q_token, expected, files, of_cloud)
        return DecidedToken(own.step, token, own, theirs, mixed)


def ranked(
    count: int, token: int, own: SideDraft, theirs: SideDraft | None
) -> Sequence[TokenRanked]:
    """Return one trace event: probabilities of the decided `token` and the `count` likeliest ones.

    All are of the mixture or, without `theirs`, of `own`. Empty if a draft is not decoded yet.
    """
    drafts = [own] if theirs is None else [own, theirs]
    known = [each.distribution for each in drafts if each.distribution is not None]
    if len(known) < len(drafts):
        return ()
    target = known[0]
    if theirs is not None:
        target = mix(known, side_weights(own.relevance + own.kept, theirs.relevance + theirs.kept))
    order = (-target.probabilities).argsort(kind="stable")[:count]
    likeliest = tuple(target.ids[order].tolist()), tuple(target.probabilities[order].tolist())
    return (TokenRanked(own.step, token, target.probability(token), *likeliest),)
