"""Running a process: its event loop, and the two programs that live in it."""

import asyncio
import ctypes
import gc
import signal
import sys
import time
from collections.abc import AsyncIterator, Callable, Coroutine, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from typing import Any, TypeVar

from dragonrt.errors import DragonError
from dragonrt.language.model import LanguageModel
from dragonrt.modes.catalogue import Kit
from dragonrt.modes.question import Question, Turn
from dragonrt.modes.settings import (
    FederatedSettings,
    Settings,
)
from dragonrt.runtime.addresses import Member
from dragonrt.runtime.answer import OnRecord
from dragonrt.runtime.asking import Asking
from dragonrt.runtime.connector import PASSING, Connector, Reachable
from dragonrt.runtime.endpoints import Address, Identity, connector, serve
from dragonrt.runtime.fleet import Fleet
from dragonrt.runtime.gatekeeper import USUAL_LIMITS, CloudLimits, Gatekeeper
from dragonrt.runtime.kits import completed, kit_of
from dragonrt.runtime.library import Library
from dragonrt.runtime.local_side import LocalSide
from dragonrt.runtime.process import local_side
from dragonrt.runtime.reindexing import OnReport
from dragonrt.runtime.side_settings import SideSettings
from dragonrt.traces.counts import AnswerCounts
from dragonrt.traces.dropped_mass import DroppedMass
from dragonrt.traces.events import AnswerClosed, AnswerOpened, Record, ThresholdMoved
from dragonrt.traces.file import Recorder, Sink
from dragonrt.wire.reasons import HandshakeError

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
    """Run a process's coroutine, on uvloop where there is one."""
    _share_memory()
    # What was loaded lives as long as the process: collecting it would stall decoding and the exit.
    gc.freeze()
    # The model's thread must not keep the loop waiting for the interpreter: 5 ms by default.
    sys.setswitchinterval(SWITCH_S)
    with asyncio.Runner(loop_factory=_loop) as runner:
        return runner.run(main)


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


def identity(side: LocalSide) -> Identity:
    """What this side says of itself in the handshake."""
    model = side.model
    return Identity(
        side.side,
        model.tokenizer_fingerprint,
        model.vocabulary,
        model.name,
        model.fingerprint,
        lambda: side.corpus if side.side == "cloud" else "unknown",
    )


async def run_cloud(
    settings: SideSettings,
    model: LanguageModel,
    library: Library | None,
    address: Address,
    on_change: Callable[[str], None],
    on_ready: Callable[[int], None],
    limits: CloudLimits = USUAL_LIMITS,
    on_report: OnReport = lambda report: None,
) -> None:
    """Serve devices until SIGINT or SIGTERM; `on_ready` hears the port.

    Answers under way may finish, within this side's patience, unless a second signal comes.
    `on_report` hears of the updates of an index that is watched.
    """
    asked, insisted = asyncio.Event(), asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, lambda: (insisted if asked.is_set() else asked).set())
    async with local_side(settings, model, library, on_report) as side:
        gatekeeper = Gatekeeper(side, limits)
        async with await serve(address, identity(side), side, gatekeeper, on_change) as server:
            on_ready(server.port)
            await asked.wait()
            server.stop_listening()
            ends = [
                asyncio.ensure_future(gatekeeper.drain(side.patience.answer_s)),
                asyncio.ensure_future(insisted.wait()),
            ]
            await asyncio.wait(ends, return_when=asyncio.FIRST_COMPLETED)
            for end in ends:
                end.cancel()
            await asyncio.gather(*ends, return_exceptions=True)


