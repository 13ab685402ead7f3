"""The device's answer: one question, with as many other sides as there are connectors."""

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass, field

from dragonrt.modes.evidence import Moved
from dragonrt.modes.mode import Finish, Joined, Left
from dragonrt.modes.question import Question
from dragonrt.modes.registry import Resources, entry_of
from dragonrt.modes.replay import machine
from dragonrt.modes.settings import Settings
from dragonrt.node.answer import AnswerSession, Driver, OnRecord, opening
from dragonrt.node.citing import Passage
from dragonrt.node.connector import NotConnectedError, Reachable
from dragonrt.node.preparing import PrefillResult, Preparer
from dragonrt.timeouts import BackOff
from dragonrt.traces.events import (
    AnswerClosed,
    Drafted,
    Noticed,
    QuestionSent,
    Record,
    TokenDecided,
)
from dragonrt.wire import messages as wire
from dragonrt.wire.reasons import Reason
from dragonrt.wire.values import pack


@dataclass(slots=True, kw_only=True)
class Answer:
    """What the device knows when an answer is complete. Times are seconds on its loop's clock.

    `records` are the answer's own events, without drafts and messages: statistics are folds over
    them. `passages` are what this side read, a row for each, and `moved` what they and the others'
    did to the text; `attributions` say what those others know who took part, None of one that did
    not say.
    """

    question: Question
    settings: Settings
    records: list[Record] = field(default_factory=list)
    finish: Finish = Finish.CANCELLED
    passages: tuple[Passage, ...] = ()
    moved: Moved = field(default_factory=Moved)
    attributions: tuple[wire.Attribution | None, ...] = ()
    asked_s: float = 0.0
    bytes_sent: int = 0
    bytes_received: int = 0
    rtt_s: float = 0.0

    @property
    def decisions(self) -> list[tuple[float, TokenDecided]]:
        """Every decided token with its time, the stop token included."""
        decided = ((each.t, each.event) for each in self.records)
        return [(t, event) for t, event in decided if isinstance(event, TokenDecided)]

    @property
    def tokens(self) -> list[int]:
        """The answer's tokens, the stop token included."""
        return [event.token for _, event in self.decisions]

    @property
    def notices(self) -> list[str]:
        """What the person was told on the way."""
        events = (record.event for record in self.records)
        return [event.text for event in events if isinstance(event, Noticed)]


