"""One side of one generation: draft ahead, meet the other side's drafts, decide (SPEC 1.3).

Both sides run this same program. `run` is the decoder: it drafts along the line without waiting
for decisions, up to the run-ahead bound. Everything else is synchronous and happens the moment a
message arrives: look up both drafts of the next undecided step, aggregate, and where the decision
goes against the line cut it back and preempt the forward.
"""

import asyncio
from collections.abc import Callable
from functools import partial

from dragonrt.distributions.codec import codec
from dragonrt.errors import DragonError
from dragonrt.runtime.counts import Counts
from dragonrt.runtime.draft import Draft, Line, start_hash
from dragonrt.runtime.drafter import Drafter, Prediction, PreemptedError
from dragonrt.runtime.estimates import Estimates
from dragonrt.runtime.lookahead import Lookahead
from dragonrt.runtime.other_side import OtherSide
from dragonrt.runtime.outcome import Decision, Finish
from dragonrt.runtime.plan import PATIENCE_S, Plan
from dragonrt.runtime.profiler import DecodeProfile
from dragonrt.runtime.queues import DraftQueue
from dragonrt.runtime.scheduler import (
    Placement,
    latency_difference,
    next_aggregator,
)
from dragonrt.runtime.trace import Trace
from dragonrt.sampling.aggregation import side_weights
from dragonrt.sampling.noise import Noise
from dragonrt.side import Side, other

LOW_BITS = 0xFFFFFFFF
"""The part of the decided text's hash that rides on every draft."""


class GenerationError(DragonError):
    """The other side sent what this generation cannot use: its session ends, nothing else."""


