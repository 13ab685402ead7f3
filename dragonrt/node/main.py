"""Running a process: its event loop, and the two programs that live in it."""

import asyncio
import ctypes
import gc
import signal
import sys
import time
from collections.abc import AsyncIterator, Callable, Coroutine, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager, nullcontext, suppress
from dataclasses import dataclass, field, replace
from typing import Any, TypeVar

from dragonrt.backends.model import LanguageModel
from dragonrt.errors import DragonError
from dragonrt.modes.question import Question, Turn
from dragonrt.modes.registry import Resources
from dragonrt.modes.settings import Settings
from dragonrt.node.addresses import Member
from dragonrt.node.answer import OnRecord
from dragonrt.node.client_session import ClientSession
from dragonrt.node.connector import Connector, NotConnectedError, Reachable, mistaken
from dragonrt.node.ending import handler_kept, on_signals, terminable
from dragonrt.node.endpoints import Address, Identity, connector, serve
from dragonrt.node.fleet import Fleet
from dragonrt.node.gatekeeper import USUAL_LIMITS, CloudLimits, Gatekeeper
from dragonrt.node.library import Library
from dragonrt.node.lobby import Lobby
from dragonrt.node.local_side import LocalSide
from dragonrt.node.process import local_side
from dragonrt.node.reindexing import OnReport
from dragonrt.node.resources import mode_resources
from dragonrt.node.side_settings import SideSettings
from dragonrt.side import Side
from dragonrt.timeouts import USUAL, Timeouts
from dragonrt.traces.counts import AnswerCounts
from dragonrt.traces.dropped_mass import DroppedMass
from dragonrt.traces.events import AnswerClosed, AnswerOpened, Record, ThresholdMoved
from dragonrt.traces.file import Recorder, Sink

T = TypeVar("T")

SESSIONS_APART = 2**20
"""So many numbers of sessions are a host's of several, so that a trace can tell them apart."""
REMEMBERED = 1024
"""Answers of which is known what a cloud may read of them."""
M_ARENA_MAX, ARENAS = -8, 2
"""The option of glibc's mallopt, and its value."""
SWITCH_S = 0.0005
"""How long one thread may hold the interpreter while another wants it."""


def run(main: Coroutine[Any, Any, T]) -> T:
    """Run a process's coroutine, on uvloop where there is one; SIGTERM ends it by SystemExit."""
    _share_memory()
    # What was loaded lives as long as the process: collecting it would stall decoding and the exit.
    gc.freeze()
    # The model's thread must not keep the loop waiting for the interpreter: 5 ms by default.
    sys.setswitchinterval(SWITCH_S)
    with handler_kept(), asyncio.Runner(loop_factory=_loop) as runner:
        return runner.run(terminable(main))


def _share_memory() -> None:
    """Let threads allocate from few places: what each freed in its own would stay there unused."""
    if sys.platform == "linux" and hasattr(library := ctypes.CDLL(None), "mallopt"):
        library.mallopt(M_ARENA_MAX, ARENAS)


def _loop() -> asyncio.AbstractEventLoop:
    if sys.platform == "win32":
        return asyncio.new_event_loop()
    import uvloop

    class Loop(uvloop.Loop):
        """uvloop's clock is the same one, but counts whole milliseconds."""

        def time(self) -> float:
            return time.monotonic()

    loop: asyncio.AbstractEventLoop = Loop()
    return loop


def identity(
    side: Side, model: LanguageModel, corpus: Callable[[], str] = lambda: "unknown"
) -> Identity:
    """What a side with this model says of itself in the handshake."""
    fingerprint = model.tokenizer_fingerprint
    return Identity(side, fingerprint, model.vocabulary, model.name, model.fingerprint, corpus)


@dataclass(frozen=True, slots=True)
class Cloud:
    """What there is to be seen of a cloud that runs."""

    side: LocalSide
    gatekeeper: Gatekeeper
    lobby: Lobby