class ClientSession:
    """The device's side of one answer. Other sides are reached by `connectors`, by their names."""

    def __init__(
        self,
        preparer: Preparer,
        connectors: Mapping[str, Reachable],
        question: Question,
        settings: Settings,
        resources: Resources,
        on_record: OnRecord = lambda record: None,
    ) -> None:
        self._entry = entry_of(settings)
        question = settings.asked(question)
        self.answer = Answer(question=question, settings=settings)
        self._preparer = preparer
        self._on_record = on_record
        mode = machine(self._entry, "device", question, settings, resources, preparer.recorder)
        self._driver = Driver(preparer, mode, self._record)
        for name, connector in connectors.items():
            self._driver.sessions[name] = AnswerSession(
                self._driver, name, connector.for_answer(question)
            )

    def stop(self, reason: Finish = Finish.CANCELLED) -> None:
        """End the answer with the tokens decided so far."""
        self._driver.stop(reason)

    async def ask(self) -> Answer:
        """Answer the question; DragonError if this side cannot, or may not alone."""
        answer, driver = self.answer, self._driver
        sessions = driver.sessions.values()
        answer.asked_s = asyncio.get_running_loop().time()
        before, padding = self._traffic(), self._padding()
        await self._reach()
        joining = [
            asyncio.create_task(self._keep_joined(session), name=f"join {session.name}")
            for session in sessions
        ]
        try:
            if self._several:
                self._opened(0)
            for session in sessions:
                self._join(session)
            if not self._several and not any(session.number for session in sessions):
                self._opened(0)
            prepared = await self._prepare()
            if prepared is not None:
                answer.passages = prepared.passages
                driver.begin(prepared, self._preparer.vocabulary)
            await driver.wait_over()
            answer.finish = driver.finish or Finish.CANCELLED
        finally:
            for task in joining:
                task.cancel()
            await asyncio.gather(*joining, return_exceptions=True)
            await driver.settle()
            if answer.finish is not Finish.CANCELLED:
                await asyncio.gather(*(session.conclude() for session in sessions))
            for session in sessions:
                session.close(Reason.CANCELLED)
            await driver.settle()
            answer.rtt_s, after = driver.rtt_s, self._traffic()
            answer.bytes_sent, answer.bytes_received = after[0] - before[0], after[1] - before[1]
            finish = driver.finish.value if driver.finish else "error"
            sent, received = self._padding()
            driver.record(
                AnswerClosed(
                    finish,
                    answer.bytes_sent,
                    answer.bytes_received,
                    answer.rtt_s,
                    sent - padding[0],
                    received - padding[1],
                    self._held_s(),
                )
            )
            took_part = (session for session in sessions if session.took_part)
            answer.attributions = tuple(session.attribution for session in took_part)
            answer.moved = driver.mode.moved
        return answer

    async def _prepare(self) -> PrefillResult | None:
        """This side's preparation; None if the answer is stopped before."""
        question, verifies = self.answer.question, self._driver.mode.verifies
        preparing = asyncio.ensure_future(self._preparer.prepare(question, verifies=verifies))
        over = asyncio.ensure_future(self._driver.wait_over())
        try:
            await asyncio.wait((preparing, over), return_when=asyncio.FIRST_COMPLETED)
            return await preparing if preparing.done() else None
        finally:
            for task in (preparing, over):
                task.cancel()
            await asyncio.gather(preparing, over, return_exceptions=True)

    def _record(self, record: Record) -> None:
        if not isinstance(record.event, Drafted):
            self.answer.records.append(record)
        self._on_record(record)

    def _traffic(self) -> tuple[int, int]:
        """Bytes sent and received so far, over all connections."""
        connectors = (session.connector for session in self._driver.sessions.values())
        each = [connector.traffic() for connector in connectors if connector is not None]
        return sum(sent for sent, _ in each), sum(received for _, received in each)

    def _padding(self) -> tuple[int, int]:
        """Of these, what cells added."""
        connectors = (session.connector for session in self._driver.sessions.values())
        each = [connector.padding() for connector in connectors if connector is not None]
        return sum(sent for sent, _ in each), sum(received for _, received in each)

    def _held_s(self) -> float | None:
        """How long messages waited for their ticks, on average over a connection."""
        connectors = (session.connector for session in self._driver.sessions.values())
        peers = [connector.peer for connector in connectors if connector is not None]
        paced = [peer.pacing for peer in peers if peer is not None and peer.pacing.held]
        held = sum(each.held for each in paced)
        return sum(each.held_s for each in paced) / held if held else None

    # Joining, and joining again.

    async def _reach(self) -> None:
        """Dial now what is not connected, where nothing is.

        Raises NotConnectedError if who is needed was never there.
        """
        connectors = [each.connector for each in self._driver.sessions.values() if each.connector]
        if not any(connector.connected for connector in connectors):
            await asyncio.gather(*(connector.reach() for connector in connectors))
        settings = self.answer.settings
        enough = all if settings.require_all else any
        if not settings.goes_alone and not enough(each.met for each in connectors):
            away = (each.absence for each in connectors if not each.met and each.absence)
            why = next(away, "not dialled yet")
            raise NotConnectedError(f"nobody is there to answer with: {why}")

    def _join(self, session: AnswerSession) -> None:
        """Open a session that goes on from the decided tokens, if there is a connection now."""
        peer = session.connector.peer if session.connector is not None else None
        if peer is None:
            who = "it" if self._several else f"the {session.name}"
            reason = f"{who} is not connected"
            self._driver.feed(Left(session.name, reason, True))
            session.gone.set()
            return
        hello = peer.connection.peer
        weights = "unknown" if hello is None else hello.weights
        if session.weights not in (None, weights):
            reason = f"another model answers as the {session.name} now"
            self._driver.feed(Left(session.name, reason, False))
            session.gone.clear()
            return
        session.weights = weights
        decided = tuple(self._driver.mode.decided)
        question = self._driver.mode.told(self.answer.question)

        def message(number: int) -> wire.Open:
            session.number = number
            if not self._several:
                self._opened(len(decided))
            settings = pack(self.answer.settings)
            return wire.Open(number, self._entry.name, pack(question), settings)

        peer.pacing.shape(self.answer.settings)
        session.attach(peer, peer.open(session, message))
        said = sum(len(text.encode()) for turn in question.history for text in turn)
        words = len(question.prompt.encode()) + len(question.instructions.encode())
        asked = QuestionSent(words, said, len(question.accepted))
        self._driver.record(asked)
        self._driver.feed(Joined(session.name, session.number))

    @property
    def _several(self) -> bool:
        """Whether the answer has several other sides: its events then belong to no session."""
        return len(self._driver.sessions) > 1

    def _opened(self, accepted: int) -> None:
        answer = self.answer
        self._driver.record(opening(self._entry, answer.question, answer.settings, accepted))

    async def _keep_joined(self, session: AnswerSession) -> None:
        """Resume the session from the decided tokens whenever its other side is back."""
        connector, timeouts = session.connector, self._driver.timeouts
        clock, back_off = asyncio.get_running_loop().time, BackOff(timeouts)
        while connector is not None and not session.over:
            since_s = clock()
            await session.gone.wait()
            back_off.lasted(clock() - since_s)
            await asyncio.sleep(max(back_off.take(), connector.put_off(session.retry_s)))
            connector.hurry()
            while await connector.wait_connected(timeouts.answer_s) is None:
                pass
            if not session.over:
                self._join(session)
