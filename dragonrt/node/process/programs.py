"""Run the event loop of a process, and in it a cloud or a device."""

import asyncio
import ctypes
import gc
import signal
import sys
import threading
import time
from collections.abc import AsyncIterator, Callable, Coroutine, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager, nullcontext, suppress
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

import platformdirs
from typing_extensions import override

from dragonrt.backends.model import LanguageModel
from dragonrt.errors import DragonError
from dragonrt.link.stream import Server
from dragonrt.modes import entry_of
from dragonrt.modes.question import Question
from dragonrt.modes.settings import Counterpart, Resources, Settings
from dragonrt.node.answers import server_session
from dragonrt.node.answers.client_session import ClientSession
from dragonrt.node.answers.disclosed import DisclosedAnswers
from dragonrt.node.answers.driver import OnRecord
from dragonrt.node.connections.addresses import Address, Identity, Member
from dragonrt.node.connections.admission import USUAL_LIMITS, CloudAdmission, CloudLimits, serve
from dragonrt.node.connections.connector import Connector, NotConnectedError, kept, mistaken
from dragonrt.node.connections.peer import Peer
from dragonrt.node.process.composition import Loaded, local_side
from dragonrt.node.process.ending import on_signals, terminable
from dragonrt.node.process.local_side import LocalSide
from dragonrt.timeouts import USUAL, Timeouts
from dragonrt.traces.events import AnswerClosed, Noticed, NoticeKind, OnNotice, Record
from dragonrt.traces.file import Recorder

T = TypeVar("T")

M_ARENA_MAX, ARENAS = -8, 2  # the option of glibc's mallopt, and its value
SWITCH_S = 0.0005  # for which a thread may hold the interpreter if another waits; usually 0.005


def run(main: Coroutine[Any, Any, T]) -> T:
    """Run `main` in a new event loop (uvloop, not on Windows); SIGTERM ends it by SystemExit."""
    # Threads share few arenas: memory freed in a thread's own arena would stay unused.
    if sys.platform == "linux" and hasattr(library := ctypes.CDLL(None), "mallopt"):
        library.mallopt(M_ARENA_MAX, ARENAS)
    # What was loaded lives as long as the process: collecting it would stall decoding and the exit.
    gc.freeze()
    sys.setswitchinterval(SWITCH_S)  # the model's thread must not keep the loop waiting
    before = signal.getsignal(signal.SIGTERM)
    try:
        with asyncio.Runner(loop_factory=_loop) as runner:
            return runner.run(terminable(main))
    finally:  # a loop that ends restores no handler
        if threading.current_thread() is threading.main_thread():
            signal.signal(signal.SIGTERM, before)


def _loop() -> asyncio.AbstractEventLoop:
    if sys.platform == "win32":
        return asyncio.new_event_loop()
    import uvloop

    class Loop(uvloop.Loop):  # with the monotonic clock: its own counts whole milliseconds
        @override
        def time(self) -> float:
            return time.monotonic()

    loop: asyncio.AbstractEventLoop = Loop()
    return loop


class LevelError(DragonError):
    """The device does not allow this disclosure level; `allowed` names the levels that it does."""

    def __init__(self, allowed: str) -> None:
        super().__init__(f"the level of disclosure must be {allowed}")
        self.allowed = allowed


@dataclass(frozen=True, slots=True)
class Cloud:
    """A running cloud, made by `cloud`: its side, server, and admission, which limits devices."""

    side: LocalSide
    admission: CloudAdmission
    server: Server

    @property
    def port(self) -> int:
        return self.server.port

    async def drain(self) -> None:
        """Stop listening, refuse new answers, and wait for open ones, up to timeout `answer_s`."""
        self.server.stop_listening()
        await self.admission.drain(self.side.timeouts.answer_s)


@asynccontextmanager
async def cloud(
    loaded: Loaded,
    address: Address,
    on_change: Callable[[str], None],
    limits: CloudLimits = USUAL_LIMITS,
) -> AsyncIterator[Cloud]:
    """Run a Cloud at `address` within the async context, and drain it at the end.

    `loaded` has its model and documents. `on_change` gets a text when a device comes or goes.
    """
    async with local_side(loaded) as side:
        admission = server_session.admission(side, limits)
        identity = Identity("cloud", side.model)
        listening = await serve(address, identity, admission, side.recorder, on_change)
        async with listening as server:
            yield (running := Cloud(side, admission, server))
            await running.drain()


async def run_cloud(
    cloud: AbstractAsyncContextManager[Cloud],
    on_ready: Callable[[int], None],
    pages: Callable[[Cloud], AbstractAsyncContextManager[None]] = lambda cloud: nullcontext(),
) -> None:
    """Serve devices until SIGINT or SIGTERM; call `on_ready` with the port when it listens.

    Open answers may then finish, until a second signal. `pages` makes a context that serves HTTP.
    """
    stopping = asyncio.Event()
    async with cloud as running, pages(running):
        on_signals((signal.SIGINT, signal.SIGTERM), stopping.set, running.admission.hasten)
        on_ready(running.port)
        await stopping.wait()
        await running.drain()


