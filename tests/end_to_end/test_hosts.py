"""Several clouds as one, each a process: one is killed in the middle of an answer, without a trace.

The device knows them all, or a load balancer in front of them; in both cases the answer goes on at
the other one, and no token changes.
"""

import asyncio
import os
import random
import shutil
import signal
import socket
import subprocess
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pytest

from dragonrt.backends.model import LanguageModel
from dragonrt.node.connections.addresses import Member
from dragonrt.node.connections.endpoints import Address
from dragonrt.node.process import programs
from dragonrt.node.process.library import Library
from dragonrt.node.process.side_settings import SideSettings
from dragonrt.service.answer import Answer
from dragonrt.service.chat import News
from dragonrt.service.cloud_process import CloudProcess, cloud_process

from .conftest import BOTH, Device, counts, decides
from .test_failures import QUESTION, TIME_LIMIT_S, WAITING, WANDERING

BALANCER = Path(__file__).parents[2] / "deploy" / "haproxy.cfg"


def loopback(port: int) -> Address:
    return Address("127.0.0.1", port)


@pytest.fixture(scope="module")
def alike(cloud: CloudProcess, cloud_index: Path) -> Iterator[list[CloudProcess]]:
    """Three clouds that have the same; each test may kill one."""
    cloud.wait_ready()  # the index is complete
    with ExitStack() as stack:
        options = ("--index", str(cloud_index))
        yield [stack.enter_context(cloud_process(*options)) for _ in range(3)]


async def asked_and_killed(device: Device, serving: CloudProcess, after: int) -> Answer:
    """The answer, in which that process is killed after so many tokens."""

    def kill(news: News) -> None:
        if decides(news, after):
            os.kill(serving.pid, signal.SIGKILL)

    async with asyncio.timeout(TIME_LIMIT_S):
        return await device.ask(QUESTION, WANDERING, WAITING, kill)


def check(reply: Answer, whole: list[int]) -> None:
    assert reply.decoded.tokens == whole
    assert counts(reply).alone_from is None
    assert reply.decoded.notices == []


@contextmanager
def balanced(*ports: int) -> Iterator[int]:
    """HAProxy in front of the clouds on these ports, as `deploy/` sets it up; its own port."""
    program = shutil.which("haproxy")
    if program is None:
        pytest.skip("haproxy is not installed")
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    a, b = (f"127.0.0.1:{each}" for each in ports)
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


@pytest.mark.slow
async def test_an_answer_goes_on_at_another_host_behind_a_load_balancer(
    alike: list[CloudProcess], cloud: CloudProcess, model: LanguageModel, library: Library
) -> None:
    point = random.Random(2).randrange(2, 20)
    pair = [alike[2], cloud]
    ports = [await asyncio.to_thread(each.wait_ready) for each in pair]
    side = SideSettings("device", on="cpu")
    with balanced(*ports) as port:
        await reachable(port)
        direct = [Member("cloud", loopback(ports[1]))]
        async with programs.device(side, model, library, direct, BOTH) as connected:
            whole = (await Device(connected).ask(QUESTION, WANDERING, WAITING)).decoded.tokens
        # One connection after the other: the balancer gives the device to one of the two.
        while True:
            before = len(alike[2].lines)
            through = [Member("cloud", loopback(port))]
            async with programs.device(side, model, library, through, BOTH) as connected:
                device = Device(connected)
                check(await device.ask(QUESTION, WANDERING, WAITING), whole)
                if not any("connected" in line for line in alike[2].lines[before:]):
                    continue  # at the cloud that other tests need
                check(await asked_and_killed(device, alike[2], point), whole)
                check(await device.ask(QUESTION, WANDERING, WAITING), whole)
                return
