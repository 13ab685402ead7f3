"""What sessions of blocks leave behind, and what they do to each other, in numbers."""

import asyncio
import random
import threading
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, TypeVar, cast

import numpy as np
import pytest
from dragonrt.runtime.draft import start_hash
from dragonrt.runtime.modes.blocks import BlockError, BlockSession
from dragonrt.runtime.modes.blocks.answering import IDLE_S
from dragonrt.runtime.modes.blocks.sizes import longest_upload
from dragonrt.runtime.modes.federated import FederatedPlan, FederatedVerifying
from dragonrt.runtime.modes.speculative import BlockShape, SpeculativePlan
from dragonrt.runtime.outcome import Finish
from dragonrt.runtime.plan import PATIENCE_S
from dragonrt.runtime.predictor import NextToken
from dragonrt.runtime.trace import NoTrace
from dragonrt.simulation.blocks import block_asking, coupled_oracle
from dragonrt.simulation.drafter import Script

from dragonrt.distributions import codec, encode_block
from dragonrt.language.model import LanguageModel
from dragonrt.link.emulation import EmulatedStream
from dragonrt.link.models import LinkModel
from dragonrt.link.stream import Stream
from dragonrt.runtime.local_side import LocalSide
from dragonrt.runtime.peer import Peer
from dragonrt.sampling.samplers import Sampler
from dragonrt.simulation.loop import run
from dragonrt.simulation.pair import SimulatedCloud, SimulatedDevice, SimulatedSide, linked_device
from dragonrt.wire import messages as wire
from dragonrt.wire.errors import Reason

T = TypeVar("T")

SCRIPT = Script(3, vocabulary=33)


def plan(seed: int, **fields: Any) -> SpeculativePlan:
    return SpeculativePlan(seed=seed, sampler=Sampler(0.8), max_tokens=6, **fields)


def emulate(stream: Stream) -> Stream:
    return EmulatedStream(stream, LinkModel(latency_s=0.01), LinkModel(latency_s=0.01))


async def with_cloud(
    cloud: SimulatedSide, talk: Callable[[SimulatedCloud, SimulatedDevice], Any]
) -> Any:
    serving = SimulatedCloud(cloud)
    async with linked_device(serving, SimulatedSide("device", lambda _: SCRIPT), emulate) as device:
        result = await talk(serving, device)
    await serving.wait_idle()
    return result


@pytest.mark.slow
def test_a_thousand_sessions_leave_nothing_behind() -> None:
    """Good ones, cancelled ones, stopped ones, and blocks that no codec wrote."""
    drawn = random.Random(11)

    async def ask(device: SimulatedDevice, seed: int) -> None:
        shape = BlockShape(length=1 + seed % 4, outstanding=1 + seed % 3)
        asking = block_asking(device, plan(seed, shape=shape), "wait")
        loop = asyncio.get_running_loop()
        task = asyncio.create_task(asking.ask("who?"))
        after_s, how = drawn.uniform(0.0, 0.4), drawn.choice(["whole", "cancel", "stop"])
        timer = {
            "whole": None,
            "cancel": loop.call_later(after_s, task.cancel),
            "stop": loop.call_later(after_s, asking.stop),
        }
        for other, handle in timer.items():
            if handle is not None and other != how:
                handle.cancel()
        if how == "cancel":
            await asyncio.gather(task, return_exceptions=True)
            return
        found = await task
        if how == "whole":
            assert found.tokens == coupled_oracle(plan(seed, shape=shape), SCRIPT)

    async def garbage(device: SimulatedDevice, seed: int) -> None:
        peer = device.connector.peer
        assert peer is not None
        session = Hostile()
        number = peer.open(session, lambda n: plan(seed).open_message("who?", (), (), n))
        payload = drawn.randbytes(drawn.randrange(9))
        hashed = drawn.randrange(2**32)
        peer.send(wire.Block(number, 1, 0, hashed, drawn.randrange(9), (), (), payload))
        peer.send(wire.Block(number, 1, 0, hashed, 1, (), (), payload))  # its round came before
        await session.ended.wait()

    async def talk(cloud: SimulatedCloud, device: SimulatedDevice) -> None:
        await asyncio.sleep(1.0)
        before = len(asyncio.all_tasks())
        for start in range(0, 1000, 20):
            await asyncio.gather(
                *((garbage if n % 5 == 0 else ask)(device, n) for n in range(start, start + 20))
            )
            await asyncio.sleep(1.0)  # what is under way arrives
            assert cloud.sessions == 0
            assert len(asyncio.all_tasks()) == before
        peer = device.connector.peer
        assert peer is not None
        assert peer._sessions == {}

    run(with_cloud(SimulatedSide("cloud", lambda _: SCRIPT, prepare_s=0.03), talk))


class Hostile:
    """A session that only waits for its end."""

    schedules = False

    def __init__(self) -> None:
        self.ended = asyncio.Event()

    def receive(self, message: wire.SessionMessage) -> None:
        pass

    def lost(self, reason: str) -> None:
        self.ended.set()


@dataclass(slots=True)
class Laborious(SimulatedSide):
    """Reads and judges the blocks of an answer with the seed 1 for ten seconds each."""

    async def off_loop(self, job: Callable[[], T]) -> T:
        await asyncio.sleep(10.0 if self.prepared == 1 else 0.0)
        return job()


