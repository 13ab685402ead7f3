"""Distributed RAG (SPEC 1; DRAGON): both sides draft ahead and decide every token by their mixture.

Both sides run this same machine. It drafts along its line without waiting for decisions, up to the
run-ahead bound; everything that arrives may decide steps: look up both drafts of the next undecided
step, aggregate, and where the decision goes against the line cut it back and preempt the forward.

    the other side is   connected --left--> waiting or alone --joined--> connected
    a step is decided   by both sides alike (aggregator both), or by the aggregator, whose Target
                        carries the token and who aggregates next; alone, by the own draft

Where the device keeps its drafts (SPEC 1.10), it says Targets alone and takes Drafts alone.
"""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from dragonrt.control.profiler import DecodeProfile
from dragonrt.control.scheduler import Aggregator
from dragonrt.distributions import codec
from dragonrt.modes.aggregating import Aggregating
from dragonrt.modes.deciding import Deciding, Found, Missing, Mixed
from dragonrt.modes.disclosure import refuse_more
from dragonrt.modes.drafting import Drafts
from dragonrt.modes.drafts import DraftQueue, SideDraft
from dragonrt.modes.evidence import evidence_bits
from dragonrt.modes.guards import TOLD, Ruling, guards
from dragonrt.modes.missing import MissingEntries
from dragonrt.modes.mode import (
    Finish,
    Leave,
    ModeError,
    Prepared,
    Work,
)
from dragonrt.modes.peers import PeerTracking
from dragonrt.modes.prefix import LOW_BITS, TokenPrefix, start_hash
from dragonrt.modes.question import Question
from dragonrt.modes.ranking import observers
from dragonrt.modes.reading_ahead import ReadingAhead
from dragonrt.modes.settings import DragonSettings
from dragonrt.modes.told import MARKER, Redacted, Told, ToldToken
from dragonrt.sampling.aggregation import rule
from dragonrt.sampling.noise import Noise
from dragonrt.side import Side, other
from dragonrt.timeouts import USUAL, Timeouts
from dragonrt.traces import events
from dragonrt.wire import messages as wire
from dragonrt.wire.padding import in_cells
from dragonrt.wire.reasons import Reason

LONGEST_ENTRY = 8
"""Bytes that no codec needs for a token: so drafts fill the memory with no more."""
FRAME_BYTES = 40
"""What a draft takes of the link beside its payload."""


