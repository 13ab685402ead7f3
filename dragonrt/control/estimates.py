"""What one side of an answer expects: decoding delays, acceptance of both sides (SPEC 1.4)."""

from dragonrt.control.profiler import AcceptanceRate, DecodeDelay, DecodeProfile
from dragonrt.control.scheduler import Estimate
from dragonrt.side import Side, other


class Estimates:
    """Running estimates, fed by what is decoded and decided.

    Acceptance is a moving average of what happened, or with `expects` of what DRAGON Eq. 5 expects.
    Both sides have the same, as they tell each other their profiles and what their drafts took.
    """

    def __init__(self, *, expects: bool) -> None:
        self.expects = expects
        self._delays: dict[Side, DecodeDelay] = {"device": DecodeDelay(), "cloud": DecodeDelay()}
        self._acceptance: dict[Side, AcceptanceRate] = {
            "device": AcceptanceRate(),
            "cloud": AcceptanceRate(),
        }

    def profile(self, side: Side) -> DecodeProfile | None:
        """The line along which drafts of `side` are expected, if any is known."""
        return self._delays[side].profile

    def profiled(self, side: Side, profile: DecodeProfile) -> None:
        """What `side` knows of its drafts' delays, t being the step."""
        self._delays[side] = DecodeDelay(profile)

    def decoded(self, side: Side, step: int, decode_s: float) -> None:
        """A draft of `side` took `decode_s` seconds; 0 says that it needed no forward."""
        if decode_s > 0:
            self._delays[side].took(step, decode_s)

    def compared(self, side: Side, accepted: bool) -> None:
        """A draft of `side` became the target token, or did not."""
        if not self.expects:
            self._acceptance[side].update(float(accepted))

    def expected(self, device: float, cloud: float) -> None:
        """What Eq. 5 expects of the two sides' drafts of a step."""
        self._acceptance["device"].update(device)
        self._acceptance["cloud"].update(cloud)

    def trusts_other(self, side: Side) -> bool:
        """Whether the other side's draft is likelier to become the target than that of `side`."""
        return self._acceptance[other(side)].value > self._acceptance[side].value

    def for_scheduling(self, step: int, rtt_s: float) -> Estimate:
        """What the scheduler needs after a step."""
        return Estimate(
            decode_s={side: self._decode_s(side, step) for side in self._acceptance},
            acceptance={side: rate.value for side, rate in self._acceptance.items()},
            rtt_s=rtt_s,
        )

    def _decode_s(self, side: Side, step: int) -> float:
        """Of a side of which nothing is known, what the other one takes: that decides nothing."""
        profile = self.profile(side) or self.profile(other(side))
        return profile.predict(step + 1) if profile is not None else 0.0