@pytest.mark.parametrize("how", ["whole", "cancel", "leave"])
def test_a_block_that_takes_long_holds_up_its_own_session_only(how: str) -> None:
    async def talk(cloud: SimulatedCloud, device: SimulatedDevice) -> None:
        loop = asyncio.get_running_loop()
        slow = asyncio.create_task(block_asking(device, plan(1)).ask("who?"))
        await asyncio.sleep(1.0)
        given = await block_asking(device, plan(2)).ask("who?")
        assert given.tokens == coupled_oracle(plan(2), SCRIPT)
        assert loop.time() < 3.0
        if how == "cancel":
            slow.cancel()
            await asyncio.gather(slow, return_exceptions=True)
            await asyncio.sleep(11.0)
            assert cloud.sessions == 0
        elif how == "whole":
            assert (await slow).tokens == coupled_oracle(plan(1), SCRIPT)
            assert loop.time() > 10.0
        else:
            slow.cancel()  # and the connection ends while the cloud reads

    run(with_cloud(Laborious("cloud", lambda _: SCRIPT), talk))


def test_a_session_that_is_over_does_not_end_the_next_one_of_its_number() -> None:
    async def talk(cloud: SimulatedCloud, device: SimulatedDevice) -> None:
        peer = device.connector.peer
        assert peer is not None
        number = peer.open(Hostile(), lambda n: plan(1).open_message("who?", (), (), n))
        hashed, payload = start_hash(1) & 0xFFFFFFFF, encode_block(codec("ids", 33), [5], [])
        peer.send(wire.Block(number, 1, 0, hashed, 1, (), (), payload))
        await asyncio.sleep(9.9)  # the cloud reads the block for some more moments
        peer.close(number, Reason.CANCELLED)
        peer._next_session = number
        given = await block_asking(device, plan(2)).ask("who?")
        assert asyncio.get_running_loop().time() > 10.1
        assert given.tokens == coupled_oracle(plan(2), SCRIPT)
        assert given.counts.alone_from is None

    run(with_cloud(Laborious("cloud", lambda _: SCRIPT), talk))


async def never(self: object) -> None:
    await asyncio.Event().wait()


def test_a_block_that_cannot_be_sent_is_not_waited_for_without_end(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(BlockSession, "drain", never)

    async def talk(cloud: SimulatedCloud, device: SimulatedDevice) -> None:
        given = await block_asking(device, plan(1)).ask("who?")
        assert given.finish is Finish.LENGTH
        assert f"could not be sent in {PATIENCE_S:g} s" in given.notices[0]
        await asyncio.sleep(1.0)
        assert cloud.sessions == 0

    run(with_cloud(SimulatedSide("cloud", lambda _: SCRIPT), talk))


def test_an_answer_can_be_stopped_while_a_block_cannot_be_sent(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(BlockSession, "drain", never)

    async def talk(cloud: SimulatedCloud, device: SimulatedDevice) -> None:
        loop = asyncio.get_running_loop()
        asking = block_asking(device, plan(1))
        for after_s in (1.0, 1.0):  # a person who is in a hurry
            loop.call_later(after_s, asking.stop)
        given = await asking.ask("who?")
        assert (given.finish, given.counts.alone_from) == (Finish.CANCELLED, None)
        assert loop.time() < 1.1

    run(with_cloud(SimulatedSide("cloud", lambda _: SCRIPT), talk))


def test_who_reads_no_verdicts_is_not_waited_for_without_end(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(Peer, "drain", never)

    async def talk(cloud: SimulatedCloud, device: SimulatedDevice) -> None:
        session, peer = Hostile(), device.connector.peer
        assert peer is not None
        number = peer.open(session, lambda n: plan(1).open_message("who?", (), (), n))
        hashed, payload = start_hash(1) & 0xFFFFFFFF, encode_block(codec("ids", 33), [5], [])
        peer.send(wire.Block(number, 1, 0, hashed, 1, (), (), payload))
        await asyncio.sleep(IDLE_S - 1.0)
        assert cloud.sessions == 1
        await asyncio.sleep(2.0)
        assert cloud.sessions == 0
        assert session.ended.is_set()

    run(with_cloud(SimulatedSide("cloud", lambda _: SCRIPT), talk))


async def test_a_real_side_works_on_blocks_off_its_loop() -> None:
    nothing = cast(Any, None)
    side = LocalSide("cloud", cast(LanguageModel, None), nothing, nothing, None, NoTrace())
    assert await side.off_loop(threading.get_ident) != threading.get_ident()


def test_an_upload_of_lattice_points_is_bounded() -> None:
    """How long it takes is a question of the codec that the coordinator names."""
    vocabulary = 4096
    plan = FederatedPlan(seed=1, sampler=Sampler(1.0), codec="qs:10000")
    verifying = FederatedVerifying(plan, vocabulary)
    flat = NextToken(np.full(vocabulary, 1 / vocabulary, np.float32), 0.0, np.zeros(1, np.float32))
    few, many = (cast(Any, [flat] * count) for count in (3, 257))
    uploads = verifying.answer(cast(Any, None), few)
    assert sum(map(len, uploads.payloads)) < longest_upload("qs:100")
    with pytest.raises(BlockError, match="draft shorter blocks or use a coarser codec"):
        verifying.answer(cast(Any, None), many)
