"""Federated inference (SPEC 3; SPECFED): a coordinator drafts, several workers verify together.

    drafting --block complete--> asking --block out--> gathering --uploads in--> deciding, and again

Every worker uploads its distributions for all positions of a block, truncated to the top K. The
target is the mixture of the decoded uploads, and it is sampled exactly. A worker that is lost or
misses a round's deadline does not count in that round; the others' weights are renormalised.
"""

from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

from typing_extensions import override

from dragonrt.distributions import Distribution, Step, codec, encode_block
from dragonrt.errors import DragonError
from dragonrt.modes.blocks import rule_and_codec
from dragonrt.modes.federated.settings import FederatedResources, FederatedSettings
from dragonrt.modes.federated.workers import (
    UploadError,
    Worker,
    attendance_notices,
    deadline_s,
    longest_upload,
    mixture,
    round_weights,
)
from dragonrt.modes.messages import Block, Upload
from dragonrt.modes.mode import (
    Finish,
    Leave,
    Mode,
    ModeError,
    Prediction,
    Prepared,
    Span,
    Work,
    finish_of,
)
from dragonrt.modes.prefix import LOW_BITS, TokenPrefix, start_hash
from dragonrt.modes.question import Question
from dragonrt.sampling.rules import VerifyResult
from dragonrt.traces import events
from dragonrt.traces.events import NoticeKind
from dragonrt.wire import messages as wire
from dragonrt.wire.fields import MAX_BLOCK
from dragonrt.wire.reasons import End, Reason


class FederationError(DragonError):
    """Too few workers are left to continue; `losses` maps names of missing workers to reasons."""

    def __init__(self, losses: Mapping[str, End]) -> None:
        lost = "; ".join(f"{name}: {end}" for name, end in losses.items())
        super().__init__(f"too few workers are left: {lost}")
        self.losses = losses


