"""The coordinator's side: one answer, round after round with the workers that are there."""

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from dragonrt.distributions import codec
from dragonrt.runtime import outcome
from dragonrt.runtime.drafter import PreemptedError
from dragonrt.runtime.modes.blocks.tracing import trace_open
from dragonrt.runtime.modes.federated.coordination import Coordination
from dragonrt.runtime.modes.federated.counts import Counts
from dragonrt.runtime.modes.federated.errors import FederationError
from dragonrt.runtime.modes.federated.plan import FederatedPlan
from dragonrt.runtime.modes.federated.quorum import deadline_s, round_weights
from dragonrt.runtime.modes.federated.worker import Member, Received, Worker
from dragonrt.runtime.outcome import Decision, Finish, OnDecision, OnNotice, Turn
from dragonrt.runtime.plan import PATIENCE_S
from dragonrt.runtime.predictor import Predictor
from dragonrt.runtime.preparing import Preparer, trace_ready
from dragonrt.wire.errors import Reason

JOIN_S = 10.0
"""Seconds for a worker's first upload in a session: it reads the question before."""


@dataclass(slots=True, kw_only=True)
class Answer(outcome.Answer):
    """The answer of a coordinator and its workers; `cloud_sources` are those of all of them."""

    plan: FederatedPlan
    counts: Counts = field(default_factory=Counts)


def beginning(
    preparer: Preparer, members: Sequence[Member]
) -> Callable[[FederatedPlan, OnDecision, OnNotice], "Asking"]:
    """What begins each answer of a conversation."""

    def begin(plan: FederatedPlan, on_decision: OnDecision, on_notice: OnNotice) -> Asking:
        return Asking(preparer, members, plan, on_decision=on_decision, on_notice=on_notice)

    return begin


