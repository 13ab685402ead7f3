"""Distributed RAG (SPEC section 1): the asking side's and the answering side's coroutine.

`ask` runs on the device and `Answering` on the cloud; between them both sides run the same
`Generation`. Neither a document nor its embedding ever leaves its side; the cloud names its
sources, which are public, the device names none.
"""

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, Protocol

from dragonrt.distributions.errors import CodecError
from dragonrt.runtime.connector import Connector
from dragonrt.runtime.draft import Draft
from dragonrt.runtime.drafter import Drafter
from dragonrt.runtime.generation import Generation, GenerationError
from dragonrt.runtime.outcome import Counts, Decision, Finish
from dragonrt.runtime.peer import Peer
from dragonrt.runtime.plan import PATIENCE_S, Plan, placement_of
from dragonrt.runtime.profiler import DecodeProfile
from dragonrt.runtime.scheduler import Placement
from dragonrt.runtime.trace import Trace
from dragonrt.sampling.noise import Side
from dragonrt.sampling.samplers import Sampler
from dragonrt.wire import messages as wire
from dragonrt.wire.errors import Reason

Turn = tuple[str, str]
"""An earlier question and its answer."""

OnLoss = Literal["alone", "wait"]


@dataclass(frozen=True, slots=True)
class Prepared:
    """A side that is ready to draft: its model over its documents, and what getting there took."""

    drafter: Drafter
    sources: tuple[wire.Source, ...]
    prompt_tokens: int
    load_s: float
    prefill_s: float


class Preparer(Protocol):
    """What a side answers with: its model, its documents, its trace."""

    @property
    def vocabulary(self) -> int: ...

    @property
    def trace(self) -> Trace: ...

    @property
    def share_sources(self) -> bool:
        """Whether the other side may hear the titles and files of the documents used."""
        ...

    @property
    def profile(self) -> DecodeProfile | None:
        """The offline decode profile of this side, if it has one."""
        ...

    async def prepare(self, question: str, history: Sequence[Turn], plan: Plan) -> Prepared:
        """Retrieve, load the documents' KV and prefill the question."""
        ...


@dataclass(slots=True)
class Answer:
    """What the device knows when an answer is complete. Times are seconds on its loop's clock."""

    plan: Plan
    decisions: list[Decision] = field(default_factory=list)
    finish: Finish = Finish.CANCELLED
    device_sources: tuple[wire.Source, ...] = ()
    cloud_sources: tuple[wire.Source, ...] = ()
    notices: list[str] = field(default_factory=list)
    counts: Counts = field(default_factory=Counts)
    asked_s: float = 0.0
    bytes_sent: int = 0
    bytes_received: int = 0
    rtt_s: float = 0.0

    @property
    def tokens(self) -> list[int]:
        """The answer's tokens, the stop token included."""
        return [decision.token for decision in self.decisions]


def open_message(
    plan: Plan, question: str, history: Sequence[Turn], accepted: Sequence[int], number: int
) -> wire.Open:
    """The Open that carries a plan to the other side."""
    return wire.Open(
        session=number,
        prompt=question,
        history=tuple(history),
        seed=plan.seed,
        temperature=plan.sampler.temperature,
        top_k=plan.sampler.top_k,
        top_p=plan.sampler.top_p,
        min_p=plan.sampler.min_p,
        max_tokens=plan.max_tokens,
        stop_tokens=plan.stop_tokens,
        rule=plan.rule,
        aggregator=plan.placement.value,
        codec=plan.codec,
        run_ahead=plan.run_ahead,
        documents=plan.documents,
        relevance_temperature=plan.relevance_temperature,
        reweight_every=plan.reweight_every,
        follow=plan.follow,
        accepted=tuple(accepted),
    )


def plan_of(message: wire.Open) -> Plan:
    """The plan in an Open; DragonError for names this side does not know."""
    plan = Plan(
        seed=message.seed,
        sampler=Sampler(message.temperature, message.top_k, message.top_p, message.min_p),
        rule=message.rule,
        placement=placement_of(message.aggregator),
        codec=message.codec,
        max_tokens=message.max_tokens,
        stop_tokens=message.stop_tokens,
        run_ahead=message.run_ahead,
        documents=message.documents,
        relevance_temperature=message.relevance_temperature,
        reweight_every=message.reweight_every,
        follow=message.follow,
    )
    plan.check()
    return plan


