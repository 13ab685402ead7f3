"""The virtual clock: jumps, order, dead-locks, tasks without an owner."""

import asyncio

import pytest

from dragonrt.errors import DragonError
from dragonrt.testing.loop import DeadlockError, run


def test_waiting_is_virtual_and_timers_fire_in_order() -> None:
    async def main() -> list[tuple[str, float]]:
        loop = asyncio.get_running_loop()
        seen: list[tuple[str, float]] = []

        async def wait(name: str, seconds: float) -> None:
            await asyncio.sleep(seconds)
            seen.append((name, loop.time()))

        await asyncio.gather(wait("day", 86400.0), wait("tenth", 0.1), wait("hour", 3600.0))
        return seen

    assert run(main()) == [("tenth", 0.1), ("hour", 3600.0), ("day", 86400.0)]


def test_timeouts_work() -> None:
    async def main() -> float:
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(5):
                await asyncio.Event().wait()
        return asyncio.get_running_loop().time()

    assert run(main()) == 5.0


def test_a_dead_lock_names_every_waiting_task_and_its_place() -> None:
    async def starve() -> None:
        await asyncio.Event().wait()

    async def main() -> None:
        await asyncio.create_task(starve(), name="poor task")

    with pytest.raises(DeadlockError, match=r"poor task in .*starve:\d+"):
        run(main())


def test_a_task_left_behind_is_an_error() -> None:
    async def linger() -> None:
        await asyncio.sleep(1000)

    async def main() -> None:
        asyncio.get_running_loop().leaked = asyncio.create_task(  # type: ignore[attr-defined]
            linger(), name="lingerer"
        )

    with pytest.raises(DragonError, match="lingerer"):
        run(main())


def test_an_exception_in_a_callback_is_not_lost() -> None:
    async def main() -> None:
        asyncio.get_running_loop().call_later(1, lambda: 1 / 0)
        await asyncio.sleep(2)

    with pytest.raises(ZeroDivisionError):
        run(main())