async def run_cloud(
    settings: SideSettings,
    model: LanguageModel,
    library: Library | None,
    address: Address,
    on_change: Callable[[str], None],
    on_ready: Callable[[int], None],
    limits: CloudLimits = USUAL_LIMITS,
    on_report: OnReport = lambda report: None,
    beside: Callable[[Cloud], AbstractAsyncContextManager[None]] = lambda cloud: nullcontext(),
    *listeners: Sink,
) -> None:
    """Serve devices until SIGINT or SIGTERM; `on_ready` hears the port.

    Answers under way may finish, within this side's timeouts, unless a second signal comes.
    `on_report` hears of the updates of an index that is watched, `listeners` of every event.
    `beside` runs along.
    """
    asked, insisted = asyncio.Event(), asyncio.Event()
    async with local_side(settings, model, library, on_report, *listeners) as side:
        gatekeeper, lobby = Gatekeeper(side, limits), Lobby(side.timeouts.handshake_s)
        known = identity("cloud", model, lambda: side.corpus)
        listening = await serve(address, known, side, gatekeeper, on_change, lobby)
        async with listening as server, beside(Cloud(side, gatekeeper, lobby)):
            on_signals((signal.SIGINT, signal.SIGTERM), asked.set, insisted.set)
            on_ready(server.port)
            await asked.wait()
            server.stop_listening()
            ends = [
                asyncio.ensure_future(gatekeeper.drain(side.timeouts.answer_s)),
                asyncio.ensure_future(insisted.wait()),
            ]
            await asyncio.wait(ends, return_when=asyncio.FIRST_COMPLETED)
            for end in ends:
                end.cancel()
            await asyncio.gather(*ends, return_exceptions=True)


@dataclass(slots=True)
class Device:
    """A device that dials its other sides: it asks one question after another.

    `dropped` is what C-SQS dropped in all answers so far: the next one goes on with its threshold.
    `shown` is what a cloud may read of the latest answers, where drafts are not disclosed.
    `unmet` are the other sides that the resources depends on, and that were not there yet.
    """

    side: LocalSide
    connectors: Mapping[str, Reachable]
    settings: Settings
    resources: Resources
    dropped: DroppedMass | None = None
    unmet: Sequence[Member] = ()
    shown: dict[Turn, str] = field(default_factory=dict)

    def remember(self, turn: Turn, shown: str) -> None:
        """Note what was shown of an answer; the oldest of REMEMBERED ones is forgotten."""
        self.shown.pop(turn, None)
        self.shown[turn] = shown
        while len(self.shown) > REMEMBERED:
            del self.shown[next(iter(self.shown))]

    def asking(
        self, question: Question, on_record: OnRecord = lambda record: None
    ) -> ClientSession:
        """An answer that can be asked for; `on_record` hears what happens.

        Raises DragonError while the other side, whose model the mode must know, was never there.
        """
        resources, told = self._completed(), AnswerCounts()
        if self.dropped is not None:
            resources = replace(resources, threshold=self.dropped.threshold)

        def heard(record: Record) -> None:
            on_record(record)
            if isinstance(record.event, AnswerOpened | ThresholdMoved):
                told.take(record)
            elif isinstance(record.event, AnswerClosed) and told.counts.dropped_mass is not None:
                found = told.counts.dropped_mass
                self.dropped = found if self.dropped is None else self.dropped + found

        return ClientSession(self.side, self.connectors, question, self.settings, resources, heard)

    def _completed(self) -> Resources:
        if self.unmet:
            for link in self.connectors.values():
                link.hurry()  # for the next question
            self.resources, self.settings = mode_resources(
                self.side, self.unmet, self.connectors, self.settings
            )
            self.unmet = ()
        return self.resources


