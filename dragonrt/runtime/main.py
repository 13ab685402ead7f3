"""Running a process: its event loop, and the two programs that live in it."""

import asyncio
import gc
import signal
import sys
import time
from collections.abc import AsyncIterator, Callable, Coroutine, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, TypeVar

from dragonrt.control import controller
from dragonrt.control.verifier import Verifier
from dragonrt.errors import DragonError
from dragonrt.language.model import LanguageModel
from dragonrt.modes.catalogue import Kit
from dragonrt.modes.question import Question
from dragonrt.modes.settings import (
    FederatedSettings,
    Settings,
    SpeculativeSettings,
    SprinterSettings,
)
from dragonrt.runtime.answer import Asking, OnRecord
from dragonrt.runtime.connector import PASSING, Connector
from dragonrt.runtime.endpoints import Address, Identity, connector, serve
from dragonrt.runtime.library import Library
from dragonrt.runtime.local_side import LocalSide
from dragonrt.runtime.process import SideSettings, local_side
from dragonrt.wire.errors import HandshakeError

T = TypeVar("T")


def run(main: Coroutine[Any, Any, T]) -> T:
    """Run a process's coroutine, on uvloop where there is one."""
    # What was loaded lives as long as the process: collecting it would stall decoding and the exit.
    gc.freeze()
    with asyncio.Runner(loop_factory=_loop) as runner:
        return runner.run(main)


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
        side.side, model.tokenizer_fingerprint, model.vocabulary, model.name, model.fingerprint
    )


async def run_cloud(
    settings: SideSettings,
    model: LanguageModel,
    library: Library | None,
    address: Address,
    on_change: Callable[[str], None],
    on_ready: Callable[[int], None],
) -> None:
    """Serve devices until SIGINT or SIGTERM; `on_ready` hears the port."""
    stopped = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, stopped.set)
    async with (
        local_side(settings, model, library) as side,
        await serve(address, identity(side), side, on_change) as server,
    ):
        on_ready(server.port)
        await stopped.wait()


@dataclass(frozen=True, slots=True)
class Member:
    """Another side as the user names it: where it listens, and the weight of what it says.

    Weights are above 0 and need not sum to 1; they count in mode federated.
    """

    name: str
    address: Address
    weight: float = 1.0


@dataclass(frozen=True, slots=True)
class Device:
    """A device that is connected to its other sides: it asks one question after another."""

    side: LocalSide
    connectors: Mapping[str, Connector]
    settings: Settings
    kit: Kit

    def asking(self, question: Question, on_record: OnRecord = lambda record: None) -> Asking:
        """An answer that can be asked for; `on_record` hears what happens."""
        return Asking(self.side, self.connectors, question, self.settings, self.kit, on_record)


@asynccontextmanager
async def device(
    settings: SideSettings,
    model: LanguageModel,
    library: Library | None,
    members: Sequence[Member],
    how: Settings,
    on_notice: Callable[[str], None] = lambda text: None,
) -> AsyncIterator[Device]:
    """A device that is connected to its other sides, until the context ends.

    One of several that cannot be reached now is tried again and again; `on_notice` hears of it.
    Raises DragonError if none can be reached or, where all are required, not all, or if one does
    not fit.
    """
    async with local_side(settings, model, library) as side:
        # The events of a connection name its worker: sessions are numbered alike on each.
        several = len(members) > 1
        connectors = {
            member.name: connector(
                member.address,
                identity(side),
                side,
                side.recorder.of(member.name) if several else side.recorder,
            )
            for member in members
        }
        keepers: list[asyncio.Task[None]] = []

        async def attach(link: Connector) -> DragonError | None:
            error = None
            try:
                await link.connect()
            except DragonError as found:
                error = found
            keepers.append(asyncio.create_task(link.run(), name="connector"))
            return error

        try:
            errors = await asyncio.gather(*map(attach, connectors.values()))
            failed = {n: e for n, e in zip(connectors, errors, strict=True) if e is not None}
            require_all = isinstance(how, FederatedSettings) and how.require_all
            _check_reached(failed, len(members), require_all=require_all)
            for name, error in failed.items():
                on_notice(f"going on without the worker {name} until it can be reached: {error}")
            kit = _kit(side, members, connectors, how)
            yield Device(side, connectors, kit_settings(how, kit), kit)
        finally:
            await asyncio.sleep(0)  # a task that is cancelled before it has begun closes nothing
            for keeper in keepers:
                keeper.cancel()
            await asyncio.gather(*keepers, return_exceptions=True)


def _check_reached(failed: Mapping[str, DragonError], count: int, *, require_all: bool) -> None:
    """Raise DragonError where it makes no sense to begin."""
    for name, error in failed.items():
        hopeless = isinstance(error, HandshakeError) and error.reason not in PASSING
        if count == 1:
            raise error
        if require_all or hopeless or len(failed) == count:
            raise DragonError(f"worker {name}: {error}") from error


def _kit(
    side: LocalSide, members: Sequence[Member], connectors: Mapping[str, Connector], how: Settings
) -> Kit:
    """What the mode needs beside its settings; raises DragonError for what does not fit."""
    kit = Kit(
        vocabulary=side.vocabulary,
        patience=side.patience,
        members={member.name: member.weight for member in members},
        profile=side.profile,
    )
    if isinstance(how, SpeculativeSettings) and how.controller is not None:
        return replace(kit, controller=controller(how.controller))
    if isinstance(how, SprinterSettings):
        given = Verifier.load(Path(how.verifier)) if how.verifier is not None else None
        peer = connectors[members[0].name].peer
        cloud = peer.connection.peer if peer is not None else None
        if cloud is None:
            raise DragonError("the cloud was lost as soon as it was reached: try again")
        return replace(kit, verifier=verifier_of(side.model.fingerprint, cloud.weights, given))
    return kit


def kit_settings(how: Settings, kit: Kit) -> Settings:
    """The settings as the kit completes them: a verifier has a threshold of its own."""
    if isinstance(how, SprinterSettings) and how.threshold is None and kit.verifier is not None:
        return replace(how, threshold=kit.verifier.threshold)
    return how


def verifier_of(draft: str, target: str, given: Verifier | None) -> Verifier:
    """`given`, if it was trained for the models with these fingerprints, else the bundled one.

    Raises DragonError where the given one does not fit, or none was given and none is bundled.
    """
    if given is None:
        return Verifier.for_pair(draft, target, "sprinter")
    if given.kind != "sprinter":
        raise DragonError(
            f"a {given.kind} verifier does not predict what sprinter needs: "
            "train one with `dragonrt train verifier --kind sprinter`"
        )
    given.check_pair(draft, target)
    return given
