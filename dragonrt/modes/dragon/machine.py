"""Distributed RAG (SPEC 1; DRAGON): both sides draft ahead and decide every token by their mixture.

Both sides run this state machine. It drafts up to the run-ahead bound without waiting for
decisions. After each input it looks up both drafts of the next undecided step, and mixes them. If
the target is not the drafted token, it cuts the drafted sequence and preempts the forward.

    the other side is   connected --left--> waiting or alone --joined--> connected
    a step is decided   by both sides alike (aggregator both), by the aggregator, whose Target
                        has the token and the next aggregator, or if alone, by the own draft
"""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from typing_extensions import override

from dragonrt.control.scheduler import Aggregator
from dragonrt.modes.dragon.decision import DecidedToken, Decision, guards_of, ranked
from dragonrt.modes.dragon.drafts import ADMITTED, Coefficients, Draft, Drafts
from dragonrt.modes.dragon.placement import Placement
from dragonrt.modes.dragon.planner import Planner
from dragonrt.modes.dragon.settings import DragonSetup
from dragonrt.modes.messages import Target
from dragonrt.modes.mode import Finish, ModeError, Prepared, Span, Work, finish_of
from dragonrt.modes.peering import Peered, Peering
from dragonrt.modes.prefix import LOW_BITS, start_hash
from dragonrt.modes.question import Question
from dragonrt.privacy.disclosure import MARKER
from dragonrt.privacy.evidence import SideDraft
from dragonrt.sampling.rules import side_weights
from dragonrt.side import Side
from dragonrt.traces import events
from dragonrt.wire import messages as wire
from dragonrt.wire.reasons import End, Reason

FINISHED = End(Reason.FINISHED, "")