@dataclass(slots=True)
class Device:
    """A device that is connected to its other sides: it asks one question after another.

    `dropped` is what C-SQS dropped in all answers so far: the next one goes on with its threshold.
    `shown` is what a cloud may read of the latest answers, where drafts are not disclosed.
    """

    side: LocalSide
    connectors: Mapping[str, Reachable]
    settings: Settings
    kit: Kit
    dropped: DroppedMass | None = None
    shown: dict[Turn, str] = field(default_factory=dict)

    def remember(self, turn: Turn, shown: str) -> None:
        """Note what was shown of an answer; the oldest of REMEMBERED ones is forgotten."""
        self.shown.pop(turn, None)
        self.shown[turn] = shown
        while len(self.shown) > REMEMBERED:
            del self.shown[next(iter(self.shown))]

    def asking(self, question: Question, on_record: OnRecord = lambda record: None) -> Asking:
        """An answer that can be asked for; `on_record` hears what happens."""
        kit, told = self.kit, AnswerCounts()
        if self.dropped is not None:
            kit = replace(kit, threshold=self.dropped.threshold)

        def heard(record: Record) -> None:
            on_record(record)
            if isinstance(record.event, AnswerOpened | ThresholdMoved):
                told.take(record)
            elif isinstance(record.event, AnswerClosed) and told.counts.dropped_mass is not None:
                found = told.counts.dropped_mass
                self.dropped = found if self.dropped is None else self.dropped + found

        return Asking(self.side, self.connectors, question, self.settings, kit, heard)


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
    """A device that is connected to its other sides, until the context ends.

    One of several that cannot be reached now is tried again and again; `on_notice` hears of it, and
    `on_report` of the updates of an index that is watched; `listeners` hear of every event.
    Raises DragonError if none can be reached or, where all are required, not all, or if one does
    not fit.
    """
    async with local_side(settings, model, library, on_report, *listeners) as side:
        # The events of a connection name its worker: sessions are numbered alike on each.
        several = len(members) > 1
        connectors = {
            member.name: _way(
                member,
                side,
                side.recorder.of(member.name) if several else side.recorder,
                on_notice,
            )
            for member in members
        }
        keepers: list[asyncio.Task[None]] = []

        def keep(link: Fleet | Connector) -> None:
            keepers.append(asyncio.create_task(link.run(), name="connector"))

        async def attach(link: Fleet | Connector) -> DragonError | None:
            try:
                await link.connect()
            except DragonError as error:
                return error
            keep(link)
            return None

        try:
            errors = await asyncio.gather(*map(attach, connectors.values()))
            failed = {n: e for n, e in zip(connectors, errors, strict=True) if e is not None}
            require_all = isinstance(how, FederatedSettings) and how.require_all
            _check_reached(failed, len(members), require_all=require_all)
            for name, error in failed.items():
                on_notice(f"going on without the worker {name} until it can be reached: {error}")
                keep(connectors[name])  # not before: a refusal would be told twice
            kit = kit_of(side, members, connectors, how)
            yield Device(side, connectors, completed(how, kit), kit)
        finally:
            # To end a cadence early would tell when the answer ended.
            await asyncio.gather(*(link.settled() for link in connectors.values()))
            await asyncio.sleep(0)  # a task that is cancelled before it has begun closes nothing
            for keeper in keepers:
                keeper.cancel()
            await asyncio.gather(*keepers, return_exceptions=True)


def _way(
    member: Member, side: LocalSide, recorder: Recorder, on_notice: Callable[[str], None]
) -> Fleet | Connector:
    """The connection to a member, or those to its hosts, whose sessions have other numbers."""

    def way(host: Member, first_session: int = 1) -> Connector:
        return connector(host.address, identity(side), side, recorder, first_session)

    if not member.hosts:
        return way(member)
    hosts = {
        host.name: way(host, 1 + number * SESSIONS_APART)
        for number, host in enumerate(member.hosts)
    }
    return Fleet(hosts, on_notice, side.patience)


def _check_reached(failed: Mapping[str, DragonError], count: int, *, require_all: bool) -> None:
    """Raise DragonError where it makes no sense to begin."""
    for name, error in failed.items():
        hopeless = isinstance(error, HandshakeError) and error.reason not in PASSING
        if count == 1:
            raise error
        if require_all or hopeless or len(failed) == count:
            raise DragonError(f"worker {name}: {error}") from error