def trace_open(trace: Trace, session: int, plan: Plan, accepted: int) -> None:
    """A generation begins, with `accepted` tokens decided in a session before."""
    trace.event(
        session,
        "open",
        accepted=accepted,
        seed=plan.seed,
        rule=plan.rule,
        aggregator=plan.placement.value,
        codec=plan.codec,
    )


def trace_ready(trace: Trace, session: int, prepared: Prepared) -> None:
    """This side has its documents and has read the question."""
    trace.event(
        session,
        "ready",
        load=round(prepared.load_s, 6),
        prefill=round(prepared.prefill_s, 6),
        prompt_tokens=prepared.prompt_tokens,
    )


def finish_of(generation: Generation | None) -> str:
    """Why a generation ended, or "error" if it did not come to an end."""
    return generation.finish.value if generation is not None and generation.finish else "error"


class DragonSession:
    """One session of one connection: its messages to a generation, and a generation's messages out.

    Drafts that come before the generation is ready wait in a bounded inbox.
    """

    def __init__(
        self,
        peer: Peer,
        plan: Plan,
        *,
        lost: Callable[[str], None],
        diverged: Callable[[], None],
    ) -> None:
        self.number = 0
        self.sources: tuple[wire.Source, ...] = ()
        self._peer = peer
        self._plan = plan
        self._lost = lost
        self._generation: Generation | None = None
        self._inbox: list[wire.Draft] = []
        self._diverged = diverged

    # What the peer calls.

    def receive(self, message: wire.SessionMessage) -> None:
        match message:
            case wire.Draft():
                self._receive_draft(message)
            case wire.Target():
                if self._generation is None:
                    raise GenerationError("a target token came before any draft was made")
                self._generation.receive_target(
                    message.step, message.prefix_hash, message.token, message.aggregator
                )
            case wire.Opened():
                self.sources = message.sources
            case _:
                raise GenerationError(f"a {type(message).__name__} has no place in an answer")

    @property
    def schedules(self) -> bool:
        return self._plan.placement is Placement.GREEDY

    def lost(self, reason: str) -> None:
        self._lost(reason)

    def _receive_draft(self, message: wire.Draft) -> None:
        if self._generation is None:
            if len(self._inbox) >= 2 * self._plan.window:
                raise GenerationError("more drafts came than were agreed on")
            self._inbox.append(message)
            return
        draft = Draft(
            step=message.step,
            prefix_hash=message.prefix_hash,
            token=message.token,
            payload=message.payload,
            relevance=message.relevance,
            decode_s=message.decode_us / 1e6,
        )
        decided = message.step - message.ahead
        self._generation.receive_draft(draft, decided, message.decided_hash)

    def attach(self, generation: Generation) -> None:
        """Let a generation work over this session, beginning with what has come already."""
        self._generation = generation
        generation.session = self.number
        generation.connect(self)
        inbox, self._inbox = self._inbox, []
        for message in inbox:
            self._receive_draft(message)

    # What the generation calls.

    def send_draft(self, draft: Draft, decided: int, decided_hash: int) -> None:
        self._peer.send(
            wire.Draft(
                session=self.number,
                step=draft.step,
                prefix_hash=draft.prefix_hash,
                token=draft.token,
                relevance=draft.relevance,
                decode_us=int(draft.decode_s * 1e6),
                ahead=draft.step - decided,
                decided_hash=decided_hash,
                payload=draft.payload,
            )
        )

    def send_target(self, step: int, prefix_hash: int, token: int, aggregator: Side) -> None:
        self._peer.send(wire.Target(self.number, step, prefix_hash, token, aggregator))

    def diverged(self) -> None:
        self._diverged()

    async def drain(self) -> None:
        await self._peer.drain()

    def round_trip_s(self, size: int = 0) -> float:
        return self._peer.round_trip_s(size)

    def close(self, reason: Reason, text: str = "") -> None:
        """End the session on this connection."""
        self._peer.close(self.number, reason, text)


