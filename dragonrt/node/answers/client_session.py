"""The device's part of an answer: ClientSession asks the other sides and returns an Answer."""

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from operator import sub

from dragonrt.modes import entry_of
from dragonrt.modes.mode import Finish, Joined, Left
from dragonrt.modes.question import Question
from dragonrt.modes.settings import Resources, Settings
from dragonrt.node.answers.citing import Passage, disagreements
from dragonrt.node.answers.driver import AnswerSession, Driver, OnRecord, opening
from dragonrt.node.answers.model_session import Prefiller
from dragonrt.node.connections.connector import Connector, NotConnectedError
from dragonrt.node.connections.peer import Peer
from dragonrt.privacy.disclosure import MARKER, Door
from dragonrt.privacy.evidence import AnswerEvidence
from dragonrt.timeouts import BackOff
from dragonrt.traces import events
from dragonrt.traces.events import Noticed, NoticeKind, Record, TokenDecided
from dragonrt.wire import messages as wire
from dragonrt.wire.connection import Traffic
from dragonrt.wire.fields import pack
from dragonrt.wire.reasons import End, Reason


@dataclass(slots=True, kw_only=True)
class Answer:
    """The record of an answer on the device. Times are seconds on its event loop's clock.

    `records` are its events except drafts and messages, `passages` the chunks that the device read.
    `evidence` has by how many bits documents made each token likelier. `attributions` has a message
    with sources, or None, from each other side that took part.
    """

    question: Question
    settings: Settings
    records: list[Record] = field(default_factory=list)
    finish: Finish = Finish.CANCELLED
    passages: tuple[Passage, ...] = ()
    evidence: AnswerEvidence = field(default_factory=AnswerEvidence)
    attributions: tuple[wire.Attribution | None, ...] = ()
    asked_s: float = 0.0
    bytes_sent: int = 0
    bytes_received: int = 0
    rtt_s: float = 0.0

    @property
    def decisions(self) -> list[tuple[float, TokenDecided]]:
        """Return (time in seconds, event) for each decided token, the stop token included."""
        found = ((each.t, each.event) for each in self.records)
        return [(t, event) for t, event in found if isinstance(event, TokenDecided)]

    @property
    def tokens(self) -> list[int]:
        """Return the ids of the answer's tokens, the stop token included."""
        return [event.token for _, event in self.decisions]

    @property
    def notices(self) -> list[Noticed]:
        """Return the notices for the user that this answer caused, without repetitions."""
        found = (each.event for each in self.records)
        return [*dict.fromkeys(each for each in found if isinstance(each, Noticed))]


