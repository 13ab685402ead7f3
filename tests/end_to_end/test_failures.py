"""The cloud's process is killed, ended or suspended in the middle of an answer."""

import asyncio
import os
import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from pathlib import Path

import pytest

from dragonrt.backends.model import LanguageModel
from dragonrt.control.scheduler import Aggregator
from dragonrt.modes.dragon.settings import DragonSettings
from dragonrt.modes.mode import Finish
from dragonrt.modes.question import Question
from dragonrt.node.connections.peer import Peer
from dragonrt.node.process import composition as process
from dragonrt.node.process.local_side import LocalSide
from dragonrt.sampling.samplers import Sampler
from dragonrt.service.answer import Answer, Piece
from dragonrt.service.chat import News, OnNews
from dragonrt.service.cloud_process import CloudProcess, cloud_process
from dragonrt.timeouts import Timeouts
from dragonrt.traces.events import NoticeKind
from dragonrt.wire.reasons import Reason

from .conftest import DeviceAt, connected_device, counts

QUESTION = "What do you need to make lemon cake?"
WANDERING = Question(seed=4, sampler=Sampler(temperature=5.0), max_tokens=48)
WAITING = DragonSettings(codec="dense:fp16", aggregator=Aggregator.SYNC)
"""A long answer, every token of which waits for the cloud."""
TIME_LIMIT_S = 60.0
"""Only stops a test that hangs."""
QUICK = Timeouts(silence_s=2.0, probe_s=0.25, keep_alive_s=0.5, rejoin_s=0.2)
"""Silence is found four times as soon."""


@contextmanager
def cloud_at(port: int, index: Path) -> Iterator[CloudProcess]:
    """Another process of the same cloud, on this port (0: any)."""
    with cloud_process("--index", str(index), "--port", str(port)) as process:
        yield process


def killing(
    process: CloudProcess,
    pieces: int,
    killed: Callable[[], None] = lambda: None,
    number: signal.Signals = signal.SIGKILL,
) -> OnNews:
    """Sends a process a signal when so many pieces of an answer have been shown, and says so."""
    left = [pieces]

    def on_news(news: News) -> None:
        left[0] -= isinstance(news, Piece)
        if left[0] == 0 and isinstance(news, Piece):
            os.kill(process.pid, number)
            killed()

    return on_news


async def peer_ended(peer: Peer) -> None:
    """Wait until a peer knows that its connection is over."""
    while not peer.connection.closed:  # noqa: ASYNC110
        await asyncio.sleep(0.01)


@pytest.mark.slow
async def test_a_killed_cloud_is_survived_and_its_successor_used(
    cloud: CloudProcess, cloud_index: Path, device_at: DeviceAt
) -> None:
    cloud.wait_ready()  # the index is complete
    with cloud_at(0, cloud_index) as first:
        port = await asyncio.to_thread(first.wait_ready)
        async with device_at(port) as device:
            whole = (await device.ask(QUESTION, WANDERING, WAITING)).decoded.tokens
            assert len(whole) > 20

            reply = await device.ask(QUESTION, WANDERING, WAITING, killing(first, 5))
            alone_from = counts(reply).alone_from
            assert alone_from is not None
            assert alone_from >= 5
            assert NoticeKind.ALONE in [notice.kind for notice in reply.decoded.notices]
            assert reply.decoded.tokens[:alone_from] == whole[:alone_from]
            assert reply.decoded.finish in (Finish.STOP, Finish.LENGTH)

            private = await device.ask("What do I do when the printer beeps?")
            assert "press green twice" in private.text
            assert counts(private).alone_from == 0

            with cloud_at(port, cloud_index) as second:
                assert await asyncio.to_thread(second.wait_ready) == port
                assert await device.connector.wait_connected(TIME_LIMIT_S) is not None
                again = await device.ask(QUESTION, WANDERING, WAITING)
                assert again.decoded.tokens == whole
                assert counts(again).alone_from is None

                conversation = device.conversation(WANDERING, replace(WAITING, on_loss="wait"))
                killed = asyncio.Event()
                waiting: asyncio.Task[Answer] = asyncio.create_task(
                    conversation.ask(QUESTION, on_news=killing(second, 5, killed.set))
                )
                await killed.wait()
                with cloud_at(port, cloud_index):
                    waited = await waiting
                    peer = device.connector.peer
                assert peer is not None
                async with asyncio.timeout(TIME_LIMIT_S):
                    await peer_ended(peer)
                assert peer.end is not None
                assert peer.end.reason is Reason.SHUTDOWN
                assert waited.decoded.tokens == whole
                assert counts(waited).alone_from is None
                assert waited.decoded.notices[0].kind is NoticeKind.WAITING


@pytest.mark.slow
async def test_a_cloud_that_is_asked_to_end_finishes_the_answer_first(
    cloud: CloudProcess, cloud_index: Path, device_at: DeviceAt
) -> None:
    cloud.wait_ready()  # the index is complete
    with cloud_at(0, cloud_index) as ending:
        async with device_at(await asyncio.to_thread(ending.wait_ready)) as device:
            whole = (await device.ask(QUESTION, WANDERING, WAITING)).decoded.tokens
            on_news = killing(ending, 3, number=signal.SIGTERM)
            reply = await device.ask(QUESTION, WANDERING, WAITING, on_news)
            assert reply.decoded.tokens == whole
            assert counts(reply).alone_from is None
            assert await asyncio.to_thread(ending.wait) == 0


@pytest.mark.slow
async def test_a_suspended_cloud_is_found_and_used_again(
    draft_model: LanguageModel, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(process, "LocalSide", partial(LocalSide, timeouts=QUICK))
    with cloud_process(model="dragon-draft") as cloud:
        port = await asyncio.to_thread(cloud.wait_ready)
        async with connected_device(draft_model, None, port, WAITING) as device:
            whole = (await device.ask(QUESTION, WANDERING)).decoded.tokens
            async with asyncio.timeout(TIME_LIMIT_S):
                stop = killing(cloud, 5, number=signal.SIGSTOP)
                reply = await device.ask(QUESTION, WANDERING, on_news=stop)
            alone_from = counts(reply).alone_from
            assert alone_from is not None
            assert reply.decoded.tokens[:alone_from] == whole[:alone_from]
            assert reply.decoded.finish in (Finish.STOP, Finish.LENGTH)
            (notice,) = reply.decoded.notices
            assert (notice.kind, notice.reason) == (NoticeKind.ALONE, Reason.IDLE)
            os.kill(cloud.pid, signal.SIGCONT)
            assert await device.connector.wait_connected(TIME_LIMIT_S) is not None
            again = await device.ask(QUESTION, WANDERING)
            assert again.decoded.tokens == whole
            assert counts(again).alone_from is None
