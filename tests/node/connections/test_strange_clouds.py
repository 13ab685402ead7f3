"""A device and a cloud that is mute, speaks nonsense, is too busy or falls over, in virtual time.

The device has its answer in seconds, says why it went alone, and does not knock without end.
"""

import asyncio
from collections.abc import Callable, Coroutine
from dataclasses import dataclass, replace
from typing import Any

import pytest

from dragonrt.link.emulation import memory_streams
from dragonrt.modes.dragon.settings import DragonSettings
from dragonrt.modes.question import Question
from dragonrt.modes.settings import Settings
from dragonrt.modes.speculative.settings import SpeculativeSettings
from dragonrt.node.answers.client_session import Answer, ClientSession
from dragonrt.node.connections.connector import Connector, kept
from dragonrt.node.connections.peer import Answerer, Peer, Session
from dragonrt.side import SIDES
from dragonrt.testing.loop import run
from dragonrt.testing.pair import SimulatedSide
from dragonrt.testing.scripted import Script, scripted_resources
from dragonrt.timeouts import USUAL
from dragonrt.traces.events import NoticeKind
from dragonrt.wire.messages import Message, Open, Opened
from dragonrt.wire.reasons import BusyError, Reason
from tests.node.virtual import alone_from
from tests.silent_session import SilentSession

QUESTION = Question(prompt="who?", seed=3, max_tokens=12)
DRAGON = DragonSettings(codec="topp:0.95", run_ahead=4)
BLOCKS = SpeculativeSettings()
SCRIPT = Script(4, stop=0.0)


Say = Callable[[Callable[[Message], object], Open], Coroutine[Any, Any, None]]


def saying(say: Say) -> Answerer:
    """A cloud that says in each session what `say` sends, whatever the device does."""

    def answer(peer: Peer, opened: Open) -> tuple[Session, Coroutine[Any, Any, None]]:
        return SilentSession(), say(peer.send, opened)

    return answer


@dataclass
class Found:
    """An answer, the seconds it took, and how often its device dialled and opened a session."""

    answer: Answer
    seconds: float
    dials: int
    opens: int


def asked(answerer: Answerer, settings: Settings = DRAGON) -> Found:
    """The answer together with a cloud that answers so."""

    async def ask() -> Found:
        dials = opens = 0
        tasks: list[asyncio.Task[None]] = []

        def counting(peer: Peer, opened: Open) -> tuple[Session, Coroutine[Any, Any, None]]:
            nonlocal opens
            opens += 1
            return answerer(peer, opened)

        async def serve(peer: Peer) -> None:
            await peer.handshake()
            await peer.run()

        async def dial() -> Peer:
            nonlocal dials
            dials += 1
            ours, theirs = memory_streams()
            peer = Peer(theirs, cloud.connection(), cloud.recorder, counting)
            tasks.append(asyncio.create_task(serve(peer)))
            return Peer(ours, device.connection(), device.recorder)

        device, cloud = (SimulatedSide(side, lambda _: SCRIPT) for side in SIDES)
        clock = asyncio.get_running_loop().time
        links = {"cloud": Connector(dial)}
        await links["cloud"].connect()
        async with kept(*links.values()):
            resources = scripted_resources(settings, SCRIPT.vocabulary)
            answer = await ClientSession(device, links, QUESTION, settings, resources).ask()
            found = Found(answer, clock() - answer.asked_s, dials, opens)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        return found

    return run(ask())


async def nothing(send: Callable[[Message], object], opened: Open) -> None:
    await asyncio.Event().wait()


async def only_a_greeting(send: Callable[[Message], object], opened: Open) -> None:
    send(Opened(opened.session, 4, 0, 0))
    await asyncio.Event().wait()


@pytest.mark.parametrize("settings", [DRAGON, BLOCKS])
@pytest.mark.parametrize("say", [nothing, only_a_greeting])
def test_who_says_nothing_useful_is_left_in_seconds(say: Say, settings: Settings) -> None:
    found = asked(saying(say), settings)
    assert len(found.answer.tokens) == QUESTION.max_tokens
    assert found.seconds < USUAL.mute_s + 1.0
    assert alone_from(found.answer) == 0
    notice = found.answer.notices[0]
    assert (notice.kind, notice.reason) == (NoticeKind.ALONE, Reason.MUTE)
    assert found.opens == 1


def test_a_cloud_that_is_busy_for_long_is_not_waited_for() -> None:
    async def later(send: Callable[[Message], object], opened: Open) -> None:
        raise BusyError("the cloud has no place", 60.0)

    found = asked(saying(later))
    assert found.seconds < USUAL.rejoin_s + 1.0
    assert found.answer.notices[0].reason is Reason.BUSY
    assert found.opens == 1


@pytest.mark.parametrize("settings", [DRAGON, replace(DRAGON, on_loss="wait")])
def test_a_cloud_that_crashes_repeatedly_is_dialled_more_rarely(settings: Settings) -> None:
    async def fall_over(peer: Peer) -> None:
        peer.leave()

    found = asked(lambda peer, opened: (SilentSession(), fall_over(peer)), settings)
    assert len(found.answer.tokens) == QUESTION.max_tokens
    assert found.dials < (20 if found.seconds > USUAL.rejoin_s + 1.0 else 8)