class Asking:
    """The device's side of one answer.

    `on_loss` says what happens between losing the cloud and having it back: "alone" decides on the
    own documents meanwhile, "wait" decides nothing, so that the text stays what it would have been.
    """

    def __init__(
        self,
        preparer: Preparer,
        connector: Connector,
        plan: Plan,
        *,
        on_decision: Callable[[Decision], None],
        on_notice: Callable[[str], None],
        on_loss: OnLoss = "alone",
    ) -> None:
        self._preparer = preparer
        self._connector = connector
        self._plan = plan
        self._show = on_decision
        self._on_notice = on_notice
        self._on_loss = on_loss
        self._session: DragonSession | None = None
        self._generation: Generation | None = None
        self._rejoin = asyncio.Event()
        self._alone = False
        self._stopped: Finish | None = None
        self._loss = "the cloud is not connected"
        self._question = ""
        self._history: Sequence[Turn] = ()
        self.answer = Answer(plan)

    def stop(self, reason: Finish = Finish.CANCELLED) -> None:
        """End the answer with the tokens decided so far."""
        self._stopped = reason
        if self._generation is not None:
            self._generation.stop(reason)

    async def ask(self, question: str, history: Sequence[Turn] = ()) -> Answer:
        """Answer one question; DragonError if this side cannot."""
        self._question, self._history = question, history
        answer, loop = self.answer, asyncio.get_running_loop()
        answer.asked_s = loop.time()
        before = self._connector.traffic()
        self._join(())
        if self._session is None:
            trace_open(self._preparer.trace, 0, self._plan, 0)
        try:
            prepared = await self._preparer.prepare(question, history, self._plan)
            trace_ready(self._preparer.trace, self._session_number, prepared)
            generation = self._generation = Generation(
                "device",
                self._plan,
                prepared.drafter,
                self._preparer.trace,
                self._decide,
                vocabulary=self._preparer.vocabulary,
                session=self._session_number,
                profile=self._preparer.profile,
            )
            answer.device_sources = prepared.sources
            answer.counts = generation.counts
            if self._stopped is not None:
                generation.stop(self._stopped)
            if self._session is None and self._rejoin.is_set():
                self._join(())  # the cloud may have come back while this side prepared
            try:
                if self._session is not None:
                    self._session.attach(generation)
                else:
                    self._miss()
            except (GenerationError, CodecError) as error:  # in what came while this side prepared
                self._give_up(str(error))
            await self._generate(generation)
            answer.finish = generation.finish or Finish.CANCELLED
        finally:
            number = self._session_number
            if self._session is not None:
                answer.rtt_s = self._session.round_trip_s()
                answer.cloud_sources = self._session.sources
                cancelled = answer.finish is Finish.CANCELLED
                self._session.close(Reason.CANCELLED if cancelled else Reason.FINISHED)
            self._preparer.trace.event(number, "close", finish=finish_of(self._generation))
        after = self._connector.traffic()
        answer.bytes_sent, answer.bytes_received = after[0] - before[0], after[1] - before[1]
        return answer

    def _decide(self, decision: Decision) -> None:
        self.answer.decisions.append(decision)
        self._show(decision)

    async def _generate(self, generation: Generation) -> None:
        """Run the generation to its end while another task brings a lost cloud back."""
        rejoin = asyncio.create_task(self._rejoin_when_lost(generation), name="rejoin")
        try:
            while generation.finish is None:
                try:
                    await generation.run()
                except (GenerationError, CodecError) as error:
                    if self._alone:
                        raise
                    self._give_up(str(error))
        finally:
            rejoin.cancel()
            await asyncio.gather(rejoin, return_exceptions=True)

    # The cloud goes and comes back.

    @property
    def _session_number(self) -> int:
        """The session's number, the generation's last one, or 0 if there was never one."""
        if self._session is not None:
            return self._session.number
        return self._generation.session if self._generation is not None else 0

    def _join(self, accepted: Sequence[int]) -> None:
        """Open a session that goes on from the accepted tokens, if there is a connection now."""
        peer = self._connector.peer
        if peer is None:
            self._rejoin.set()
            return
        self._rejoin.clear()
        session = DragonSession(peer, self._plan, lost=self._lost, diverged=self._restart)

        def message(number: int) -> wire.Open:
            trace_open(self._preparer.trace, number, self._plan, len(accepted))
            return open_message(self._plan, self._question, self._history, accepted, number)

        session.number = peer.open(session, message)
        self._session = session

    def _lost(self, reason: str) -> None:
        """The connection ended, or the cloud closed the session: only the former may come back."""
        session, self._session = self._session, None
        if session is None:
            return
        self.answer.cloud_sources = self.answer.cloud_sources or session.sources
        self._loss = reason
        if not self._connector.connected:
            self._rejoin.set()
        self._miss()

    def _miss(self) -> None:
        """Go on without the cloud, or wait for it if it may come back and that is wanted."""
        if self._generation is None:
            return
        if self._on_loss == "wait" and self._rejoin.is_set():
            self._generation.disconnect()
            self._notice(f"waiting for the cloud at token {self._generation.decided}: {self._loss}")
        else:
            self._go_alone(self._loss)

    def _restart(self) -> None:
        """The two sides decided different texts: the device's stands, the cloud starts from it."""
        if self._generation is not None:
            self._leave(Reason.ERROR, "the two sides decided different texts; starting again")
            self._generation.disconnect()
            self._rejoin.set()

    def _leave(self, reason: Reason, text: str) -> None:
        session, self._session = self._session, None
        if session is not None:
            session.close(reason, text)

    def _give_up(self, reason: str) -> None:
        """The cloud's session is of no use: it ends, and this side answers alone."""
        self._leave(Reason.ERROR, reason)
        self._go_alone(reason)

    def _go_alone(self, reason: str) -> None:
        if self._generation is not None and self._generation.finish is None and not self._alone:
            self._alone = True
            step = self._generation.decided
            self._notice(f"answering from the device's documents alone from token {step}: {reason}")
            self._generation.go_alone()

    def _notice(self, text: str) -> None:
        self.answer.notices.append(text)
        self._on_notice(text)

    async def _rejoin_when_lost(self, generation: Generation) -> None:
        """Resume the session from the decided tokens whenever the cloud is back."""
        while True:
            await self._rejoin.wait()
            if await self._connector.wait_connected(PATIENCE_S) is None:
                self._go_alone(f"the cloud did not come back in {PATIENCE_S:g} s")
                continue
            self._join(generation.line.tokens[: generation.decided])
            if self._session is not None:
                self._alone = False
                self._session.attach(generation)
                self._preparer.trace.event(generation.session, "resume", step=generation.decided)


