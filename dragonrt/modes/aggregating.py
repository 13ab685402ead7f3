"""Who aggregates, where that is one side, and by what the next is chosen (DRAGON §5, SPEC 1.3).

With the greedy placement both sides tell each other their decode profiles once, and with every
draft and target what it took and the times that measure the round trip: so both choose by the same.
With any other placement, or a cadence, nothing of that is told.
"""

from dragonrt.control.profiler import DecodeProfile, Estimates
from dragonrt.control.round_trip import RoundTrip
from dragonrt.control.scheduler import Aggregator, latency_difference, next_aggregator
from dragonrt.modes.settings import DragonSettings
from dragonrt.sampling.aggregation import Algorithm1
from dragonrt.sampling.noise import Noise
from dragonrt.side import Side, other
from dragonrt.traces import events
from dragonrt.wire import messages as wire


class Aggregating:
    """One side's part; `profile` is its offline decode profile, over whole contexts.

    `side` is who aggregates, `rtt_s` and `bits_per_s` what the connection's probes say.
    """

    def __init__(
        self, own: Side, settings: DragonSettings, noise: Noise, profile: DecodeProfile | None
    ) -> None:
        self._own = own
        self._placement = settings.placement
        self._noise = noise
        self._offline = profile
        self.schedules = settings.placement is Aggregator.GREEDY
        """Whether who aggregates is chosen by what is expected of the two sides."""
        self.expects = settings.rule == Algorithm1.name and self.schedules
        """Whether acceptance is what Eq. 5 expects, not what happened."""
        self.estimates = Estimates(expects=self.expects)
        self.side: Side = settings.placement.first()
        self.rtt_s = 0.0
        self.bits_per_s: float | None = None
        self._times = self.schedules and settings.cadence is None
        self._round_trip = RoundTrip()

    def prepared(self, context: int) -> None:
        """This side has read so many tokens, of its documents and the prompt."""
        if self._offline is not None:
            self.estimates.profiled(self._own, self._offline.behind(context))

    def joined(self, now: float) -> None:
        """A session with the other side begins."""
        self.side = self._placement.first()
        self._round_trip.begin(now)

    def coefficients(self, session: int) -> wire.Coefficients | None:
        """What the other side is to know of this one before its drafts."""
        profile = self.estimates.profile(self._own) if self._times else None
        if profile is None:
            return None
        return wire.Coefficients(session, profile.k_a, profile.k_b, profile.k_c)

    def decode_us(self, seconds: float) -> int:
        """What is said of a draft that took so long."""
        return round(seconds * 1e6) if self._times else 0

    def stamp(self, now: float) -> tuple[int, int]:
        """The times of a message that leaves now."""
        return self._round_trip.stamp(now) if self._times else (0, 0)

    def heard(self, message: wire.Draft | wire.Target | wire.Coefficients, now: float) -> None:
        """Take in what the other side says of itself and of the way."""
        if not self._times:
            return
        theirs = other(self._own)
        if isinstance(message, wire.Coefficients):
            profile = DecodeProfile(message.k_a, message.k_b, message.k_c)
            self.estimates.profiled(theirs, profile)
            return
        self._round_trip.heard(message.time_us, message.echo_us, now)
        if isinstance(message, wire.Draft):
            self.estimates.decoded(theirs, message.step, message.decode_us / 1e6)

    def choose(self, step: int, bits: int) -> list[events.Event]:
        """Choose who decides the step after `step`; an own draft has so many bits.

        Until messages have measured the round trip, it is what probes say it takes them.
        """
        rtt_s = self._round_trip.seconds
        if rtt_s is None:
            rtt_s = self.rtt_s + (bits / self.bits_per_s if self.bits_per_s else 0.0)
        estimate = self.estimates.for_scheduling(step, rtt_s)
        decode_s, acceptance = estimate.decode_s, estimate.acceptance
        found: list[events.Event] = [
            events.LatencyEstimated(
                step + 1,
                latency_difference("device", estimate),
                rtt_s,
                acceptance["device"],
                acceptance["cloud"],
                decode_s["device"],
                decode_s["cloud"],
            )
        ]
        chosen = next_aggregator(self._placement, step + 1, self.side, estimate, self._noise)
        if chosen != self.side:
            difference = latency_difference(self._own, estimate)
            found.append(events.AggregatorSwitched(step + 1, chosen, difference))
        self.side = chosen
        return found
