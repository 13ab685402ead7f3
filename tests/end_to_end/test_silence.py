"""A side that goes on existing and says nothing: a suspended process, a half-open connection.

Real processes and sockets, with a timeouts of `QUICK`; the bounds are those of docs/reference.md,
with the usual timeouts.
"""

import asyncio
import json
import os
import signal
import sys
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import replace
from functools import partial

import pytest

from dragonrt.backends.model import LanguageModel
from dragonrt.experiments.cloud_process import cloud_process
from dragonrt.modes.mode import Finish
from dragonrt.node import process
from dragonrt.node.endpoints import Address, Identity, serve
from dragonrt.node.gatekeeper import USUAL_LIMITS, Gatekeeper
from dragonrt.node.local_side import LocalSide
from dragonrt.node.side_settings import SideSettings
from dragonrt.timeouts import USUAL, Timeouts
from dragonrt.traces.events import Record, TokenDecided
from dragonrt.traces.file import Sink

from .conftest import Device, OnPiece, connected_device, counts
from .test_failures import QUESTION, TIME_LIMIT_S, WAITING, WANDERING

QUICK = Timeouts(silence_s=2.0, probe_s=0.25, keep_alive_s=0.5, rejoin_s=USUAL.answer_s)
"""Silence is found four times as soon; and who comes back is waited for, however busy this is."""

POINT = 5


def hurry(monkeypatch: pytest.MonkeyPatch, timeouts: Timeouts) -> None:
    """Sides in this process are less patient."""
    monkeypatch.setattr(process, "LocalSide", partial(LocalSide, timeouts=timeouts))


def device_to(model: LanguageModel, port: int) -> AbstractAsyncContextManager[Device]:
    return connected_device(model, None, Address("127.0.0.1", port), WAITING)


@asynccontextmanager
async def cloud_here(
    model: LanguageModel, *listeners: Sink
) -> AsyncIterator[tuple[int, "asyncio.Queue[str]"]]:
    """A cloud in this process: its port, and what it says of devices."""
    lines: asyncio.Queue[str] = asyncio.Queue(100)
    settings = SideSettings("cloud", on="cpu")
    async with process.local_side(settings, model, None, lambda _: None, *listeners) as side:
        keeper, where = Gatekeeper(side, USUAL_LIMITS), Address("127.0.0.1", 0)
        known = Identity("cloud", side.model, lambda: side.corpus)
        async with await serve(where, known, keeper, lines.put_nowait) as server:
            yield server.port, lines


def at(step: int, act: Callable[[], None]) -> OnPiece:
    """Has something happen when that token is shown."""

    def on_piece(text: str, decision: TokenDecided) -> None:
        if decision.step == step:
            act()

    return on_piece


@pytest.mark.slow
async def test_a_suspended_cloud_is_found_and_used_again(
    draft_model: LanguageModel, monkeypatch: pytest.MonkeyPatch
) -> None:
    hurry(monkeypatch, replace(QUICK, rejoin_s=0.2))
    with cloud_process(model="dragon-draft") as cloud:
        port = await asyncio.to_thread(cloud.wait_ready)
        async with device_to(draft_model, port) as device:
            whole = (await device.ask(QUESTION, WANDERING)).answer.tokens
            stop = at(POINT, lambda: os.kill(cloud.pid, signal.SIGSTOP))
            async with asyncio.timeout(TIME_LIMIT_S):
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


@pytest.mark.slow
async def test_a_suspended_device_goes_on_with_the_same_text(
    draft_model: LanguageModel, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The cloud gives it up; when it wakes it asks again from the tokens that were shown."""
    hurry(monkeypatch, QUICK)
    options = [
        *("--model", "dragon-draft", "--ask", QUESTION, "--json", "--aggregator", "sync"),
        *("--codec", "dense:fp16", "--seed", str(WANDERING.seed), "--temperature", "5"),
        *("--max-tokens", str(WANDERING.max_tokens)),
    ]
    command = (sys.executable, "-m", "dragonrt", "--config", os.devnull, "device", *options)
    devices: list[asyncio.subprocess.Process] = []

    def stop(record: Record) -> None:
        if devices and isinstance(record.event, TokenDecided) and record.event.step == POINT:
            devices.pop().send_signal(signal.SIGSTOP)

    async with cloud_here(draft_model, stop) as (port, lines):
        async with device_to(draft_model, port) as device:
            whole = (await device.ask(QUESTION, WANDERING)).text
        device_process = await asyncio.create_subprocess_exec(
            *(*command, "--host", f"127.0.0.1:{port}"),
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.PIPE,
        )
        devices.append(device_process)
        async with asyncio.timeout(TIME_LIMIT_S):
            while "nothing was heard from" not in await lines.get():
                continue
            device_process.send_signal(signal.SIGCONT)
            said, _ = await device_process.communicate()
    reply = json.loads(said)
    assert reply["text"] == whole
    assert reply["statistics"]["alone_from"] is None
