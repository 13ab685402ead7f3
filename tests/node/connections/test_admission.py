"""A cloud that has enough to do says so, and when to come back; nobody crowds the others out."""

import asyncio
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from dataclasses import replace
from types import SimpleNamespace
from typing import Any, ClassVar, cast

import pytest
from typing_extensions import override

from dragonrt.backends.scheduler import Client
from dragonrt.modes.dragon.settings import DragonSettings
from dragonrt.modes.question import Question
from dragonrt.node.answers.client_session import Answer, ClientSession
from dragonrt.node.answers.model_session import PrefillResult
from dragonrt.node.answers.server_session import admission as admission_of
from dragonrt.node.connections.admission import (
    FIRST_BYTE_S,
    LINES_A_SECOND,
    LONGEST_RETRY_S,
    READ_AT_ONCE,
    REMEMBERED_HOSTS,
    USUAL_LIMITS,
    BoundedLines,
    Bucket,
    CloudLimits,
    Handshakes,
    PlaceLostError,
    source_of,
)
from dragonrt.testing.loop import run
from dragonrt.testing.pair import SimulatedCloud, SimulatedDevice, SimulatedSide, linked_device
from dragonrt.testing.scripted import Script
from dragonrt.traces.events import Record, TokenDecided
from dragonrt.wire.reasons import BusyError, Reason
from tests.node.virtual import alone, virtual

SCRIPT = Script(4, stop=0.0)
QUESTION = Question(prompt="who?", max_tokens=8)
WAITING = DragonSettings(codec="topp:0.95", run_ahead=4, on_loss="wait")


@asynccontextmanager
async def one_cloud(
    devices: int, limits: CloudLimits = USUAL_LIMITS, read_s: float = 0.0
) -> AsyncIterator[tuple[SimulatedCloud, list[SimulatedDevice]]]:
    """A cloud with connected devices."""
    cloud = SimulatedCloud(SimulatedSide("cloud", lambda _: SCRIPT, prepare_s=read_s), limits)
    async with AsyncExitStack() as stack:
        found = []
        for _ in range(devices):
            side = SimulatedSide("device", lambda _: SCRIPT)
            link = linked_device(cloud, side, lambda stream: stream)
            found.append(await stack.enter_async_context(link))
        yield cloud, found
    await cloud.kill()


def asked_at_once(
    answers: list[int], limits: CloudLimits, read_s: float = 0.0
) -> list[list[Answer]]:
    """Each device asks so many questions at the same time of one cloud with these limits."""

    async def ask() -> list[list[Answer]]:
        async with one_cloud(len(answers), limits, read_s) as (_, devices):
            asking = (several(*each) for each in zip(devices, answers, strict=True))
            return list(await asyncio.gather(*asking))

    async def several(device: SimulatedDevice, count: int) -> list[Answer]:
        each = (device.asking(replace(QUESTION, seed=n), WAITING).ask() for n in range(count))
        return list(await asyncio.gather(*each))

    return run(ask())


def seconds(answer: Answer) -> float:
    return answer.decisions[-1][0] - answer.asked_s


def test_a_client_over_its_rate_retries_and_gets_equal_answers() -> None:
    usual = asked_at_once([12], USUAL_LIMITS)[0]
    slowed = asked_at_once([12], CloudLimits(device_rate=2.0))[0]
    assert [each.tokens for each in slowed] == [each.tokens for each in usual]
    late = sorted(map(seconds, slowed))
    assert late[5] < 1.0, "so many at once are welcome"
    assert late[-1] > 1.0
    assert not any(map(alone, slowed))


def test_running_answers_are_bounded_per_device_and_in_all() -> None:
    limits = CloudLimits(device_answers=2, most_answers=3)
    first, second = asked_at_once([6, 1], limits)
    whole = asked_at_once([6], USUAL_LIMITS)[0]
    assert [each.tokens for each in first] == [each.tokens for each in whole]
    assert seconds(second[0]) == min(map(seconds, second + first)), "it finds a place at once"
    assert Reason.BUSY in {notice.reason for each in first for notice in each.notices}
    crowd = asked_at_once([2, 2, 2], limits)
    told = [notice for device in crowd for each in device for notice in each.notices]
    assert Reason.BUSY in {notice.reason for notice in told}
    assert not any(alone(each) for device in crowd for each in device)


@pytest.mark.parametrize(
    ("count", "limits"),
    [(2, CloudLimits(device_answers=2, most_answers=2)), (1, CloudLimits(device_rate=0.1))],
    ids=["as many at once", "however slow the rate"],
)
def test_what_the_limits_allow_is_never_refused(count: int, limits: CloudLimits) -> None:
    (found,) = asked_at_once([count], limits)
    assert [notice for each in found for notice in each.notices] == []