class Generation:
    """See the module. `on_decision` is called for every target token, in order.

    `accepted` are tokens that were decided before, by a session that this one resumes.
    """

    def __init__(
        self,
        side: Side,
        plan: Plan,
        drafter: Drafter,
        trace: Trace,
        on_decision: Callable[[Decision], None] | None = None,
        *,
        vocabulary: int,
        session: int = 0,
        accepted: tuple[int, ...] = (),
        profile: DecodeProfile | None = None,
        patience_s: float = PATIENCE_S,
    ) -> None:
        self.side = side
        self.plan = plan
        self.line = Line(start_hash(plan.seed), accepted)
        self.decided = len(accepted)
        self.finish: Finish | None = None
        self.counts = Counts()
        self.session = session
        self._drafter = drafter
        self._trace = trace
        self._on_decision = on_decision
        self._rule = plan.aggregation_rule()
        self._noise = Noise(plan.seed)
        self._codec = codec(plan.codec, vocabulary)
        self._vocabulary = vocabulary
        self._patience_s = patience_s
        self._draining: asyncio.Timeout | None = None
        self._own = DraftQueue(plan.window, self.decided)
        self._theirs = DraftQueue(plan.window, self.decided)
        self._other: OtherSide | None = None
        self._alone = False
        self._aggregator = plan.placement.first()
        self._estimates = Estimates(side, plan.rule, plan.placement, profile)
        trusts_other = partial(self._estimates.trusts_other, side)
        self._lookahead = Lookahead(
            plan, self.line, self._own, self._theirs, self._target, trusts_other
        )
        self._other_decided: tuple[int, int] | None = None
        self._predicting: int | None = None
        self._wake = asyncio.Event()
        self._loop = asyncio.get_running_loop()
        self._last_decision_s = self._progress_s = self._loop.time()
        self._check_finished()

    # The other side comes and goes.

    def connect(self, other_side: OtherSide) -> None:
        """Work with the other side from the decided prefix on; own undecided drafts go there."""
        self._other = other_side
        self._alone = False
        self._progress_s = self._loop.time()
        self._theirs.clear()
        self._other_decided = None
        self._aggregator = self.plan.placement.first()
        for step in range(self.decided, len(self.line) + 1):
            draft = self._own.get(step, self.line.hashes[step])
            if draft is not None:
                self._send_draft(draft)
        self._wake.set()

    def disconnect(self) -> None:
        """The connection is gone for now; go on drafting, decide nothing until it is back."""
        self._other = None

    def go_alone(self) -> None:
        """Answer from the own documents alone, from the next undecided step on."""
        self._other = None
        if self.finish is None and not self._alone:
            self._alone = True
            self._theirs.clear()  # a draft that cannot be read may have led here
            if self.counts.alone_from is None:
                self.counts.alone_from = self.decided
            self._trace.event(self.session, "alone", step=self.decided)
            self._advance("own")
            self._wake.set()

    def stop(self, reason: Finish = Finish.CANCELLED) -> None:
        """End the generation now."""
        if self.finish is None:
            self.finish = reason
            self._drafter.preempt()
            self._wake.set()
            if self._draining is not None and not self._draining.expired():
                self._draining.reschedule(self._loop.time())

    # What arrives.

    def receive_draft(self, draft: Draft, decided: int, decided_hash: int) -> None:
        """Take in a draft of the other side, its decided length and the low 32 bits of its hash."""
        if draft.token >= self._vocabulary:
            raise GenerationError(f"a draft's token {draft.token} is outside the vocabulary")
        if not self._theirs.put(draft):
            raise GenerationError(
                f"a draft of step {draft.step} came while step {self.decided} is undecided: "
                f"further ahead than the agreed {self.plan.run_ahead}"
            )
        self._other_decided = (decided, decided_hash)
        self._compare_decided()
        self._estimates.decoded(other(self.side), draft.step, draft.decode_s)
        self._advance("other")
        if self._lookahead.follows:
            self._wake.set()

    def receive_target(self, step: int, prefix_hash: int, token: int, aggregator: Side) -> None:
        """Take in a decision of the other side, and whom it made the next aggregator."""
        if self.finish is not None:
            return
        if self._decides() or step != self.decided:
            raise GenerationError(f"a target token of step {step} came at step {self.decided}")
        if token >= self._vocabulary or prefix_hash != self.line.hashes[step]:
            raise GenerationError(f"the target token of step {step} is for another text")
        own = self._own.get(step, prefix_hash)
        theirs = self._theirs.get(step, prefix_hash)
        self._commit(token, own, theirs, "target")
        self._aggregator = aggregator
        self._advance("target")

    # Deciding.

    def _decides(self) -> bool:
        if self._alone or self.plan.placement is Placement.BOTH:
            return True
        return self._aggregator == self.side

    def _advance(self, cause: str) -> None:
        """Decide as many steps as both queues allow; `cause` is what arrived last."""
        while self.finish is None and self._decides():
            step = self.decided
            prefix_hash = self.line.hashes[step]
            own = self._own.get(step, prefix_hash)
            if own is None:
                return
            if self._alone:
                self._commit(own.token, own, None, cause)
                continue
            theirs = self._theirs.get(step, prefix_hash)
            if theirs is None or self._other is None:
                return
            theirs = theirs.decoded(self._codec)
            token = self._target(step, own, theirs)
            self._commit(token, own, theirs, cause)
            if self.plan.placement is not Placement.BOTH:
                self._hand_over(step, prefix_hash, token, own, theirs)

    def _ordered(self, own: Draft, theirs: Draft) -> tuple[Draft, Draft]:
        """(device's, cloud's): rules and weights never depend on who computes them."""
        return (own, theirs) if self.side == "device" else (theirs, own)

    def _target(self, step: int, own: Draft, theirs: Draft) -> int:
        device, cloud = self._ordered(own, theirs.decoded(self._codec))
        weights = side_weights(device.relevance, cloud.relevance)
        return self._rule.target(step, device.candidate, cloud.candidate, weights)

    def _commit(self, token: int, own: Draft | None, theirs: Draft | None, cause: str) -> None:
        """Make `token` the decided token of the next step and bring the line to it."""
        step = self.decided
        now = self._loop.time()
        waited = now - self._last_decision_s
        self._last_decision_s = self._progress_s = now
        self.counts.waited_s[cause] = self.counts.waited_s.get(cause, 0.0) + waited
        accepted = self._count(token, own, theirs)
        self._trace.event(
            self.session,
            "decide",
            step=step,
            token=token,
            cause=cause,
            waited=round(waited, 6),
            **accepted,
        )
        line = self.line
        if len(line) == step:
            line.append(token)
        elif line.tokens[step] != token:
            dropped = len(line) - step
            line.replace_from(step, [token])
            self.counts.rollbacks += 1
            self._trace.event(self.session, "rollback", step=step, dropped=dropped)
            if self._predicting is not None and self._predicting > step:
                self._trace.event(self.session, "preempt", step=self._predicting)
                self._drafter.preempt()
        self.decided = step + 1
        self._own.decide(step)
        self._theirs.decide(step)
        self._compare_decided()
        if self._on_decision is not None:
            share, document = self._attribute(token, own, theirs)
            self._on_decision(Decision(step, token, now, share, document))
        self._check_finished()
        self._wake.set()

    def _count(self, token: int, own: Draft | None, theirs: Draft | None) -> dict[str, bool | None]:
        """Update acceptance counts and rates; the trace's fields by side."""
        counts = self.counts
        accepted: dict[str, bool | None] = {}
        for draft, side in ((own, self.side), (theirs, other(self.side))):
            accepted[side] = None if draft is None else draft.token == token
            if draft is not None and not self._alone:
                self._estimates.compared(side, draft.token == token)
        if own is not None and theirs is not None:
            counts.own_compared += 1
            counts.own_accepted += own.token == token
            counts.other_compared += 1
            counts.other_accepted += theirs.token == token
        return accepted

    def _attribute(
        self, token: int, own: Draft | None, theirs: Draft | None
    ) -> tuple[float, int | None]:
        """The device's share of the token's probability, and the own row that carried it."""
        document = own.document if own is not None and own.token == token else None
        if own is None or theirs is None:
            return (1.0 if self.side == "device" else 0.0), document
        device, cloud = self._ordered(own, theirs.decoded(self._codec))
        weights = side_weights(device.relevance, cloud.relevance)
        of_device = weights[0] * device.candidate.distribution.probability(token)
        of_cloud = weights[1] * cloud.candidate.distribution.probability(token)
        total = of_device + of_cloud
        return (of_device / total if total > 0 else 0.5), document

    def _hand_over(
        self, step: int, prefix_hash: int, token: int, own: Draft, theirs: Draft
    ) -> None:
        """Tell the other side what was decided and who decides next."""
        placement = self.plan.placement
        device, cloud = self._ordered(own, theirs)
        size = len(own.payload)
        rtt_s = self._other.round_trip_s(size) if self._other is not None else 0.0
        estimate = self._estimates.for_scheduling(device, cloud, rtt_s)
        self._trace.event(
            self.session,
            "estimate",
            step=step + 1,
            difference=round(latency_difference("device", estimate), 6),
            rtt=round(rtt_s, 6),
            device=round(estimate.acceptance["device"], 4),
            cloud=round(estimate.acceptance["cloud"], 4),
        )
        chosen = next_aggregator(placement, step + 1, self._aggregator, estimate, self._noise)
        if chosen != self._aggregator:
            self.counts.switches += 1
            difference = latency_difference(self.side, estimate)
            self._trace.event(
                self.session, "switch", step=step + 1, to=chosen, difference=difference
            )
        self._aggregator = chosen
        if self._other is not None:
            self._other.send_target(step, prefix_hash, token, chosen)

    def _compare_decided(self) -> None:
        """Count a difference of the two sides' decided texts: it must not happen (SPEC 1.3)."""
        if self._other_decided is None or self._other_decided[0] > self.decided:
            return
        length, low_bits = self._other_decided
        self._other_decided = None
        if self.line.hashes[length] & LOW_BITS != low_bits and self._other is not None:
            self.counts.divergences += 1
            self._trace.event(self.session, "diverge", step=length)
            self._other.diverged()

    def _check_finished(self) -> None:
        if self.finish is not None or self.decided == 0:
            return
        if self.line.tokens[self.decided - 1] in self.plan.stop_tokens:
            self.finish = Finish.STOP
        elif self.decided >= self.plan.max_tokens:
            self.finish = Finish.LENGTH
        if self.finish is not None:
            self._drafter.preempt()

    # Drafting.

    async def run(self) -> Finish:
        """Draft until the answer is decided, and return why it ended.

        Raises GenerationError if the other side keeps its connection but sends nothing that helps,
        or takes nothing in, for `patience_s` seconds: drafts that lead to no decision are no reason
        to wait longer.
        """
        while self.finish is None:
            self._lookahead.extend(self.decided)
            span = self._lookahead.unpredicted(self.decided)
            if span is None:
                await self._wait()
                continue
            first, last = span
            requested = self.line.hashes[last]
            self._predicting = last
            start_s = self._loop.time()
            try:
                predictions = await self._drafter.predict(self.line, first, last)
            except PreemptedError:
                self.counts.preempted += 1
                seconds = round(self._loop.time() - start_s, 6)
                self._trace.event(self.session, "stopped", step=first, seconds=seconds)
                continue
            finally:
                self._predicting = None
            self.counts.forwards += 1
            seconds = round(sum(prediction.decode_s for prediction in predictions), 6)
            self._trace.event(
                self.session, "decode", step=first, tokens=len(predictions), seconds=seconds
            )
            self._take(predictions, first, last, requested)
            await self._drain()
        return self.finish

    def _take(self, predictions: list[Prediction], first: int, last: int, requested: int) -> None:
        """Queue and send own drafts, as far as the line is alive that they were computed for."""
        self._progress_s = self._loop.time()
        line = self.line
        if len(line) < last or line.hashes[last] != requested:
            return
        for step, prediction in enumerate(predictions, start=first):
            if step > last:
                before = predictions[step - 1 - first].token
                if not self._lookahead.step_to(step, before, self.decided):
                    break
            draft = Draft(
                step=step,
                prefix_hash=line.hashes[step],
                token=prediction.token,
                payload=prediction.payload,
                relevance=prediction.relevance,
                decode_s=prediction.decode_s,
                distribution=prediction.distribution,
                document=prediction.document,
            )
            self._trace.event(self.session, "draft", **draft.traced())
            self._estimates.decoded(self.side, step, prediction.decode_s)
            if step >= self.decided:
                self._own.put(draft)
                self._send_draft(draft)
        self._advance("own")

    def _send_draft(self, draft: Draft) -> None:
        if self._other is not None:
            low_bits = self.line.hashes[self.decided] & LOW_BITS
            self._other.send_draft(draft, self.decided, low_bits)

    async def _drain(self) -> None:
        if self._other is None:
            return
        try:
            async with asyncio.timeout(self._patience_s) as self._draining:
                await self._other.drain()
        except TimeoutError:
            if self.finish is None:
                raise GenerationError(
                    f"the other side took nothing in for {self._patience_s:g} s"
                ) from None
        finally:
            self._draining = None

    async def _wait(self) -> None:
        self._wake.clear()
        try:
            async with asyncio.timeout_at(self._progress_s + self._patience_s):
                await self._wake.wait()
        except TimeoutError:
            raise GenerationError(
                f"the other side sent nothing useful for {self._patience_s:g} s"
            ) from None