class Dragon(Peered):
    """The Mode of either side in dragon: drafts ahead, decides tokens from both sides' drafts."""

    def __init__(self, setup: DragonSetup) -> None:
        question, settings = setup.question, setup.settings
        super().__init__()
        useless = "the other side sent nothing useful for"
        alone_as = f"from the {setup.side}'s documents"
        how = settings.on_loss, setup.resources.timeouts
        self._peering = Peering(self, *how, useless=useless, alone_as=alone_as)
        self.side: Side = setup.side
        self.decides = setup.decides_first
        self.times_bandwidth = settings.placement is Aggregator.GREEDY
        self._setup = setup
        self._vocabulary = setup.resources.vocabulary
        self._ranks = question.top_logprobs
        place = start_hash(question.seed), question.accepted
        self._drafts = Drafts(*place, settings.window, setup.marker)
        self._decision = Decision(setup)
        self._planner = Planner(setup, self._drafts, self._decision)
        self._guards = guards_of(setup)
        self._placement: Placement | None = None
        if settings.placement is not Aggregator.BOTH:
            self._placement = Placement(setup, self._drafts, self._decision)
        self._admitted = ADMITTED[self.side] if settings.keeps_drafts else None
        self._other_decided: tuple[int, int] | None = None
        self._reading: Work | None = None
        self._mixing: Work | None = None
        self._mixed_in = 0  # the session of its drafts
        self._decision_s = 0.0

    # What the driver asks.

    @property
    @override
    def decided(self) -> Sequence[int]:
        return self._drafts.prefix.tokens[: self._drafts.decided]

    @override
    def _measured(self, rtt_s: float, bits_per_s: float | None) -> None:
        if self._placement is not None:
            self._placement.measured(rtt_s, bits_per_s)

    @override
    def disclosed(self, question: Question) -> Question:
        transcript, marker = self._drafts.transcript, self._setup.marker
        if self._guards is None:
            return super().disclosed(question)
        if marker is None:
            return question.resumed(tuple(self.decided), MARKER)
        return question.redacted(MARKER, transcript.prefix.tokens[: transcript.length], marker)

    @property
    @override
    def idle(self) -> bool:
        return self._reading is None and self._mixing is None

    @property
    @override
    def owed(self) -> bool:
        """Whether a device has drafted the next step and waits, up to a timeout, for the cloud."""
        return self.side == "device" and self._drafts.own_draft(self._drafts.decided) is not None

    # The other side comes and goes.

    @override
    def _prepared(self, prepared: Prepared, now: float) -> None:
        self._planner.prepared(prepared)
        self._decision_s = now
        if self._placement is not None:
            self._placement.prepared(prepared.context)
            self._send_profile(self._placement)
        self._end(finish_of(self._setup.question, self.decided, self._drafts.decided))
        self._peering.begin(now)

    @override
    def _joined(self, peer: str, session: int, now: float) -> None:
        """Begin at the decided prefix; own undecided drafts are sent again."""
        drafts = self._drafts
        self._peering.joined(peer, session, now)
        drafts.theirs.clear()
        self._other_decided = None
        drafts.own.keep(drafts.prefix.hashes)
        self.decides = self._setup.decides_first
        if self._placement is not None:
            self._placement.joined(now)
            self._send_profile(self._placement)
        for step in range(drafts.decided, len(drafts.prefix) + 1):
            draft = drafts.own_draft(step)
            if draft is not None:
                self._send_draft(draft, now)

    @override
    def _left(self, peer: str, end: End, returns: bool, now: float) -> None:
        if self.side == "cloud":
            self._peering.peer = None
            self._end(Finish.CANCELLED)
        else:
            self._peering.lost(end, returns, now)

    @override
    def begin_alone(self, now: float) -> None:
        if self.side == "cloud":  # nobody reads what a cloud decides alone
            self._end(Finish.CANCELLED)
        else:
            self._drafts.theirs.clear()
            self.decides = True
            self.advance("own", now)

    # Their drafts.

    @override
    def _received(self, peer: str, message: wire.SessionMessage, now: float) -> None:
        self._decision.left = self._decision.most
        if self._admitted is not None and not isinstance(message, self._admitted):
            raise ModeError(f"a {type(message).__name__} has no place in this answer")
        match message:
            case Draft():
                self._receive_draft(message, now)
            case Target():
                self._receive_target(message, now)
            case wire.Working() | wire.Opened():
                self._peering.works(now)
            case Coefficients() if self._placement is not None:
                self._placement.profiled(message)
            case _:
                raise ModeError(f"a {type(message).__name__} has no place in this answer")

    def _receive_draft(self, message: Draft, now: float) -> None:
        step = message.step
        if step >= self._drafts.theirs.end:
            length = self._drafts.transcript.length
            raise ModeError(
                f"a draft of step {step} came while step {length} is undecided: "
                f"further ahead than the agreed {self._setup.settings.run_ahead}"
            )
        self._drafts.theirs.put(self._decision.received(message))
        self._other_decided = step - message.ahead, message.decided_hash
        self._compare_decided()
        if self._placement is not None:
            self._placement.received(message, now)
        self.advance("other", now)

    def _receive_target(self, message: Target, now: float) -> None:
        step, token, drafts = message.step, message.token, self._drafts
        if self.finish is not None:
            return
        if self.decides or step != drafts.decided:
            raise ModeError(f"a target token of step {step} came at step {drafts.decided}")
        if token >= self._vocabulary or message.prefix_hash != drafts.prefix.hashes[step]:
            raise ModeError(f"the target token of step {step} is for another text")
        own, theirs = drafts.own_draft(step), drafts.theirs.get(step, message.prefix_hash)
        found = self._decision.at_once(own, theirs) if own and theirs else None
        mixed = None if found is None else found.mixed
        if self._placement is not None:
            self._placement.received(message, now)
        self._commit(DecidedToken(step, token, own, theirs, mixed), "target", now)
        self.decides = message.aggregator == self.side
        self.advance("target", now)

    def _compare_decided(self) -> None:
        """Count a difference of the two sides' decided texts: it must not happen (SPEC 1.3)."""
        transcript = self._drafts.transcript
        length, low_bits = self._other_decided or (transcript.length + 1, 0)
        if length > transcript.length:
            return
        self._other_decided = None
        if transcript.prefix.hashes[length] & LOW_BITS == low_bits or self._peering.peer is None:
            return
        self.emit(events.TextsDiverged(length))
        if self.side == "device":  # its text stands: the cloud starts again from it, once
            end = End(Reason.PROTOCOL, "the two sides decided different texts")
            self._peering.begin_again(end)

    # Deciding.

    def advance(self, cause: events.Cause, now: float) -> None:
        """Decide the next steps while their drafts are known; the trace has `cause`, the input."""
        drafts = self._drafts
        while self.finish is None and self.ready and self.decides:
            step = drafts.decided
            own = drafts.own.get(step, drafts.prefix.hashes[step])
            if own is None:
                return
            if self._peering.alone:
                decided = DecidedToken(step, own.token, own)
            else:
                theirs = drafts.theirs.get(*drafts.transcript.place(step))
                if theirs is None or self._peering.peer is None:
                    return
                found = self._decision.at_once(own, theirs)
                if found is None:
                    return
                decided = found
            if not self._decide(decided, cause, now):
                return

    def _decide(self, decided: DecidedToken, cause: events.Cause, now: float) -> bool:
        """Decide the next step; False if this side is to decide it alone, with another token."""
        if self._guards is not None:
            if decided.own is None:
                raise ValueError("a device decides with its own draft")
            token, mixed = decided.token, decided.mixed
            ruling = self._guards.ruling(token, decided.own, decided.theirs, mixed)
            decided = replace(decided, ruling=ruling)
            if ruling.ends is not None:
                told = ruling.ends if ruling.ends.reason is Reason.PROTOCOL else FINISHED
                self._peering.dismiss(told, ruling.ends, now)
                if decided.mixed is not None:
                    return False
        new = self._commit(decided, cause, now)
        if self._placement is not None:
            handed = self._placement.decided(self._peering.session, decided, new, now)
            if handed is not None:
                lead, found, targets = handed
                self.emit(*found)
                self.decides = lead == self.side
                for target in targets:
                    self._peering.send(target)
        return True

    def _commit(self, decided: DecidedToken, cause: events.Cause, now: float) -> range:
        """Make the token the next decided one. Returns the steps that the transcript gains."""
        drafts, step, token, mixed = self._drafts, decided.step, decided.token, decided.mixed
        if self._ranks is not None and decided.own is not None:
            self.emit(*ranked(self._ranks, token, decided.own, decided.theirs))
        waited, self._decision_s = now - self._decision_s, now
        self._peering.progress_s = now
        self._peering.useful |= mixed is not None or cause == "target"
        share = 0.5 if not self._peering.alone else float(self.side == "device")
        event = decided.event(self.side, cause, waited, share)
        self._out.events.append(event)
        if not self._peering.alone:
            self._decision.compared(event.device, event.cloud)
        if self.evidence.weight is None and decided.own is not None and decided.theirs is not None:
            own, theirs = decided.own.relevance, decided.theirs.relevance
            self.evidence.weight = side_weights(own, theirs)[0]
        if mixed is not None:
            self.evidence.decide(step, mixed.files, mixed.cloud)
        elif decided.own is not None and decided.own.rows is not None:  # alone, or by a Target
            self.evidence.decide(step, decided.own.rows.without_each(token, 1.0, 0.0))
        tokens = drafts.prefix.tokens
        if len(tokens) == step or tokens[step] != token:
            self._continue_with(step, token)
        drafts.decided = step + 1
        drafts.own.decide(step)
        new = drafts.transcript.append(token, decided.ruling.withheld)
        for each in new:
            drafts.theirs.decide(each)
        if self._other_decided is not None:
            self._compare_decided()
        finish = finish_of(self._setup.question, tokens, drafts.decided)
        if finish is not None:
            self._end(finish)
        return new

    def _continue_with(self, step: int, token: int) -> None:
        """Bring the prefix to the decided token, and preempt a forward that reads another."""
        prefix = self._drafts.prefix
        if len(prefix) == step:
            prefix.append(token)
        else:
            self.emit(events.RolledBack(step, len(prefix) - step))
            prefix.replace_from(step, [token])
            reading = self._reading
            if reading is not None and reading.span and len(reading.span.tokens) > step:
                self.emit(events.ForwardPreempted(len(reading.span.tokens)))
                self._out.preempt = True

    # Own drafts.

    @override
    def wanted(self) -> Work | None:
        if not self.ready or self.finish is not None:
            return None
        peer = self._peering.peer  # None while this side is alone
        if self._mixing is None and peer is not None and self.decides:
            drafts = self._drafts
            own, theirs = drafts.own_draft(drafts.decided), drafts.their_draft(drafts.decided)
            if own is not None and theirs is not None:
                self._mixing = self._decision.work(own, theirs, peer)
                self._mixed_in = self._peering.session
                return self._mixing
        if self._reading is not None:
            return None
        self._reading = self._planner.wanted()
        return self._reading

    @override
    def _computed(self, work: Work, result: Any, seconds: float, now: float) -> None:
        self._decision.left = self._decision.most
        if work is self._mixing:
            self._mixing = None
            self._take_mixture(result, now)
        elif work.span is not None:
            self._reading = None
            self._take_drafts(work.span, result, seconds, now)

    def _take_mixture(self, found: DecidedToken, now: float) -> None:
        drafts = self._drafts
        if self.finish is not None or self._peering.peer is None or not self.decides:
            return
        if found.step != drafts.decided or self._mixed_in != self._peering.session:
            return  # decided meanwhile, or with a draft that another session gave
        if found.theirs is not None:
            drafts.theirs.put(found.theirs)
        self._decide(found, "other", now)
        self.advance("other", now)

    @override
    def _preempted(self, work: Work, seconds: float, now: float) -> None:
        if work is self._mixing:
            self._mixing = None
        else:
            self._reading = None
            step = work.span.first if work.span is not None else self._drafts.decided
            self.emit(events.ForwardStopped(step, seconds))

    def _take_drafts(self, span: Span, made: list[SideDraft], seconds: float, now: float) -> None:
        """Queue and send the drafts of a forward that the prefix still leads to."""
        self._peering.progress_s = now
        self.emit(events.ForwardDone(made[0].step, len(made), seconds))
        for draft in self._planner.computed(span, made, seconds):
            if self._placement is not None:
                self._placement.drafted(draft)
            self.emit(events.Drafted(draft.step))
            if draft.step >= self._drafts.decided:
                self._send_draft(draft, now)
        self.advance("own", now)

    def _send_draft(self, draft: SideDraft, now: float) -> None:
        if self._peering.peer is None or self._guards is not None:
            return
        decided = self._drafts.decided
        message = Draft(
            session=self._peering.session,
            step=draft.step,
            prefix_hash=draft.prefix_hash,
            token=draft.token,
            relevance=draft.relevance,
            decode_us=0,
            ahead=draft.step - decided,
            decided_hash=self._drafts.prefix.hashes[decided] & LOW_BITS,
            payload=draft.payload,
            kept=draft.kept or 0,  # the integer takes one byte
        )
        if self._placement is not None:
            message = self._placement.stamped(message, draft, now)
        self._peering.send(message)

    def _send_profile(self, placement: Placement) -> None:
        coefficients = placement.coefficients(self._peering.session)
        if coefficients is not None:
            self._peering.send(coefficients)
