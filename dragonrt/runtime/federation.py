"""A coordinator that is connected to its workers (SPEC 3)."""

import asyncio
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace

from dragonrt.errors import DragonError
from dragonrt.language.model import LanguageModel
from dragonrt.runtime.connector import PASSING
from dragonrt.runtime.endpoints import Address, connector
from dragonrt.runtime.library import Library
from dragonrt.runtime.local_side import LocalSide
from dragonrt.runtime.main import identity
from dragonrt.runtime.modes.federated import Member
from dragonrt.runtime.process import SideSettings, local_side
from dragonrt.wire.errors import HandshakeError


@dataclass(frozen=True, slots=True)
class WorkerAddress:
    """Where a worker listens, and the weight of what it says: above 0, of any sum with others'."""

    address: Address
    weight: float = 1.0

    @property
    def name(self) -> str:
        return f"{self.address.host}:{self.address.port}"


@asynccontextmanager
async def coordinator(
    settings: SideSettings,
    model: LanguageModel,
    library: Library | None,
    workers: Sequence[WorkerAddress],
    *,
    require_all: bool,
    on_notice: Callable[[str], None],
) -> AsyncIterator[tuple[LocalSide, Sequence[Member]]]:
    """A coordinator and its workers, until the context ends.

    A worker that cannot be reached now is tried again and again; `on_notice` hears of it. Raises
    DragonError if none can be reached or, with `require_all`, not all, or if one does not fit.
    """
    async with local_side(settings, model, library) as side:
        members = [_member(side, worker) for worker in workers]
        keepers: list[asyncio.Task[None]] = []

        async def attach(member: Member) -> DragonError | None:
            error = None
            try:
                await member.connector.connect()
            except DragonError as found:
                error = found
            keepers.append(asyncio.create_task(member.connector.run(), name=member.name))
            return error

        try:
            errors = await asyncio.gather(*map(attach, members))
            _check(members, errors, require_all=require_all, on_notice=on_notice)
            yield side, members
        finally:
            for keeper in keepers:
                keeper.cancel()
            await asyncio.gather(*keepers, return_exceptions=True)


def _member(side: LocalSide, worker: WorkerAddress) -> Member:
    """The events of its connection name the worker: sessions are numbered alike on each."""
    traced = replace(side, trace=side.trace.of(worker.name))
    return Member(worker.name, connector(worker.address, identity(side), traced), worker.weight)


def _check(
    members: Sequence[Member],
    errors: Sequence[DragonError | None],
    *,
    require_all: bool,
    on_notice: Callable[[str], None],
) -> None:
    """Raise DragonError where it makes no sense to begin."""
    found = [(member.name, error) for member, error in zip(members, errors, strict=True) if error]
    for name, error in found:
        hopeless = isinstance(error, HandshakeError) and error.reason not in PASSING
        if require_all or hopeless or len(found) == len(members):
            raise DragonError(f"worker {name}: {error}") from error
    for name, error in found:
        on_notice(f"going on without the worker {name} until it can be reached: {error}")