class Asking:
    """Drafts a block, has the workers upload what they say of it, decides by their mixture.

    A worker that is lost or misses a round's deadline takes no part in that round, and the weights
    of the others are renormalised; it takes part again as soon as it has caught up.
    """

    def __init__(
        self,
        preparer: Preparer,
        members: Sequence[Member],
        plan: FederatedPlan,
        *,
        on_decision: OnDecision,
        on_notice: OnNotice,
    ) -> None:
        self._preparer = preparer
        self._members = members
        self._plan = plan
        self._show = on_decision
        self._on_notice = on_notice
        self._coordination = Coordination(plan, preparer.vocabulary)
        self._workers: list[Worker] = []
        self._absent: set[str] = set()
        self._number = 0
        self._draft_s = 0.0
        self._changed = asyncio.Event()
        self._predictor: Predictor | None = None
        self._stopped: Finish | None = None
        self._clock = asyncio.get_running_loop().time
        self.answer = Answer(plan=plan)

    def stop(self, reason: Finish = Finish.CANCELLED) -> None:
        """End the answer with the tokens decided so far."""
        self._stopped = self._stopped or reason
        self._changed.set()
        if self._predictor is not None:
            self._predictor.preempt()

    async def ask(self, question: str, history: Sequence[Turn] = ()) -> Answer:
        """Answer one question; DragonError if too few workers are there, or this side cannot."""
        answer, plan, trace = self.answer, self._plan, self._preparer.trace
        answer.asked_s = self._clock()
        before = self._traffic()
        code = codec(plan.codec, self._preparer.vocabulary)
        self._workers = [
            Worker(member, plan, code, question, history, self._changed.set)
            for member in self._members
        ]
        await self._reach()
        trace_open(trace, 0, plan, 0)
        for worker in self._workers:
            worker.join(())
        rejoining = [
            asyncio.create_task(self._rejoin(worker), name=f"rejoin {worker.name}")
            for worker in self._workers
        ]
        try:
            prepared = await self._preparer.prepare_predictor(question, history, plan)
            trace_ready(trace, 0, prepared, self._preparer.vocabulary)
            answer.device_sources = prepared.sources
            self._predictor = prepared.model
            while self._finish is None:
                await self._draft(prepared.model)
                await self._decide_block()
            answer.finish = self._finish
        finally:
            self._predictor = None
            for task in rejoining:
                task.cancel()
            await asyncio.gather(*rejoining, return_exceptions=True)
            cancelled = answer.finish is Finish.CANCELLED
            for worker in self._workers:
                worker.leave(Reason.CANCELLED if cancelled else Reason.FINISHED)
            sources = (source for worker in self._workers for source in worker.sources)
            answer.cloud_sources = tuple(dict.fromkeys(sources))
            answer.rtt_s = max((worker.rtt_s for worker in self._workers), default=0.0)
            trace.event(0, "close", finish=self._finish.value if self._finish else "error")
        after = self._traffic()
        answer.bytes_sent, answer.bytes_received = after[0] - before[0], after[1] - before[1]
        return answer

    @property
    def _finish(self) -> Finish | None:
        return self._stopped or self._coordination.finish

    def _traffic(self) -> tuple[int, int]:
        """Bytes sent and received so far, over all connections."""
        each = [member.connector.traffic() for member in self._members]
        return sum(sent for sent, _ in each), sum(received for _, received in each)

    async def _reach(self) -> None:
        """Dial now where a connection is lost that the answer cannot begin without."""
        connectors = [worker.connector for worker in self._workers]
        enough = all if self._plan.require_all else any
        if not enough(connector.connected for connector in connectors):
            await asyncio.gather(*(connector.reach() for connector in connectors))

    # A round: draft, broadcast, gather, decide.

    async def _draft(self, predictor: Predictor) -> None:
        """Extend the block until it is complete, or the answer is stopped."""
        coordination = self._coordination
        while self._finish is None and not coordination.complete:
            step = len(coordination.line)
            start_s = self._clock()
            try:
                said = await predictor.predict(coordination.line, step, step)
            except PreemptedError:
                continue
            seconds = self._clock() - start_s
            self._draft_s += seconds
            self._event("decode", step=step, tokens=1, seconds=round(seconds, 6))
            coordination.draft(said[0].p)

    async def _decide_block(self) -> None:
        """Rounds with the drafted block until one of them decides it. Raises FederationError."""
        give_up_s = self._clock() + PATIENCE_S
        start_s = self._clock()
        while self._finish is None:
            self._number += 1
            asked = await self._broadcast(give_up_s)
            received = await self._gather(asked, give_up_s)
            if self._finish is not None:
                return
            if received and not (self._plan.require_all and len(received) < len(self._workers)):
                self._verify(received, self._clock() - start_s)
                return

    async def _broadcast(self, give_up_s: float) -> list[Worker]:
        """Send the block to every worker that can take one; wait while there is none."""
        coordination = self._coordination
        while self._finish is None:
            workers = self._to_ask()
            if workers:
                payload = coordination.payload()
                self._event(
                    "block",
                    round=self._number,
                    step=coordination.decided,
                    tokens=len(coordination.drafted),
                    bits=8 * len(payload),
                    seconds=round(self._draft_s, 6),
                )
                self._draft_s = 0.0
                for worker in workers:
                    worker.ask(self._number, coordination.line, coordination.decided, payload)
                return workers
            self._note_waiting()
            if not await self._wait(give_up_s):
                raise FederationError(f"the answer ends here: {self._losses()}")
        return []

    def _to_ask(self) -> list[Worker]:
        """All that are there, later those that have read the question if there is one."""
        enough = any if self._plan.require_all else all
        if enough(worker.refused for worker in self._workers):
            raise FederationError(f"the answer ends here: {self._losses()}")
        idle = [worker for worker in self._workers if worker.idle]
        if self._plan.require_all:
            return idle if len(idle) == len(self._workers) else []
        if self._number == 1:  # they all read it now: who is slower belongs to the mixture, too
            return idle
        return [worker for worker in idle if worker.opened] or idle

    def _losses(self) -> str:
        away = (worker for worker in self._workers if not worker.idle)
        return "; ".join(f"{worker.name}: {worker.silence}" for worker in away)

    async def _gather(self, asked: Sequence[Worker], give_up_s: float) -> list[Worker]:
        """Those whose upload came in time. Waits beyond the deadline for the first one."""
        limit_s = self._clock() + self._deadline_s(asked)
        while self._finish is None:
            received = [worker for worker in asked if self._upload(worker) is not None]
            if not any(worker.asked == self._number for worker in asked):
                return received
            patient = self._plan.require_all or not received
            if not await self._wait(give_up_s if patient else limit_s):
                return received
        return []

    def _deadline_s(self, asked: Sequence[Worker]) -> float:
        seconds = self._plan.quorum_deadline_s
        if seconds is None:
            seconds = deadline_s([worker.round_trips for worker in asked])
        reading = any(not worker.opened for worker in asked)
        return max(seconds, JOIN_S) if reading else seconds

    def _upload(self, worker: Worker) -> Received | None:
        """The worker's upload of this round; one of an earlier round came too late."""
        received = worker.received
        return received if received is not None and received.number == self._number else None

    async def _wait(self, until_s: float) -> bool:
        """Wait until something changes; False if the time is over before."""
        try:
            async with asyncio.timeout_at(until_s):
                await self._changed.wait()
        except TimeoutError:
            return False
        self._changed.clear()
        return True

    def _verify(self, received: Sequence[Worker], waited_s: float) -> None:
        """Decide by the mixture of those uploads; say who was not there, or is there again."""
        coordination, counts = self._coordination, self.answer.counts
        uploads = [self._upload(worker) for worker in self._workers]
        weights = round_weights(
            self._plan.weighing,
            [worker.weight for worker in self._workers],
            [upload.relevance if upload is not None else None for upload in uploads],
        )
        first = coordination.decided
        present = [
            (upload.distributions, weight)
            for upload, weight in zip(uploads, weights, strict=True)
            if upload is not None
        ]
        verified = coordination.verify([one for one, _ in present], [each for _, each in present])
        counts.add(verified, waited_s)
        missing = [worker for worker in self._workers if worker not in received]
        self._event(
            "verdict",
            round=self._number,
            tokens=verified.drafted,
            accepted=verified.accepted,
            token=verified.tokens[-1],
            waited=round(waited_s, 6),
            verify=max(upload.verify_s for upload in uploads if upload is not None),
        )
        self._event(
            "round",
            round=self._number,
            step=first,
            decided=len(verified.tokens),
            weights={
                worker.name: weight
                for worker, weight in zip(self._workers, weights, strict=True)
                if worker in received
            },
            missing=[worker.name for worker in missing],
        )
        self._note_absences(missing, first)
        for position, token in enumerate(verified.tokens):
            if self._stopped is not None:  # by the callback of a token before
                break
            self._decide(first + position, token, position < verified.accepted, waited_s)
            waited_s = 0.0

    def _decide(self, step: int, token: int, drafted: bool, waited_s: float) -> None:
        self._event(
            "decide",
            step=step,
            token=token,
            device=drafted,
            cloud=None,
            cause="target",
            waited=round(waited_s, 6),
        )
        decision = Decision(step, token, self._clock(), float(drafted), None)
        self.answer.decisions.append(decision)
        self._show(decision)

    def _note_waiting(self) -> None:
        """Say of each lost worker, once, that there is no going on without it now."""
        for worker in self._workers:
            if not worker.here and worker.name not in self._absent:
                step = self._coordination.decided
                self._notice(f"waiting for {worker.name} at token {step}: {worker.silence}")
                self._absent.add(worker.name)

    def _note_absences(self, missing: Sequence[Worker], step: int) -> None:
        for worker in self._workers:
            absent = worker in missing
            if absent:
                self.answer.counts.miss(worker.name)
            if absent and worker.name not in self._absent:
                why = "it missed the deadline" if worker.here else worker.silence
                self._notice(f"{worker.name} takes no part from token {step} on: {why}")
            elif not absent and worker.name in self._absent:
                self._notice(f"{worker.name} takes part again from token {step} on")
        self._absent = {worker.name for worker in missing}

    # Workers come back.

    async def _rejoin(self, worker: Worker) -> None:
        """Resume the session from the decided tokens whenever the worker is connected again."""
        while True:
            await worker.gone.wait()
            if await worker.connector.wait_connected(PATIENCE_S) is not None:
                line = self._coordination.line
                worker.join(line.tokens[: self._coordination.decided])

    def _notice(self, text: str) -> None:
        self.answer.notices.append(text)
        self._on_notice(text)

    def _event(self, event: str, **fields: object) -> None:
        self._preparer.trace.event(0, event, **fields)
