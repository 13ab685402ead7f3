"""The baselines' cloud as a process: what it says, whom it serves, and that it ends."""

import asyncio
import socket

import pytest

from dragonrt.backends.backend import Document
from dragonrt.backends.model import LanguageModel
from dragonrt.link.memory import memory_streams
from dragonrt.node import main as programs
from dragonrt.testing import loop
from dragonrt.wire.connection import Connection
from dragonrt.wire.limits import NONCE_BYTES
from dragonrt.wire.messages import PROTOCOL_VERSION, Hello
from retrieval import Chunk, Hit
from scripts.papers.dragon.baselines.cloud import serve_baselines
from scripts.papers.dragon.baselines.device import Asked
from scripts.papers.dragon.baselines.reading import BaselineSide
from scripts.papers.lineup import ALL, real_processes
from scripts.papers.model_sides import PacedWorker


class NoDocuments:
    """It is never asked."""

    def find(self, question: str, k: int) -> list[Hit]:
        raise AssertionError(question)

    def document_kv(self, chunk: Chunk) -> Document:
        raise AssertionError(chunk)


def test_a_normal_device_is_hung_up_on(model: LanguageModel) -> None:
    hello = Hello(PROTOCOL_VERSION, bytes(NONCE_BYTES), "device", "t", 8, "m", "s")

    async def dial() -> bytes:
        ours, theirs = memory_streams()
        worker = PacedWorker(0.0)
        side = BaselineSide("cloud", model, NoDocuments(), worker, worker)
        serving = asyncio.create_task(serve_baselines(theirs, side))
        ours.write(Connection("device", hello).data_to_send())
        received = b""
        while data := await ours.receive():
            received += data
        await serving
        return received

    assert b"Greeting" in loop.run(dial())


@pytest.mark.slow
def test_real_processes_answer_by_every_method_and_end() -> None:
    with real_processes("dragon-small") as processes:

        async def ask() -> dict[str, float]:
            asked = Asked("What do you need to make lemon cake?", 2, 1, 0.8, 3)
            async with processes.lineup(0.02, 1) as lineup:
                samples = {name: await lineup.ask(name, asked) for name in ALL}
            return {name: sample.total_ms for name, sample in samples.items()}

        total_ms = programs.run(ask())
    assert list(total_ms) == list(ALL)
    remote = [name for name in ALL if name != "CRCG/device"]
    assert all(total_ms[name] > 10 for name in remote)  # half of the round trip, jitter and all
    for port in (processes.cloud_port, processes.baselines_port):
        with pytest.raises(ConnectionRefusedError):
            socket.create_connection(("127.0.0.1", port), timeout=10)