@asynccontextmanager
async def device(
    settings: SideSettings,
    model: LanguageModel,
    library: Library | None,
    members: Sequence[Member],
    how: Settings,
    on_notice: Callable[[str], None] = lambda text: None,
    on_report: OnReport = lambda report: None,
    *listeners: Sink,
) -> AsyncIterator[Device]:
    """A device that dials its other sides as long as the context lasts, whether or not they answer.

    `on_notice` hears when one is not there, lost or there again, `on_report` of the updates of an
    index that is watched; `listeners` hear of every event. Raises DragonError if one does not let
    this side in, for a reason that somebody has to mend.
    """
    async with local_side(settings, model, library, on_report, *listeners) as side:
        connectors = _ways(members, model, side.timeouts, side.recorder, on_notice)
        resources, unmet = Resources(vocabulary=side.vocabulary), members
        async with _dialling(connectors, how, on_notice):
            with suppress(NotConnectedError):
                (resources, how), unmet = mode_resources(side, members, connectors, how), ()
            yield Device(side, connectors, how, resources, unmet=unmet)


async def look(
    model: LanguageModel,
    members: Sequence[Member],
    how: Settings,
    on_notice: Callable[[str], None],
) -> None:
    """Dial each other side once, and leave; `on_notice` hears who is not there.

    Raises DragonError as `device` does, before anything that takes long is begun.
    """
    recorder = Recorder(asyncio.get_running_loop().time, "device", ())
    ways = _ways(members, model, USUAL, recorder, on_notice)
    async with _dialling(ways, how, on_notice):
        pass


Link = Fleet | Connector


def _ways(
    members: Sequence[Member],
    model: LanguageModel,
    timeouts: Timeouts,
    recorder: Recorder,
    on_notice: Callable[[str], None],
) -> dict[str, Link]:
    """The connections to the members, or to their hosts, by the members' names."""
    # The events of a connection name its worker: sessions are numbered alike on each.
    several = len(members) > 1

    def way(host: Member, to: Recorder, who: str, first_session: int = 1) -> Connector:
        known = identity("device", model)
        return connector(host.address, known, timeouts, to, first_session, on_notice, who)

    def link(member: Member) -> Link:
        to = recorder.of(member.name) if several else recorder
        if not member.hosts:
            return way(member, to, f"the worker {member.name}" if several else "the cloud")
        # Sessions of several hosts have other numbers.
        hosts = {
            host.name: way(host, to, f"the host {host.name}", 1 + number * SESSIONS_APART)
            for number, host in enumerate(member.hosts)
        }
        return Fleet(hosts, on_notice, timeouts)

    return {member.name: link(member) for member in members}


@asynccontextmanager
async def _dialling(
    links: Mapping[str, Link], how: Settings, on_notice: Callable[[str], None]
) -> AsyncIterator[None]:
    """Dial each once, and then work on the connections until the context ends.

    Raises DragonError if dialling one cannot succeed before somebody mends something.
    """

    async def attach(link: Link) -> DragonError | None:
        try:
            await link.connect()
        except DragonError as error:
            return error
        return None

    keepers: list[asyncio.Task[None]] = []
    try:
        errors = await asyncio.gather(*map(attach, links.values()))
        keepers += (asyncio.create_task(each.run(), name="connector") for each in links.values())
        for name, error in zip(links, errors, strict=True):
            who = f"the worker {name}" if len(links) > 1 else "the cloud"
            if error is not None and mistaken(error):
                raise error if len(links) == 1 else DragonError(f"{who}: {error}") from error
            if error is not None:
                until = "going on without" if how.goes_alone else "answering nothing without"
                on_notice(f"{until} {who} until it can be reached: {error}")
        yield
    finally:
        # To end a cadence early would tell when the answer ended.
        await asyncio.gather(*(link.settled() for link in links.values()))
        await asyncio.sleep(0)  # a task that is cancelled before it has begun closes nothing
        for keeper in keepers:
            keeper.cancel()
        await asyncio.gather(*keepers, return_exceptions=True)