class ClientSession:
    """The device's part of one answer: make one per question, await `ask`, end early by `stop`."""

    def __init__(
        self,
        prefiller: Prefiller,
        connectors: Mapping[str, Connector],
        question: Question,
        settings: Settings,
        resources: Resources,
        on_record: OnRecord = lambda record: None,
    ) -> None:
        self._entry = entry_of(settings)
        if question.relevance_floor is None:
            question = replace(question, relevance_floor=settings.relevance_floor)
        self.answer = Answer(question=question, settings=settings)
        self._prefiller = prefiller
        self._connectors = connectors.values()
        self._on_record = on_record
        mode = self._entry.device(question, settings, resources)
        recorder = prefiller.recorder.also(self._record)
        asked = question.resumed((), MARKER if settings.keeps_drafts else None)
        marker = resources.marker if settings.redacts else ()
        door = Door(settings.keeps_drafts, marker, pack(asked))
        self._driver = driver = Driver(mode, recorder, prefiller.timeouts, door)
        for name, connector in connectors.items():
            driver.add(name, connector)
        self._several = len(connectors) > 1  # the events then belong to no session

    def stop(self, reason: Finish = Finish.CANCELLED) -> None:
        self._driver.stop(reason)

    async def ask(self) -> Answer:
        """Run the answer to its end and return it, also if `stop` ends it early. Call this once.

        Raises NotConnectedError if a needed side was never connected, DragonError on other errors.
        """
        answer, driver = self.answer, self._driver
        sessions = driver.sessions.values()
        answer.asked_s = asyncio.get_running_loop().time()
        before = self._traffic()
        await self._reach()
        own: tuple[str, ...] = ()  # values that this side's documents hold instead
        joining = [asyncio.create_task(self._keep_joined(each), name="join") for each in sessions]
        try:
            if self._several:
                self._opened(0)
            for session in sessions:
                self._join(session)
            if not self._several and not any(session.number for session in sessions):
                self._opened(0)
            asked, how = answer.question, answer.settings
            make = self._prefiller.prepare
            read = await driver.prepare(make(asked, verifies=how.verifies, late=how.prefills_late))
            if read is not None:
                answer.passages = read.passages
                driver.begin(read)
            await driver.wait_over()
            answer.finish = driver.finish or Finish.CANCELLED
            if read is not None and answer.finish is not Finish.CANCELLED:
                own = await read.other_values(driver.mode.decided)
        finally:
            for task in joining:
                task.cancel()
            await asyncio.gather(*joining, return_exceptions=True)
            await driver.settle()
            if answer.finish is not Finish.CANCELLED:
                await asyncio.gather(*(session.conclude() for session in sessions))
            for session in sessions:
                session.close(End(Reason.CANCELLED, ""))
            await driver.settle()
            told = {each.name: each.attribution.differing for each in sessions if each.attribution}
            for line in disagreements(own, told, driver.mode.evidence.weight):
                driver.record(Noticed(NoticeKind.DISAGREEMENT, line))
            spent = Traffic(*map(sub, self._traffic(), before))
            rtt_s = max((each.rtt_s for each in sessions), default=0.0)
            held_s = self._held_s()
            answer.rtt_s, answer.bytes_sent, answer.bytes_received = rtt_s, *spent[:2]
            finish = driver.finish.value if driver.finish else "error"
            driver.record(events.AnswerClosed(finish, *spent[:2], rtt_s, *spent[2:], held_s))
            answer.attributions = tuple(each.attribution for each in sessions if each.took_part)
            answer.evidence = driver.mode.evidence
        return answer

    def _record(self, record: Record) -> None:
        if not isinstance(record.event, events.Drafted):
            self.answer.records.append(record)
        self._on_record(record)

    def _opened(self, accepted: int) -> None:
        answer = self.answer
        self._driver.record(opening(self._entry, answer.question, answer.settings, accepted))

    def _traffic(self) -> Traffic:
        return Traffic.total(each.traffic() for each in self._connectors)

    def _held_s(self) -> float | None:
        """Return how long messages waited for their ticks, on average over a connection."""
        peers = [each.peer for each in self._connectors]
        paced = [peer.pacing for peer in peers if peer is not None and peer.pacing.waits]
        waits = sum(each.waits for each in paced)
        return sum(each.waited_s for each in paced) / waits if waits else None

    # Joining and rejoining.

    async def _reach(self) -> None:
        """Dial if nothing is connected. Raises NotConnectedError if a needed side never was."""
        links, settings = self._connectors, self.answer.settings
        if not any(each.peer for each in links):
            await asyncio.gather(*(each.reach() for each in links))
        enough = all if settings.needs_all else any
        if not settings.goes_alone and not enough(each.connections for each in links):
            away = (each.absence for each in links if not each.connections and each.absence)
            why = next(away, "not dialled yet")
            raise NotConnectedError(f"a needed side is not connected: {why}")

    def _join(self, session: AnswerSession) -> None:
        """Open a session that resumes from the decided tokens, if there is a connection now."""
        peer = session.connector.peer if session.connector is not None else None
        if peer is None:
            who = "it" if self._several else f"the {session.name}"
            end = End(Reason.LOST, f"{who} is not connected")
            self._driver.feed(Left(session.name, end, True))
            session.gone.set()
            return
        hello = peer.connection.peer
        weights = "unknown" if hello is None else hello.weights
        if session.weights in (None, weights):
            session.weights = weights
            self._open(session, peer)
        else:
            self._give_up(session, f"another model answers as the {session.name} now")

    def _open(self, session: AnswerSession, peer: Peer) -> None:
        driver, settings = self._driver, self.answer.settings
        session.number = number = peer.next_number()
        if not self._several:
            self._opened(len(driver.mode.decided))
        peer.pacing.shape(settings.pads, settings.constant_rate)
        asked = driver.mode.disclosed(self.answer.question)
        message = wire.Open(number, self._entry.name, pack(asked), pack(settings))
        if session.open(peer, message):
            driver.feed(Joined(session.name, number))
        else:
            self._give_up(session, "the mode asks with more than the level lets out")

    def _give_up(self, session: AnswerSession, why: str) -> None:
        self._driver.feed(Left(session.name, End(Reason.UNSUPPORTED, why), False))
        session.gone.clear()

    async def _keep_joined(self, session: AnswerSession) -> None:
        """Resume the session from the decided tokens whenever its other side is back."""
        connector, timeouts = session.connector, self._driver.timeouts
        clock, back_off = asyncio.get_running_loop().time, BackOff(timeouts)
        while connector is not None and not session.over:
            since_s = clock()
            await session.gone.wait()
            back_off.lasted(clock() - since_s)
            await asyncio.sleep(max(back_off.take(), session.retry_s))
            connector.hurry()
            while await connector.wait_connected(timeouts.answer_s) is None:
                pass
            if not session.over:
                self._join(session)
