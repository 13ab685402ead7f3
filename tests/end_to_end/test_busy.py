"""A cloud whose memory holds one answer at a time, and devices that ask it for two."""

import asyncio
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from dragonrt.experiments.cloud_process import CloudProcess, cloud_process
from dragonrt.traces.events import TokenDecided

from .conftest import BOTH, SHORT, DeviceAt, counts, slow_link
from .test_failures import QUESTION, WAITING, WANDERING

ROOM_FOR_ONE = "1.4MB"
"""Its two documents take 0.6 MB, once; the long answer 0.7 MB, the short one 0.3 MB."""


@pytest.fixture
def small_cloud(cloud: CloudProcess, cloud_index: Path) -> Iterator[int]:
    """The port of a cloud with little memory."""
    cloud.wait_ready()  # the index is complete
    with cloud_process("--index", str(cloud_index), "--kv-memory", ROOM_FOR_ONE) as process:
        yield process.wait_ready()


@pytest.mark.slow
async def test_who_finds_no_room_hears_when_to_come_back_and_is_answered_then(
    small_cloud: int, device_at: DeviceAt
) -> None:
    begun = asyncio.Event()

    def on_piece(text: str, decision: TokenDecided) -> None:
        begun.set()

    async with (
        device_at(small_cloud, emulate=slow_link(0.02, 0.0)) as first,
        device_at(small_cloud) as second,
    ):
        alone = await second.ask(QUESTION)
        holding = asyncio.ensure_future(first.ask(QUESTION, WANDERING, WAITING, on_piece))
        await begun.wait()
        patient = replace(BOTH, on_loss="wait")
        reply = await second.ask(QUESTION, SHORT, patient)
        (line,) = reply.answer.notices
        busy = "too many answers are under way for this side's memory: try again in 1.0 s"
        assert line == f"waiting for the cloud at token 0: {busy}"
        assert reply.answer.tokens == alone.answer.tokens
        assert counts(reply).alone_from is None
        assert (await holding).answer.notices == []

        never = await second.ask(QUESTION, replace(SHORT, max_tokens=200))
        (line,) = never.answer.notices
        assert "of KV, and --kv-memory gives 1.4 MB: ask for fewer documents" in line
        assert counts(never).alone_from == 0
        assert never.answer.tokens
