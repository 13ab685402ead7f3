"""One side decides, and chooses who decides the next step (DRAGON §5, SPEC 1.3).

With the greedy placement both sides send each other their decode profiles once, and with every
draft and target its delay and the times that measure the round trip. So both choose by the same
values. With any other placement, or a constant rate, none of that is sent.
"""

from collections.abc import Sequence

from msgspec.structs import replace
from typing_extensions import override

from dragonrt.control.profiler import DecodeProfile, Estimates, RoundTrip
from dragonrt.control.scheduler import Aggregator, latency_difference, next_aggregator
from dragonrt.modes.dragon.decision import Decided, Decision
from dragonrt.modes.dragon.drafts import Drafts, SideDraft
from dragonrt.modes.dragon.messages import Coefficients, Draft
from dragonrt.modes.dragon.plugs import Handlers, Machine, Plug
from dragonrt.modes.dragon.setup import DragonSetup
from dragonrt.modes.messages import Target
from dragonrt.side import Side, other
from dragonrt.traces.events import AggregatorSwitched, LatencyEstimated


class Placement(Plug):
    """One side's part."""

    def __init__(
        self, setup: DragonSetup, drafts: Drafts, decision: Decision, machine: Machine
    ) -> None:
        settings = setup.settings
        self._setup = setup
        self._drafts = drafts
        self._decision = decision
        self._estimates = Estimates()
        self._machine = machine
        self._placement = settings.placement
        self._times = self._placement is Aggregator.GREEDY and settings.cadence is None
        self._round_trip = RoundTrip()
        self._link: tuple[float, float | None] = 0.0, None
        self.handlers: Handlers = {Coefficients: self._receive}

    @override
    def on_prepared(self, context: int) -> None:
        profile = self._setup.resources.profile
        if profile is not None:
            self._estimates.profiled(self._setup.side, profile.behind(context))
        self._send_profile()

    @override
    def on_session(self, now: float) -> None:
        self._round_trip.begin(now)
        self._send_profile()

    @override
    def on_measured(self, rtt_s: float, bits_per_s: float | None) -> None:
        self._link = rtt_s, bits_per_s

    @override
    def on_draft(self, draft: SideDraft) -> None:
        self._estimates.decoded(self._setup.side, draft.step, draft.decode_s)

    @override
    def on_send(self, message: Draft, draft: SideDraft, now: float) -> Draft:
        if not self._times:
            return message
        time_us, echo_us = self._round_trip.stamp(now)
        decode_us = round(draft.decode_s * 1e6)
        return replace(message, decode_us=decode_us, time_us=time_us, echo_us=echo_us)

    @override
    def on_receive(self, message: Draft | Target, now: float) -> None:
        if not self._times:
            return
        self._round_trip.received(message.time_us, message.echo_us, now)
        if isinstance(message, Draft):
            theirs = other(self._setup.side)
            self._estimates.decoded(theirs, message.step, message.decode_us / 1e6)

    @override
    def on_decided(self, decided: Decided, new: Sequence[int], now: float) -> None:
        mixed, own, prefix = decided.mixed, decided.own, self._drafts.transcript.prefix
        if mixed is None or own is None:
            return
        if mixed.expected is not None:
            self._decision.compared(*mixed.expected, expected=True)
        lead = self._choose(own.step, 8 * len(own.payload))
        for each in new:
            token, times = prefix.tokens[each], (0, 0)
            if self._times:
                times = self._round_trip.stamp(now)
            session, prefix_hash = self._machine.session, prefix.hashes[each]
            self._machine.send(Target(session, each, prefix_hash, token, lead, *times))

    def _choose(self, step: int, bits: int) -> Side:
        """Return who decides the step after `step`; an own draft has so many bits.

        Until messages have measured the round trip, it is what probes say it takes them.
        """
        rtt_s, (probed_s, bits_per_s) = self._round_trip.seconds, self._link
        if rtt_s is None:
            rtt_s = probed_s + (bits / bits_per_s if bits_per_s else 0.0)
        estimate = self._estimates.for_scheduling(step, rtt_s, self._decision.acceptance)
        accepted, decoded = (
            (of["device"], of["cloud"]) for of in (estimate.acceptance, estimate.decode_s)
        )
        difference = latency_difference("device", estimate)
        self._machine.emit(LatencyEstimated(step + 1, difference, rtt_s, *accepted, *decoded))
        side, noise = self._setup.side, self._setup.noise
        chosen = next_aggregator(self._placement, step + 1, side, estimate, noise)
        if chosen != side:
            difference = latency_difference(side, estimate)
            self._machine.emit(AggregatorSwitched(step + 1, chosen, difference))
        self._machine.decides = chosen == side
        return chosen

    def _send_profile(self) -> None:
        profile = self._estimates.profile(self._setup.side) if self._times else None
        if profile is not None:
            values = profile.k_a, profile.k_b, profile.k_c
            self._machine.send(Coefficients(self._machine.session, *values))

    def _receive(self, message: Coefficients, now: float) -> None:
        if self._times:
            profile = DecodeProfile(message.k_a, message.k_b, message.k_c)
            self._estimates.profiled(other(self._setup.side), profile)