class Answering:
    """The cloud's side of one session: prepare, say so, and take part until the device closes."""

    def __init__(self, preparer: Preparer, peer: Peer, message: wire.Open) -> None:
        self._preparer = preparer
        self._message = message
        self._plan = plan_of(message)
        self._ended = asyncio.Event()
        self._generation: Generation | None = None
        self._preparing: asyncio.Task[Any] | None = None
        self.session = DragonSession(peer, self._plan, lost=self._lost, diverged=lambda: None)
        self.session.number = message.session
        self._peer = peer

    def _lost(self, reason: str) -> None:
        self._ended.set()
        if self._generation is not None:
            self._generation.stop()
        elif self._preparing is not None:
            self._preparing.cancel()  # nobody waits for the answer: leave the model to others

    async def work(self) -> None:
        """Take part in the answer; raises DragonError where this side cannot."""
        message, plan, trace = self._message, self._plan, self._peer.trace
        trace_open(trace, message.session, plan, len(message.accepted))
        try:
            await self._take_part(message, plan)
        finally:
            trace.event(message.session, "close", finish=finish_of(self._generation))

    async def _take_part(self, message: wire.Open, plan: Plan) -> None:
        if self._ended.is_set():
            return
        self._preparing = asyncio.current_task()
        prepared = await self._preparer.prepare(message.prompt, message.history, plan)
        trace_ready(self._peer.trace, message.session, prepared)
        self._peer.send(
            wire.Opened(
                session=message.session,
                sources=prepared.sources if self._preparer.share_sources else (),
                prompt_tokens=prepared.prompt_tokens,
                load_us=int(prepared.load_s * 1e6),
                prefill_us=int(prepared.prefill_s * 1e6),
            )
        )
        self._generation = Generation(
            "cloud",
            plan,
            prepared.drafter,
            self._peer.trace,
            vocabulary=self._preparer.vocabulary,
            session=message.session,
            accepted=message.accepted,
            profile=self._preparer.profile,
        )
        self.session.attach(self._generation)
        await self._generation.run()
        try:
            async with asyncio.timeout(PATIENCE_S):
                await self._ended.wait()
        except TimeoutError:
            raise GenerationError("the answer is complete, but nobody closed the session") from None


def answerer(preparer: Preparer) -> Callable[[Peer, wire.Open], tuple[DragonSession, Any]]:
    """What a cloud's peers call for every session that a device opens."""

    def answer(peer: Peer, message: wire.Open) -> tuple[DragonSession, Any]:
        answering = Answering(preparer, peer, message)
        return answering.session, answering.work()

    return answer