class Dragon(PeerTracking):
    """Implements Mode for either side. `profile` is the offline decode profile of this one."""

    verifies = False
    _useless = "the other side sent nothing useful for"

    def __init__(
        self,
        side: Side,
        question: Question,
        settings: DragonSettings,
        vocabulary: int,
        profile: DecodeProfile | None = None,
        timeouts: Timeouts = USUAL,
        marker: Sequence[int] = (),
    ) -> None:
        """`marker` is what a cloud reads for a run of tokens that its device withholds."""
        if side == "cloud" and settings.redacts:  # of a long run it hears nothing
            timeouts = replace(timeouts, answer_s=timeouts.idle_s)
        super().__init__(settings.on_loss, timeouts)
        self.side = side
        self._alone_as = f"from the {side}'s documents"
        self._question = question
        self._settings = settings
        self._vocabulary = vocabulary
        self._noise = Noise(question.seed)
        self._rule = rule(settings.rule, self._noise, question.sampler)
        self._codec = codec(settings.codec_for(question.sampler), vocabulary)
        self._line = TokenPrefix(start_hash(question.seed), question.accepted)
        self._decided = len(question.accepted)
        self._own = DraftQueue(settings.window, self._decided)
        self._marker = tuple(marker)
        self._told = Told(self._line, self._decided)
        if side == "device" and settings.redacts:
            self._told = Redacted(self._line, self._decided, self._marker)
        self._theirs = DraftQueue(settings.window, self._told.length)
        self._aggregating = Aggregating(side, settings, self._noise, profile)
        self._estimates = self._aggregating.estimates
        self._deciding = Deciding(side, self._rule, self._codec, self._aggregating.expects)
        self._missing = MissingEntries(self._codec, settings.run_ahead)
        self._ahead = ReadingAhead(
            side,
            question,
            settings,
            self._rule,
            self._codec,
            self._line,
            self._own,
            self._theirs,
            self._their_draft,
            self._deciding,
            self._missing,
            self._aggregating,
        )
        self._guards = guards(side, question, settings)
        self._observers = observers(question)
        # What is known of the other side.
        self._partner = ""
        self._other_decided: tuple[int, int] | None = None
        self._diverged = False
        # Under way, and since when.
        self._reading: Work | None = None
        self._mixing: Work | None = None
        self._decision_s = 0.0

    # What the driver asks.

    @property
    def decided(self) -> Sequence[int]:
        return self._line.tokens[: self._decided]

    @property
    def times_bandwidth(self) -> bool:
        sends = self.side == "cloud" or not self._settings.keeps_drafts
        branches = sends and self._ahead.branching.wants_rate(self._aggregating.rtt_s)
        return self._aggregating.schedules or branches

    def _measured(self, rtt_s: float, bits_per_s: float | None) -> None:
        self._aggregating.rtt_s, self._aggregating.bits_per_s = rtt_s, bits_per_s

    @property
    def _idle(self) -> bool:
        return self._reading is None and self._mixing is None

    @property
    def _owes(self) -> bool:
        """A device may take long to read the question: its cloud is more patient."""
        own = self._own.get(self._decided, self._line.hashes[self._decided])
        return self.side == "device" and own is not None

    # The other side comes and goes.

    def told(self, question: Question) -> Question:
        if not isinstance(self._told, Redacted):
            return super().told(question)
        return question.redacted(MARKER, self._told.tokens, self._marker)

    def _prepared(self, prepared: Prepared, now: float) -> None:
        self._ahead.prepared(prepared)
        self._decision_s = now
        self._aggregating.prepared(prepared.context)
        self._tell_coefficients()
        if self._codec.name != self._settings.codec and self.side == "device":
            self._notice(
                f"the codec {self._settings.codec} proves no winner with this sampler, rule and "
                f"level of disclosure: {self._codec.name} is used"
            )
        self._check_finished()
        self._prepare(now)

    def _joined(self, peer: str, session: int, now: float) -> None:
        """Work with the other side from the decided prefix on; own undecided drafts go there."""
        self._join(peer, session, now)
        self._partner = peer
        self._theirs.clear()
        self._missing.clear()
        self._other_decided = None
        self._own.keep(self._line.hashes)
        self._aggregating.joined(now)
        if self._ready:
            self._tell_coefficients()
        for step in range(self._decided, len(self._line) + 1):
            draft = self._own.get(step, self._line.hashes[step])
            if draft is not None:
                self._send_draft(draft, now)

    def _tell_coefficients(self) -> None:
        message = self._aggregating.coefficients(self._session)
        if message is not None and self._peer is not None:
            self._out.send.append((self._peer, message))

    def _left(self, peer: str, reason: str, returns: bool, now: float) -> None:
        if self.side == "cloud":
            self._peer = None
            self._end(Finish.CANCELLED)
        else:
            super()._left(peer, reason, returns, now)

    def _part(self, now: float) -> None:
        """The line stays: what is drafted along it may still be decided."""

    def _go_on_alone(self, now: float) -> None:
        if self.side == "cloud":  # nobody waits for what a cloud says alone
            self._end(Finish.CANCELLED)
        else:
            self._theirs.clear()
            self._advance("own", now)

    # What arrives.

    def _received(self, peer: str, message: wire.SessionMessage, now: float) -> None:
        self._deciding.begin()
        if self._settings.keeps_drafts:
            refuse_more(self.side, self._settings.disclose, message)
        match message:
            case wire.Draft():
                self._receive_draft(message, now)
            case wire.Target():
                self._receive_target(message, now)
            case wire.EntryRequest():
                self._out.send.append((peer, self._missing.answer(message, self._own)))
                for token in message.tokens:
                    self._disclose(message.step, token)
            case wire.EntryResponse():
                self._missing.take(message, self._theirs)
                self._advance("other", now)
            case wire.Coefficients():
                self._aggregating.heard(message, now)
            case wire.Working() | wire.Opened():
                self._greeted(now)
            case _:
                raise ModeError(f"a {type(message).__name__} has no place in an answer")

    def _receive_draft(self, message: wire.Draft, now: float) -> None:
        step, payload = message.step, message.payload
        if message.token >= self._vocabulary:
            raise ModeError(f"a draft's token {message.token} is outside the vocabulary")
        if len(payload) > LONGEST_ENTRY * self._vocabulary + LONGEST_ENTRY:
            raise ModeError(f"a draft of {len(payload)} bytes is longer than any codec makes it")
        if not self._theirs.reaches(step):
            raise ModeError(
                f"a draft of step {step} came while step {self._told.length} is undecided: "
                f"further ahead than the agreed {self._settings.run_ahead}"
            )
        draft = SideDraft(
            step,
            message.prefix_hash,
            message.token,
            payload,
            message.relevance,
            message.decode_us / 1e6,
            self._deciding.taken(step, payload),
        )
        self._theirs.put(draft)
        self._other_decided = (step - message.ahead, message.decided_hash)
        self._compare_decided()
        self._aggregating.heard(message, now)
        self._advance("other", now)

    def _receive_target(self, message: wire.Target, now: float) -> None:
        step, token = message.step, message.token
        if self._finish is not None:
            return
        if self._decides() or step != self._decided:
            raise ModeError(f"a target token of step {step} came at step {self._decided}")
        if token >= self._vocabulary or message.prefix_hash != self._line.hashes[step]:
            raise ModeError(f"the target token of step {step} is for another text")
        own = self._own.get(step, message.prefix_hash)
        theirs = self._theirs.get(step, message.prefix_hash)
        mixed = None
        if own is not None and theirs is not None and self._deciding.is_light(own, theirs):
            found = self._deciding.now(step, own, theirs)
            mixed = found if isinstance(found, Mixed) else None
        self._aggregating.heard(message, now)
        self._commit(token, own, theirs, "target", mixed, now)
        self._aggregating.side = message.aggregator
        self._advance("target", now)

    def _compare_decided(self) -> None:
        """Count a difference of the two sides' decided texts: it must not happen (SPEC 1.3)."""
        if self._other_decided is None or self._other_decided[0] > self._told.length:
            return
        length, low_bits = self._other_decided
        self._other_decided = None
        if self._told.prefix_hash(length) & LOW_BITS == low_bits or self._peer is None:
            return
        self._out.events.append(events.TextsDiverged(length))
        if self.side == "device":  # its text stands: the cloud starts again from it, once
            again, self._diverged = not self._diverged, True
            text = "the two sides decided different texts"
            self._out.leave.append(Leave(self._peer, Reason.ERROR, text, again=again))
            self._peer, self._waiting_since_s = None, self._progress_s
            if not again:
                self._leave_alone(f"{text} twice", self._progress_s)

    # Deciding.

    def _decides(self) -> bool:
        if self._alone or self._settings.placement is Aggregator.BOTH:
            return True
        return self._aggregating.side == self.side

    def _advance(self, cause: events.Cause, now: float) -> None:
        """Decide as many steps as both queues allow; `cause` is what arrived last."""
        while self._finish is None and self._ready and self._decides():
            step = self._decided
            own = self._own.get(step, self._line.hashes[step])
            if own is None:
                return
            if self._alone:
                ruling = TOLD if self._guards is None else self._guards.ruling(own.token, own)
                if ruling.ends:
                    self._part_for_good(ruling, now)
                self._commit(own.token, own, None, cause, None, now, ruling)
                continue
            theirs = self._their_draft(step)
            if theirs is None or self._peer is None or not self._deciding.is_light(own, theirs):
                return  # what is not light is mixed by a head
            if self._missing.awaits(step, own.prefix_hash):
                return
            found = self._deciding.now(step, own, theirs)
            if not self._decide(Found(found, own, theirs), cause, now):
                return

    def _their_draft(self, step: int) -> SideDraft | None:
        """The other side's draft of what follows the first `step` tokens of the line."""
        return self._theirs.get(*self._told.place(step))

    def _part_for_good(self, ruling: Ruling, now: float) -> None:
        """The cloud hears no more of this answer; of the reason only what is a fault of its own."""
        reason, text = (Reason.ERROR, ruling.ends) if ruling.fault else (Reason.FINISHED, "")
        self._out.leave.append(Leave(self._partner, reason, text))
        if self._alone:
            self._notice(ruling.ends)
        else:
            self._leave_alone(ruling.ends, now)

    def _decide(self, found: Found, cause: events.Cause, now: float) -> bool:
        """Decide the next step by what was found; False if that does not decide it."""
        step, result = self._decided, found.result
        if isinstance(result, Missing):
            self._ask_for(result)
            return False
        ruling = TOLD
        if self._guards is not None:
            ruling = self._guards.ruling(result.token, found.own, found.theirs, result)
        if ruling.ends:
            self._part_for_good(ruling, now)
            return False
        told = self._commit(result.token, found.own, found.theirs, cause, result, now, ruling)
        if self._settings.placement is not Aggregator.BOTH:
            self._hand_over(step, result, found.own, told, now, ruling)
        return True

    def _ask_for(self, missing: Missing) -> None:
        awaited = self._missing.awaits(missing.step, missing.prefix_hash)
        if self._peer is not None and not awaited:
            message = self._missing.ask(self._session, missing)
            self._out.send.append((self._peer, message))
            self._out.events.append(events.EntriesAsked(missing.step, len(message.tokens)))

    def _heavy_decision(self) -> Work | None:
        """The next step as a Work, where both drafts are at hand and mixing them takes long."""
        if self._mixing is not None or self._peer is None or not self._decides() or self._alone:
            return None
        step = self._decided
        own = self._own.get(step, self._line.hashes[step])
        theirs = self._their_draft(step)
        if own is None or theirs is None or self._deciding.is_light(own, theirs):
            return None
        if self._missing.awaits(step, own.prefix_hash):
            return None
        return Work(lambda said: self._deciding.in_head(step, own, theirs), peer=self._peer)

    def _commit(
        self,
        token: int,
        own: SideDraft | None,
        theirs: SideDraft | None,
        cause: events.Cause,
        mixed: Mixed | None,
        now: float,
        ruling: Ruling = TOLD,
    ) -> list[ToldToken]:
        """Make `token` the decided token of the next step and bring the line to it.

        Comes to what the other side is to hear of it.
        """
        step, line, out = self._decided, self._line, self._out
        for observe in self._observers:
            out.events += observe(step, token, own, theirs)
        if ruling.withheld:
            theirs = None
        waited, self._decision_s, self._progress_s = now - self._decision_s, now, now
        self._useful |= mixed is not None or cause == "target"
        accepted: dict[Side, bool | None] = {}
        for draft, side in ((own, self.side), (theirs, other(self.side))):
            accepted[side] = None if draft is None else draft.token == token
            if draft is not None and not self._alone:
                self._estimates.compared(side, draft.token == token)
        share = float(self.side == "device") if self._alone else 0.5
        if mixed is not None:
            self.moved.decide(step, mixed.files, mixed.cloud)
        elif own is not None and own.rows is not None:  # alone, or told the token and no more
            self.moved.decide(step, own.rows.without_each(token, 1.0, 0.0))
        out.events.append(
            events.TokenDecided(
                step,
                token,
                accepted["device"],
                accepted["cloud"],
                cause,
                waited,
                share if mixed is None else mixed.share,
                own.rows.carrier(token)
                if own is not None and own.rows is not None and own.token == token
                else None,
                None if mixed is None else evidence_bits(mixed.p, mixed.q),
                () if mixed is None else mixed.files,
                ruling.withheld,
                ruling.bits,
            )
        )
        if len(line) == step:
            line.append(token)
        elif line.tokens[step] != token:
            out.events.append(events.RolledBack(step, len(line) - step))
            line.replace_from(step, [token])
            reading = self._reading
            span = reading.span if reading is not None else None
            if reading is not None and span is not None and len(span.tokens) > step:
                hashes = [branch.hashes[step + 1 : step + 2] for branch in reading.branches]
                if [line.hash] not in hashes:  # no branch comes true
                    out.events.append(events.ForwardPreempted(len(span.tokens)))
                    out.preempt = True
        if own is not None:
            self._missing.decided(own, theirs)
            self._ahead.branching.decided(own.rank(token))
        self._decided = step + 1
        self._own.decide(step)
        told = self._told.tell(token, withheld=ruling.withheld)
        for each in told:
            self._theirs.decide(each.step)
        self._compare_decided()
        self._check_finished()
        return told

    def _hand_over(
        self,
        step: int,
        mixed: Mixed,
        own: SideDraft,
        told: Sequence[ToldToken],
        now: float,
        ruling: Ruling,
    ) -> None:
        """Tell the other side what was decided and who decides next."""
        if mixed.expected is not None:
            self._estimates.expected(*mixed.expected)
        self._out.events += self._aggregating.choose(step, 8 * len(own.payload))
        if self._peer is None:
            return
        for each in told:
            target = wire.Target(
                self._session,
                each.step,
                each.prefix_hash,
                each.token,
                self._aggregating.side,
                *self._aggregating.stamp(now),
            )
            self._out.send.append((self._peer, target))
        if told and not ruling.withheld:  # a marker is no token of the answer
            self._disclose(step, mixed.token)

    def _check_finished(self) -> None:
        if self._finish is not None or self._decided == 0:
            return
        if self._line.tokens[self._decided - 1] in self._question.stop_tokens:
            self._end(Finish.STOP)
        elif self._decided >= self._question.max_tokens:
            self._end(Finish.LENGTH)

    # Drafting.

    def wanted(self) -> Work | None:
        if not self._ready or self._finish is not None:
            return None
        heavy = self._heavy_decision()
        if heavy is not None:
            self._mixing = heavy
            return heavy
        if self._reading is not None:
            return None
        self._reading = self._ahead.wanted(self._decided, self._peer is not None)
        return self._reading

    def _computed(self, work: Work, result: Any, seconds: float, now: float) -> None:
        self._deciding.begin()
        if work is self._mixing:
            self._mixing = None
            wanted = self._finish is None and self._peer is not None and self._decides()
            if wanted and result.own.step == self._decided:  # one prefix of that length is decided
                self._theirs.put(result.theirs)
                self._decide(result, "other", now)
                self._advance("other", now)
        elif work.span is not None:
            self._reading = None
            self._take(work, work.span.first, result, seconds, now)

    def _preempted(self, work: Work, seconds: float, now: float) -> None:
        if work is self._mixing:
            self._mixing = None
        else:
            self._reading = None
            step = work.span.first if work.span is not None else self._decided
            self._out.events.append(events.ForwardStopped(step, seconds))

    def _take(self, work: Work, first: int, result: Drafts, seconds: float, now: float) -> None:
        """Queue and send own drafts, as far as the line is alive that they were computed for."""
        self._progress_s = now
        count, beside = len(result.drafts), len(work.branches)
        self._out.events.append(events.ForwardDone(first, count, seconds, beside))
        for draft in self._ahead.took(work, result, seconds, self._decided):
            self._out.events.append(
                events.Drafted(
                    draft.step, draft.prefix_hash, draft.decode_s, draft.relevance, draft.payload
                )
            )
            if draft.step >= self._decided:
                self._send_draft(draft, now)
        self._advance("own", now)

    def _send_draft(self, draft: SideDraft, now: float) -> None:
        if self._peer is None or (self.side == "device" and self._settings.keeps_drafts):
            return
        time_us, echo_us = self._aggregating.stamp(now)
        message = wire.Draft(
            session=self._session,
            step=draft.step,
            prefix_hash=draft.prefix_hash,
            token=draft.token,
            relevance=draft.relevance,
            decode_us=self._aggregating.decode_us(draft.decode_s),
            ahead=draft.step - self._decided,
            decided_hash=self._line.hashes[self._decided] & LOW_BITS,
            payload=draft.payload,
            time_us=time_us,
            echo_us=echo_us,
        )
        self._out.send.append((self._peer, message))
        size = FRAME_BYTES + len(draft.payload)
        padded = self._settings.pads and self._settings.cadence is None
        self._ahead.branching.sent(len(in_cells(bytes(size))) if padded else size)
        self._disclose(draft.step, draft.token, distribution=True)

    def _disclose(self, step: int, token: int, *, distribution: bool = False) -> None:
        """Note what left the device."""
        if self.side == "device":
            self._out.events.append(events.Disclosed(step, token, distribution))
