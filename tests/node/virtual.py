"""Tests that run in virtual time, and what they look at."""

import asyncio
import functools
from collections.abc import Callable, Coroutine
from typing import Any, ParamSpec

from dragonrt.link.emulation import memory_streams
from dragonrt.link.stream import Stream
from dragonrt.modes.mode import Work
from dragonrt.node.answers.client_session import Answer
from dragonrt.node.answers.model_session import BackendSession, ForwardResult
from dragonrt.node.connections.peer import Peer
from dragonrt.testing.loop import run
from dragonrt.testing.pair import SimulatedCloud, SimulatedSide
from dragonrt.traces.counts import AnswerCounts

P = ParamSpec("P")


def virtual(test: Callable[P, Coroutine[Any, Any, None]]) -> Callable[P, None]:
    """Run a test in a loop whose waits take no time."""

    @functools.wraps(test)
    def running(*args: P.args, **kwargs: P.kwargs) -> None:
        run(test(*args, **kwargs))

    return running


def alone_from(answer: Answer) -> int | None:
    """From which token on the device answered alone."""
    return AnswerCounts.of(answer.records).alone_from


def alone(answer: Answer) -> bool:
    return alone_from(answer) is not None


def peer_of(
    device: SimulatedSide,
    cloud: SimulatedCloud,
    around: Callable[[Stream], Stream] = lambda stream: stream,
) -> Peer:
    """The device's end of a new connection to that cloud."""
    ours, theirs = memory_streams()
    cloud.accept(theirs)
    return Peer(around(ours), device.connection(), device.recorder)


async def outcome(session: BackendSession, work: Work) -> ForwardResult:
    """What a work comes to; never at once."""
    done: asyncio.Future[ForwardResult] = asyncio.get_running_loop().create_future()
    session.start(work, done.set_result)
    assert not done.done()
    return await done