class Coordinator(Mode):
    """The device's Mode in federated: drafts blocks, and verifies them by the workers' mixture."""

    def __init__(
        self, question: Question, settings: FederatedSettings, resources: FederatedResources
    ) -> None:
        super().__init__()
        self._question = question
        self._settings = settings
        self._timeouts = resources.timeouts
        self._rule, self._codec = rule_and_codec(question, settings, resources)
        self._longest = longest_upload(self._codec)
        self._ids = codec("ids", resources.vocabulary)
        self._prefix = TokenPrefix(start_hash(question.seed), question.accepted)
        self._decided = len(question.accepted)
        self._q: list[Distribution] = []
        self._workers = {name: Worker(name, weight) for name, weight in resources.members.items()}
        self._absent: set[str] = set()  # of whose absence the person knows
        # The round: its number, its workers (None before any is asked), since when and how long.
        self._round = 0
        self._asked: list[Worker] | None = None
        self._since_s: float | None = None
        self._limit_s = self._give_up_s = 0.0
        self._reading: Work | None = None
        self._judging: Work | None = None
        self._judged = False  # whether that is under way
        self._draft_s = 0.0

    # What the driver asks.

    @property
    @override
    def decided(self) -> Sequence[int]:
        return self._prefix.tokens[: self._decided]

    @override
    def deadline(self) -> float | None:
        waits = self._since_s is not None and self._judging is None and self.finish is None
        return self._due_s if waits else None

    @property
    def _due_s(self) -> float:
        """The end of the round. Beyond its deadline it waits for the first upload, or for all."""
        patient = self._asked is None or self._settings.require_all or not self._uploaded()
        return self._give_up_s if patient else self._limit_s

    def _uploaded(self) -> list[Worker]:
        """The workers whose upload of this round is there: one of an earlier round is too late."""
        number, found = self._round, []
        for worker in self._asked or ():
            if worker.received is not None and worker.received.round == number:
                found.append(worker)
        return found

    # Workers come and go.

    @override
    def _prepared(self, prepared: Prepared, now: float) -> None:
        self.ready = True
        self._end(finish_of(self._question, self._prefix.tokens, self._decided))
        self._turn(now)

    @override
    def _joined(self, peer: str, session: int, now: float) -> None:
        worker = self._workers[peer]
        worker.gone()
        worker.session, worker.known, worker.refused = session, self._decided, False
        self._turn(now)

    @override
    def _left(self, peer: str, end: End, returns: bool, now: float) -> None:
        self._workers[peer].lost(end, returns=returns)
        self._turn(now)

    @override
    def _timed_out(self, now: float) -> None:
        self._turn(now)

    # Drafting.

    @property
    def _complete(self) -> bool:
        """Whether the block is to be verified as it is: the token that follows it fits, too."""
        tokens, room = self._prefix.tokens, self._question.max_tokens - self._decided - 1
        drafted = len(tokens) - self._decided
        if drafted >= min(self._settings.block_tokens, room):
            return True
        return drafted > 0 and tokens[-1] in self._question.stop_tokens

    @override
    def wanted(self) -> Work | None:
        if self.finish is not None:
            return None
        if self._judging is not None and not self._judged:
            self._judged = True
            return self._judging
        if not self.ready or self._complete or self._reading is not None:
            return None
        step = len(self._prefix)
        self._reading = Work(partial(self._draft, step), Span.of(self._prefix, step, step))
        return self._reading

    def _draft(self, step: int, predictions: Sequence[Prediction]) -> tuple[Distribution, int]:
        q = self._ids.quantize(self._rule.shape(predictions[0].p), Step(step)).distribution
        return q, self._rule.draft(step, q)

    @override
    def _computed(self, work: Work, result: Any, seconds: float, now: float) -> None:
        if work is self._reading:
            self._reading = None
            self._draft_s += seconds
            self.emit(events.ForwardDone(len(self._prefix), 1, seconds))
            q, token = result
            self._q.append(q)
            self._prefix.append(token)
        elif work is self._judging:
            self._judging = None
            if isinstance(result, UploadError):
                self._refuse(result)
            elif self.finish is None:
                verdict, weights, verify_s = result
                self._decide(verdict, weights, verify_s, now)
        self._turn(now)

    @override
    def _preempted(self, work: Work, seconds: float, now: float) -> None:
        if work is self._reading:
            self._reading = None
            self.emit(events.ForwardStopped(len(self._prefix), seconds))

    # A round: ask, gather, decide.

    def _turn(self, now: float) -> None:
        """Go as far as what is there allows."""
        while self.ready and self.finish is None and self._judging is None and self._complete:
            if self._since_s is None:
                self._since_s, self._give_up_s = now, now + self._timeouts.answer_s
            if self._asked is None and not self._ask(now):
                return
            received = self._uploaded()
            asked = [worker.asked for worker in self._asked or ()]
            if self._round in asked and now < self._due_s:
                return
            needed = len(self._workers) if self._settings.require_all else 1
            if len(received) >= needed:
                self._judge(received)
                return
            self._asked = None

    def _ask(self, now: float) -> bool:
        """Send the block to every worker that can take one; False while there is none."""
        everyone = self._workers.values()
        enough = any if self._settings.require_all else all
        if enough(worker.refused for worker in everyone):
            return self._fail()
        asked = self._to_ask()
        if not asked:
            lost = [each for each in everyone if not each.here and each.name not in self._absent]
            self._absent |= {each.name for each in lost}
            for each in lost:
                text = f"waiting for {each.name} at token {self._decided}: {each.loss}"
                self._notice(NoticeKind.WAITING, text, each.loss.reason)
            return self._fail() if now >= self._give_up_s else False
        self._round += 1
        drafted = self._prefix.tokens[self._decided :]
        payload = encode_block(self._ids, drafted, [])
        size = len(drafted), 8 * len(payload)
        self.emit(events.BlockSent(self._round, self._decided, *size, self._draft_s))
        self._draft_s = 0.0
        for worker in asked:
            self._send(worker, payload, now)
        self._limit_s = now + self._quorum_s(asked)
        self._asked = asked
        return True

    def _to_ask(self) -> list[Worker]:
        """All that are there; after the first round those that have read the question, if any."""
        idle = []
        for worker in self._workers.values():
            if worker.idle and self._decided - worker.known > MAX_BLOCK:
                end = End(Reason.FINISHED, "beginning again from the decided text")
                self.leave(Leave(worker.name, end, again=True))  # absent for too long
                worker.gone()
            elif worker.idle:
                idle.append(worker)
        if self._settings.require_all:
            return idle if len(idle) == len(self._workers) else []
        if self._round == 0:  # they all read it now: who is slower belongs to the mixture, too
            return idle
        return [worker for worker in idle if worker.opened] or idle

    def _fail(self) -> bool:
        away = (worker for worker in self._workers.values() if not worker.idle)
        self._out.failed = FederationError({worker.name: worker.silence for worker in away})
        self.finish = Finish.CANCELLED
        return False

    def _send(self, worker: Worker, payload: bytes, now: float) -> None:
        if worker.session is None:
            return
        tokens, first = self._prefix.tokens, self._decided
        place = first, self._prefix.hashes[first] & LOW_BITS, len(tokens) - first
        known = tuple(tokens[worker.known : first])
        message = Block(worker.session, self._round, *place, (), known, payload)
        worker.known, worker.asked, worker.asked_s = first, self._round, now
        self.send_to(worker.name, message)

    def _quorum_s(self, asked: Sequence[Worker]) -> float:
        seconds = self._settings.quorum_deadline
        if seconds is None:
            seconds = deadline_s([worker.round_trips for worker in asked])
        reading = any(not worker.opened for worker in asked)
        return max(seconds, self._timeouts.join_s) if reading else seconds

    @override
    def _received(self, peer: str, message: wire.SessionMessage, now: float) -> None:
        worker = self._workers[peer]
        match message:
            case wire.Working():
                if self._since_s is not None and now < self._since_s + self._timeouts.read_s:
                    self._give_up_s = now + self._timeouts.answer_s
            case wire.Opened():
                worker.opened = True
            case Upload():
                self._receive_upload(worker, message, now)
            case _:
                raise ModeError(f"a {type(message).__name__} has no place in a session of blocks")
        self._turn(now)

    def _receive_upload(self, worker: Worker, message: Upload, now: float) -> None:
        number, payloads = message.round, message.payloads
        if worker.asked != number:
            raise ModeError(f"an answer to block {number} came, which is not the next one due")
        size = sum(map(len, payloads))
        if size > self._longest:
            raise ModeError(f"an upload of {size} bytes takes too long to read")
        count, drafted = len(payloads), len(self._prefix.tokens) - self._decided
        if number == self._round and count != drafted + 1:
            raise ModeError(f"an upload has {count} distributions for a block of {drafted} tokens")
        worker.received = message
        worker.asked = None
        worker.round_trips.append(now - worker.asked_s)

    def _judge(self, received: Sequence[Worker]) -> None:
        """Have the block verified by the mixture of those uploads."""
        uploads: dict[str, Upload] = {}
        weights, relevances, verify_s = list[float](), list[float | None](), 0.0
        for worker in self._workers.values():
            upload = worker.received if worker in received else None
            weights.append(worker.weight)
            relevances.append(None if upload is None else upload.relevance)
            if upload is not None:
                uploads[worker.name] = upload
                verify_s = max(verify_s, upload.verify_us / 1e6)
        shares = round_weights(self._settings.weights, weights, relevances)
        pairs = zip(self._workers, shares, strict=True)
        by_name = {name: share for name, share in pairs if name in uploads}
        rule, decided = self._rule, self._decided
        p = partial(mixture, rule, self._codec, uploads, list(by_name.values()))
        drafted = self._prefix.tokens[decided:]
        q = list(self._q) if self._rule.sends_distributions else None

        def postprocess(_: Sequence[Prediction]) -> Any:
            try:
                return rule.verify(decided, drafted, q, p), by_name, verify_s
            except UploadError as error:
                return error

        self._judging, self._judged = Work(postprocess), False

    def _refuse(self, error: UploadError) -> None:
        """End the session of a worker whose upload cannot be read; the others decide."""
        worker, end = self._workers[error.worker], End.of(error, Reason.PROTOCOL)
        self.leave(Leave(worker.name, end))
        worker.lost(end, returns=False)
        worker.received = None

    def _decide(
        self, verdict: VerifyResult, weights: Mapping[str, float], verify_s: float, now: float
    ) -> None:
        """Append what the mixture decided. Report who was missing, or takes part again."""
        first, count = self._decided, len(self._prefix.tokens) - self._decided
        drafted = self._prefix.tokens[first : first + verdict.accepted]
        tokens: list[int] = []
        for token in (*drafted, verdict.token):
            tokens.append(token)
            if token in self._question.stop_tokens:
                break
        accepted = min(verdict.accepted, len(tokens))
        self._prefix.replace_from(first, tokens)
        self._decided = first + len(tokens)
        self._q.clear()
        waited = now - (self._since_s or now)
        workers = self._workers.values()
        missing = tuple(name for name in self._workers if name not in weights)
        found: list[events.Event] = [
            events.BlockJudged(self._round, count, accepted, tokens[-1], waited, verify_s),
            events.RoundDecided(self._round, first, len(tokens), weights, missing),
            *attendance_notices(workers, missing, self._absent, first),
        ]
        self._absent = set(missing)
        for position, token in enumerate(tokens):
            stands, step = position < accepted, first + position
            share, evidence = float(stands), 0.0  # it depends on the workers alone
            found.append(
                events.TokenDecided(
                    step, token, stands, None, "target", waited, share, evidence=evidence
                )
            )
            waited = 0.0
        self.emit(*found)
        self._since_s = self._asked = None
        self._end(finish_of(self._question, self._prefix.tokens, self._decided))
