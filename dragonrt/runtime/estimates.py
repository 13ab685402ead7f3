"""What one side of a generation expects: decoding delays, acceptance of both sides (SPEC 1.4)."""

from dragonrt.runtime.draft import Draft
from dragonrt.runtime.profiler import AcceptanceRate, DecodeProfile
from dragonrt.runtime.scheduler import Estimate, Placement
from dragonrt.sampling.acceptance import expected_acceptance_algorithm1
from dragonrt.sampling.aggregation import Algorithm1, side_weights
from dragonrt.side import Side, other


class Estimates:
    """Running estimates, fed by what is decoded and decided.

    Acceptance is a moving average of what happened, or for the scheduler of Algorithm 1 of what
    DRAGON Eq. 5 expects. `profile` is the offline profile of `side`.
    """

    def __init__(
        self, side: Side, rule: str, placement: Placement, profile: DecodeProfile | None
    ) -> None:
        self._expects = rule == Algorithm1.name and placement is Placement.GREEDY
        self._profiles: dict[Side, DecodeProfile] = {} if profile is None else {side: profile}
        self._acceptance: dict[Side, AcceptanceRate] = {
            "device": AcceptanceRate(),
            "cloud": AcceptanceRate(),
        }

    def decoded(self, side: Side, step: int, decode_s: float) -> None:
        """A draft of `side` took `decode_s` seconds."""
        profile = self._profiles.get(side)
        if profile is None:
            self._profiles[side] = DecodeProfile.flat(decode_s)
        else:
            profile.update(step + 1, decode_s)

    def compared(self, side: Side, accepted: bool) -> None:
        """A draft of `side` became the target token, or did not."""
        if not self._expects:
            self._acceptance[side].update(float(accepted))

    def trusts_other(self, side: Side) -> bool:
        """Whether the other side's draft is likelier to become the target than that of `side`."""
        return self._acceptance[other(side)].value > self._acceptance[side].value

    def for_scheduling(self, device: Draft, cloud: Draft, rtt_s: float) -> Estimate:
        """What the scheduler needs after a step with these decoded drafts."""
        if self._expects:
            weights = side_weights(device.relevance, cloud.relevance)
            p, q = device.candidate.distribution, cloud.candidate.distribution
            self._acceptance["device"].update(expected_acceptance_algorithm1(p, q, weights[0]))
            self._acceptance["cloud"].update(expected_acceptance_algorithm1(q, p, weights[1]))
        return Estimate(
            decode_s={
                "device": self._decode_s("device", device),
                "cloud": self._decode_s("cloud", cloud),
            },
            acceptance={side: rate.value for side, rate in self._acceptance.items()},
            rtt_s=rtt_s,
        )

    def _decode_s(self, side: Side, draft: Draft) -> float:
        profile = self._profiles.get(side)
        return profile.predict(draft.step + 1) if profile is not None else draft.decode_s