def counterpart(weight: float, connector: Connector) -> Counterpart:
    """Return the side behind `connector` as modes know it: mixture weight, model fingerprint."""

    def fingerprint() -> str:
        peer = connector.peer
        hello = peer.connection.peer if peer is not None else None
        if hello is None:
            why = "what was trained is chosen by the cloud's model, and the cloud is not there"
            raise NotConnectedError(f"{why}: {connector.absence}")
        return hello.weights

    return Counterpart(weight, fingerprint)


@dataclass(slots=True)
class Device:
    """A device that keeps its other sides connected and asks questions one after another.

    `disclosed` has the texts of earlier answers that other sides received. `resources`
    are timeouts and all else that the mode needs for any answer; None before `complete`.
    """

    side: LocalSide
    connectors: Mapping[str, Connector]
    settings: Settings
    resources: Resources | None = None
    members: Sequence[Member] = ()
    disclosed: DisclosedAnswers = field(default_factory=DisclosedAnswers)

    def asking(
        self, question: Question, on_record: OnRecord = lambda record: None
    ) -> ClientSession:
        """Return a session, whose `ask` answers the question; `on_record` gets trace records.

        Raises DragonError if the mode needs a side that is absent (see `complete`).
        """
        resources, entry = self.complete(), entry_of(self.settings)

        def take(record: Record) -> None:
            on_record(record)
            if isinstance(record.event, AnswerClosed):
                self.resources = entry.next_resources(resources, session.answer.records)

        session = ClientSession(
            self.side, self.connectors, question, self.settings, resources, take
        )
        return session

    @property
    def levels(self) -> Sequence[Settings]:
        """This device's settings, then copies for each stricter disclosure level it supports."""
        own = self.settings
        marker = (self.resources or self.side).marker
        return [each for each in own.levels if each is own or marker or not each.redacts]

    def at(self, level: str) -> "Device":
        """Return this device at a disclosure level. Raises LevelError if not among `levels`."""
        levels = {each.level: each for each in self.levels if each.level is not None}
        for name, how in levels.items():
            if name == level:
                return replace(self, settings=how)
        named = f"one of {', '.join(levels)}" if levels else "left out: this mode has no levels"
        raise LevelError(named)

    def complete(self) -> Resources:
        """Return what the mode needs for any answer, made once; DragonError if a side is away."""
        if self.resources is None:
            for connector in self.connectors.values():
                connector.hurry()  # for the next question
            found = {
                each.name: counterpart(each.weight, self.connectors[each.name])
                for each in self.members
            }
            self.resources = entry_of(self.settings).prepare(self.side, found, self.settings)
        return self.resources


@asynccontextmanager
async def device(
    loaded: Loaded,
    members: Sequence[Member],
    how: Settings,
    on_notice: OnNotice = lambda notice: None,
) -> AsyncIterator[Device]:
    """Run a Device within the async context, and keep its other sides connected.

    `how` are the mode's settings. `on_notice` gets a line when a side is absent, lost or back.
    Raises DragonError if one refuses permanently, such as for a wrong key.
    """
    async with (
        local_side(loaded) as side,
        _dialling(side.model, members, how, side.recorder, on_notice, side.timeouts) as connectors,
    ):
        disclosed = DisclosedAnswers(Path(platformdirs.user_data_dir("dragonrt")) / "told.jsonl")
        found = Device(side, connectors, how, None, members, disclosed)
        with suppress(NotConnectedError):
            found.complete()
        yield found


async def check_dialling(
    model: LanguageModel, members: Sequence[Member], how: Settings, on_notice: OnNotice
) -> None:
    """Dial a device's other sides once, with its model and settings, to report any error early."""
    recorder = Recorder(asyncio.get_running_loop().time, "device", ())
    async with _dialling(model, members, how, recorder, on_notice):
        pass


@asynccontextmanager
async def _dialling(
    model: LanguageModel,
    members: Sequence[Member],
    how: Settings,
    recorder: Recorder,
    on_notice: OnNotice,
    timeouts: Timeouts = USUAL,
) -> AsyncIterator[Mapping[str, Connector]]:
    """Dial each member once, and keep it connected until the context ends; see `device`."""
    several, identity = len(members) > 1, Identity("device", model)

    async def dial(member: Member) -> Peer:
        # The events of a connection name its worker: sessions are numbered alike on each.
        to = recorder.of(member.name) if several else recorder
        stream, connection = await member.address.dial(identity)
        return Peer(stream, connection, to, None, timeouts)

    names = [f"the worker {member.name}" if several else "the cloud" for member in members]
    links = [
        Connector(partial(dial, member), timeouts, on_notice, who)
        for member, who in zip(members, names, strict=True)
    ]
    errors = await asyncio.gather(*(link.connect() for link in links), return_exceptions=True)
    async with kept(*links):
        for who, error in zip(names, errors, strict=True):
            if error is not None and not isinstance(error, DragonError):
                raise error
            if error is not None and mistaken(error):
                raise DragonError(f"{who}: {error}") if several else error
            if error is not None:
                until = "continuing without" if how.goes_alone else "not answering without"
                text = f"{until} {who} until it can be reached: {error}"
                on_notice(Noticed(NoticeKind.UNREACHED, text))
        yield {member.name: link for member, link in zip(members, links, strict=True)}