def test_one_device_s_many_questions_do_not_hold_up_another_s() -> None:
    """Each takes a second to read: the first device's are read two at a time."""
    many, one = asked_at_once([8, 1], USUAL_LIMITS, read_s=1.0)
    assert seconds(one[0]) < 3.0
    assert max(map(seconds, many)) > 8 / READ_AT_ONCE * 0.5


class CountedSide(SimulatedSide):
    """Counts the questions that it prepares, by client."""

    asked: ClassVar[Counter[object]] = Counter()

    @override
    async def prepare(self, question: Question, **how: object) -> PrefillResult:
        self.asked[how["client"]] += 1
        return await super().prepare(question, **how)


@virtual
async def test_computed_tokens_count_for_their_address_and_connection() -> None:
    CountedSide.asked.clear()
    cloud = SimulatedCloud(CountedSide("cloud", lambda _: SCRIPT))
    link = linked_device(cloud, SimulatedSide("device", lambda _: SCRIPT), lambda stream: stream)
    async with link as device:
        for number in range(2):
            await device.asking(replace(QUESTION, seed=number), WAITING).ask()
    await cloud.wait_idle()
    ((asked, count),) = CountedSide.asked.items()
    address, connection = cast(Client, asked)
    assert count == 2
    assert connection.startswith(address)
    assert connection


def test_a_bucket_gives_its_drops_then_its_refill() -> None:
    bucket = Bucket(2.0, 3.0, 10.0)
    assert [bucket.take(10.0) for _ in range(4)] == [0.0, 0.0, 0.0, 0.5]
    assert bucket.take(10.5) == 0.0
    assert bucket.take(10.75) == 0.25
    assert [bucket.take(1000.0) for _ in range(4)][2:] == [0.0, 0.5]


def test_lines_of_one_host_are_bounded_and_others_are_heard() -> None:
    said: list[str] = []
    now = 0.0
    lines = BoundedLines(said.append, lambda: now)
    for _ in range(1000):
        lines.say("10.0.0.1", "refused")
    assert len(said) == 4 * LINES_A_SECOND
    lines.say("10.0.0.2", "connected")
    assert said[-1] == "connected"
    now = 1.0
    lines.say("10.0.0.1", "refused")
    assert said[-1] == f"refused ({1000 - 4 * LINES_A_SECOND} lines of 10.0.0.1 left out)"
    lines.say("10.0.0.1", "connected")
    assert said[-1] == "connected", "those left out are counted once"
    for number in range(10 * REMEMBERED_HOSTS):
        lines.say(str(number), "hello")
    assert len(lines) == REMEMBERED_HOSTS


class Crowded:
    """A peer with many sessions."""

    connection = SimpleNamespace(sessions=range(9))


def test_who_is_refused_later_is_to_come_back_later() -> None:
    async def refused() -> list[float]:
        limits = CloudLimits(device_answers=4, device_rate=1e6)
        admission = admission_of(SimulatedSide("cloud", lambda _: SCRIPT), limits)
        crowded: Any = Crowded()
        waits = []
        with admission.admit(crowded):
            for _ in range(200):
                with pytest.raises(BusyError) as error:
                    admission.answering(crowded, crowded)
                waits.append(error.value.retry_s)
        return waits

    waits = run(refused())
    assert waits[:3] == [0.5, 1.0, 1.5]
    assert waits[-1] == LONGEST_RETRY_S


async def begun(device: SimulatedDevice, tokens: int) -> tuple[ClientSession, asyncio.Task[Answer]]:
    """An answer of so many tokens, of which there are some."""
    decided = asyncio.Event()

    def hear(record: Record) -> None:
        if isinstance(record.event, TokenDecided):
            decided.set()

    asking = device.asking(replace(QUESTION, max_tokens=tokens), WAITING, on_record=hear)
    task = asyncio.create_task(asking.ask())
    await decided.wait()
    return asking, task


@virtual
async def test_a_draining_cloud_ends_answers_and_drops_idle_devices() -> None:
    async with one_cloud(2) as (cloud, (busy, idle)):
        _, answering = await begun(busy, 200)
        of_busy, of_idle = (each.connector.peer for each in (busy, idle))
        assert of_busy is not None
        assert of_idle is not None
        draining = asyncio.create_task(cloud.admission.drain(60.0))
        await asyncio.sleep(0.05)
        refused = await busy.asking(QUESTION, replace(WAITING, on_loss="alone")).ask()
        assert alone(refused)
        assert of_idle.connection.closed
        assert not of_busy.connection.closed
        whole = await answering
        assert not alone(whole)
        assert len(whole.tokens) == 200
        began_s = asyncio.get_running_loop().time()
        await draining
        assert asyncio.get_running_loop().time() - began_s < 1.0
        assert of_busy.connection.closed


