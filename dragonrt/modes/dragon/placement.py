"""The choice of the side that decides the next step, unless both decide (DRAGON §5, SPEC 1.3).

Greedy placement compares both sides' delays. So each side sends its usual delay per draft once,
each Draft carries its own delay, and Drafts and Targets carry times that measure the round trip.
Other placements need no times, and none are sent with frames at a constant rate.
"""

from collections.abc import Sequence

from msgspec.structs import replace

from dragonrt.control.scheduler import (
    Aggregator,
    DecodeProfile,
    Estimates,
    RoundTrip,
    latency_difference,
    next_aggregator,
)
from dragonrt.modes.dragon.decision import DecidedToken, Decision
from dragonrt.modes.dragon.drafts import Coefficients, Draft, Drafts
from dragonrt.modes.dragon.settings import DragonSetup
from dragonrt.modes.messages import Target
from dragonrt.privacy.evidence import SideDraft
from dragonrt.side import Side, other
from dragonrt.traces.events import AggregatorSwitched, Event, LatencyEstimated


class Placement:
    """Chooses the side that decides the next step; greedy placement compares measured delays."""

    def __init__(self, setup: DragonSetup, drafts: Drafts, decision: Decision) -> None:
        settings = setup.settings
        self._setup = setup
        self._drafts = drafts
        self._decision = decision
        self._estimates = Estimates()
        self._placement = settings.placement
        self._times = self._placement is Aggregator.GREEDY and not settings.constant_rate[0]
        self._round_trip = RoundTrip()
        self._link: tuple[float, float | None] = 0.0, None

    def prepared(self, context: int) -> None:
        """Start estimating this side's delay per draft, if profiled, at `context` prompt tokens."""
        profile = self._setup.resources.profile
        if profile is not None:
            self._estimates.set_profile(self._setup.side, profile.after_context(context))

    def joined(self, now: float) -> None:
        self._round_trip.begin(now)

    def coefficients(self, session: int) -> Coefficients | None:
        """Return the message with this side's delay per draft; None if unknown or not needed."""
        profile = self._estimates.profile(self._setup.side) if self._times else None
        if profile is None:
            return None
        return Coefficients(session, profile.k_a, profile.k_b, profile.k_c)

    def measured(self, rtt_s: float, bits_per_s: float | None) -> None:
        """Set the connection's estimates: round trip in seconds, bandwidth in bit/s if known."""
        self._link = rtt_s, bits_per_s

    def drafted(self, draft: SideDraft) -> None:
        """Record how long this side's forward for `draft` took, for greedy placement to compare."""
        self._estimates.add_sample(self._setup.side, draft.step, draft.decode_s)

    def stamped(self, message: Draft, draft: SideDraft, now: float) -> Draft:
        """Return `message` with the delay of `draft` and sending times, for greedy placement."""
        if not self._times:
            return message
        time_us, echo_us = self._round_trip.stamp(now)
        decode_us = round(draft.decode_s * 1e6)
        return replace(message, decode_us=decode_us, time_us=time_us, echo_us=echo_us)

    def received(self, message: Draft | Target, now: float) -> None:
        """Record, for greedy placement, the peer's delay per draft and the round trip."""
        if not self._times:
            return
        self._round_trip.received(message.time_us, message.echo_us, now)
        if isinstance(message, Draft):
            theirs = other(self._setup.side)
            self._estimates.add_sample(theirs, message.step, message.decode_us / 1e6)

    def decided(
        self, session: int, decided: DecidedToken, new: Sequence[int], now: float
    ) -> tuple[Side, Sequence[Event], Sequence[Target]] | None:
        """Record a `decided` token and choose who decides next: (side, trace events, Targets).

        The Targets tell the peer the tokens at `new`, the steps of its text that it lacks. Returns
        None, without a choice, if this side decided alone, without a draft of the peer.
        """
        mixed, own, prefix = decided.mixed, decided.own, self._drafts.transcript.prefix
        if mixed is None or own is None:
            return None
        if mixed.expected is not None:
            self._decision.compared(*mixed.expected, expected=True)
        lead, events = self._choose(own.step, 8 * len(own.payload))
        targets = []
        for each in new:
            times = self._round_trip.stamp(now) if self._times else (0, 0)
            place = session, each, prefix.hashes[each], prefix.tokens[each]
            targets.append(Target(*place, lead, *times))
        return lead, events, targets

    def _choose(self, step: int, bits: int) -> tuple[Side, list[Event]]:
        """Return who decides after `step`, and events why; `bits` is the size of the own draft."""
        rtt_s, (probed_s, bits_per_s) = self._round_trip.seconds, self._link
        if rtt_s is None:
            rtt_s = probed_s + (bits / bits_per_s if bits_per_s else 0.0)
        estimate = self._estimates.for_scheduling(step, rtt_s, self._decision.acceptance)
        accepted, decoded = (
            (of["device"], of["cloud"]) for of in (estimate.acceptance, estimate.decode_s)
        )
        difference = latency_difference("device", estimate)
        events: list[Event] = [LatencyEstimated(step + 1, difference, rtt_s, *accepted, *decoded)]
        side, noise = self._setup.side, self._setup.noise
        chosen = next_aggregator(self._placement, step + 1, side, estimate, noise)
        if chosen != side:
            difference = latency_difference(side, estimate)
            events.append(AggregatorSwitched(step + 1, chosen, difference))
        return chosen, events

    def profiled(self, message: Coefficients) -> None:
        if self._times:
            profile = DecodeProfile(message.k_a, message.k_b, message.k_c)
            self._estimates.set_profile(other(self._setup.side), profile)
