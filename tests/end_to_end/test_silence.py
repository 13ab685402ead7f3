"""A cloud that goes on existing and says nothing: a suspended process."""

import asyncio
import os
import signal
from functools import partial

import pytest

from dragonrt.backends.model import LanguageModel
from dragonrt.experiments.cloud_process import cloud_process
from dragonrt.modes.mode import Finish
from dragonrt.node import process
from dragonrt.node.endpoints import Address
from dragonrt.node.local_side import LocalSide
from dragonrt.timeouts import Timeouts

from .conftest import connected_device, counts
from .test_failures import QUESTION, TIME_LIMIT_S, WAITING, WANDERING, killing

QUICK = Timeouts(silence_s=2.0, probe_s=0.25, keep_alive_s=0.5, rejoin_s=0.2)
"""Silence is found four times as soon."""


@pytest.mark.slow
async def test_a_suspended_cloud_is_found_and_used_again(
    draft_model: LanguageModel, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(process, "LocalSide", partial(LocalSide, timeouts=QUICK))
    with cloud_process(model="dragon-draft") as cloud:
        port = await asyncio.to_thread(cloud.wait_ready)
        address = Address("127.0.0.1", port)
        async with connected_device(draft_model, None, address, WAITING) as device:
            whole = (await device.ask(QUESTION, WANDERING)).answer.tokens
            async with asyncio.timeout(TIME_LIMIT_S):
                stop = killing(cloud, 5, number=signal.SIGSTOP)
                reply = await device.ask(QUESTION, WANDERING, on_piece=stop)
            alone_from = counts(reply).alone_from
            assert alone_from is not None
            assert reply.answer.tokens[:alone_from] == whole[:alone_from]
            assert reply.answer.finish in (Finish.STOP, Finish.LENGTH)
            (notice,) = reply.answer.notices
            assert notice.endswith(f"nothing was heard from 127.0.0.1:{port} for 2 s")
            os.kill(cloud.pid, signal.SIGCONT)
            assert await device.connector.wait_connected(TIME_LIMIT_S) is not None
            again = await device.ask(QUESTION, WANDERING)
            assert again.answer.tokens == whole
            assert counts(again).alone_from is None