def test_a_cloud_that_ends_does_not_wait_for_ever() -> None:
    async def end() -> float:
        async with one_cloud(1) as (cloud, (device,)):
            asking, answering = await begun(device, 60_000)
            began_s = asyncio.get_running_loop().time()
            await cloud.admission.drain(3.0)
            took_s = asyncio.get_running_loop().time() - began_s
            asking.stop()
            await answering
            return took_s

    assert run(end()) == pytest.approx(3.0)


HANDSHAKE_S = 10.0


class Stranger:
    """A connection that stays in the handshakes; `end_s` is when it lost its place."""

    def __init__(self, handshakes: Handshakes, host: str, *, speaks: bool = False) -> None:
        self.speaks = speaks
        self.dismissed = False
        self.end_s: float | None = None
        self.task = asyncio.create_task(self._stay(handshakes, host), name=host)

    async def _stay(self, handshakes: Handshakes, host: str) -> None:
        try:
            async with handshakes.place(host, lambda: self.speaks, self._dismiss):
                await asyncio.Event().wait()
        except PlaceLostError:
            self.end_s = asyncio.get_running_loop().time()

    def _dismiss(self) -> None:
        self.dismissed = True


async def come(handshakes: Handshakes, hosts: list[str], *, speaks: bool = False) -> list[Stranger]:
    """They come one after the other."""
    found = []
    for host in hosts:
        found.append(Stranger(handshakes, host, speaks=speaks))
        await asyncio.sleep(0)
    return found


async def leave(strangers: list[Stranger]) -> None:
    for each in strangers:
        each.task.cancel()
    await asyncio.gather(*(each.task for each in strangers), return_exceptions=True)


def gone(strangers: list[Stranger]) -> list[int]:
    return [number for number, each in enumerate(strangers) if each.end_s is not None]


@pytest.mark.parametrize(
    ("hosts", "speaking", "left_out"),
    [
        (
            ["10.0.0.1"] * 4 + ["10.0.0.2", "10.0.0.1"],
            {0},
            [1],
        ),  # the oldest silent one of a source
        (["10.0.0.1"] * 6, set(range(6)), [0, 1]),  # all have spoken: the oldest
        ([f"10.0.0.{number}" for number in range(100)], set(), list(range(92))),
        ([f"2001:db8::{number}" for number in range(1, 6)], set(), [0]),  # one network, one source
        ([f"2001:db8:0:{number}::1" for number in range(1, 6)], set(), []),
    ],
)
@virtual
async def test_strangers_make_way_for_newcomers(
    hosts: list[str], speaking: set[int], left_out: list[int]
) -> None:
    handshakes = Handshakes(HANDSHAKE_S, most=8, most_of_a_source=4)
    strangers = []
    for number, host in enumerate(hosts):
        strangers += await come(handshakes, [host], speaks=number in speaking)
    await asyncio.sleep(0.01)
    assert gone(strangers) == left_out
    assert [each.dismissed for each in strangers] == [n in left_out for n in range(len(hosts))]
    assert len(handshakes) == len(hosts) - len(left_out)
    await leave(strangers)
    assert len(handshakes) == 0


def test_ipv4_addresses_on_an_ipv6_socket_are_distinct() -> None:
    mapped = ["::ffff:10.0.0.1", "::ffff:10.0.0.2"]
    assert len({source_of(host) for host in mapped}) == 2


@virtual
async def test_silence_and_handshakes_are_bounded() -> None:
    handshakes = Handshakes(HANDSHAKE_S)
    silent, slow = (await come(handshakes, ["a"])) + (await come(handshakes, ["a"], speaks=True))
    await asyncio.gather(silent.task, slow.task)
    assert silent.end_s == pytest.approx(FIRST_BYTE_S)
    assert slow.end_s == pytest.approx(HANDSHAKE_S)
    assert not silent.dismissed
    assert not slow.dismissed
    assert handshakes.failed == 2


@virtual
async def test_one_who_is_closing_already_has_no_place_to_lose() -> None:
    handshakes = Handshakes(HANDSHAKE_S, most_of_a_source=1)
    leaving = asyncio.Event()

    async def slow_to_close() -> None:
        with suppress(PlaceLostError):
            async with handshakes.place("a", lambda: True, lambda: None):
                try:
                    await asyncio.Event().wait()
                finally:
                    leaving.set()
                    await asyncio.sleep(1.0)

    task = asyncio.create_task(slow_to_close())
    await leaving.wait()
    others = await come(handshakes, ["a", "a"])
    await asyncio.sleep(0.01)
    assert gone(others) == [0]
    await task
    await leave(others)


@virtual
async def test_who_said_who_it_is_leaves_its_place_to_others() -> None:
    handshakes = Handshakes(HANDSHAKE_S)
    async with handshakes.place("a", lambda: True, lambda: None):
        assert len(handshakes) == 1
    assert len(handshakes) == 0
    assert handshakes.failed == 0
