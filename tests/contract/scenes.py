"""Answers over links that may fail, and models that are slow, for tests of all modes."""

import asyncio
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

import pytest

from dragonrt.modes import MODES, entry_of
from dragonrt.modes.mode import Work
from dragonrt.modes.settings import ModeEntry
from dragonrt.testing.faults import Schedule
from dragonrt.testing.scripted import SimulatedContext
from scripts.campaign.scenario import Request, Scenario

STEADY = Schedule(seed=1, latency_s=0.01)


def scene(first: Request, schedule: Schedule = STEADY, **more: Any) -> Scenario:
    """One answer over this link; a second worker has a link that does not fail."""
    mode = entry_of(first.settings).name
    links: tuple[Schedule, ...] = (schedule,)
    weights: tuple[float, ...] = (1.0,)
    if mode == "federated":
        links, weights = (schedule, replace(schedule, seed=2, faults=())), (0.5, 0.3)
    return replace(Scenario(mode, schedule.seed, (links,), (first,), weights), **more)


def together(*requests: Request, schedule: Schedule = STEADY, **more: Any) -> Scenario:
    """Several answers over the same links."""
    numbered = [
        replace(each, question=replace(each.question, prompt=str(number)))
        for number, each in enumerate(requests)
    ]
    return replace(scene(numbered[0], schedule, **more), requests=tuple(numbered))


@contextmanager
def registered(entry: ModeEntry[Any, Any]) -> Iterator[None]:
    """Have this entry in place of the one of its name, and then that again."""
    before = dict(MODES)
    MODES[entry.name] = entry
    try:
        yield
    finally:
        MODES.clear()
        MODES.update(before)


def delay_postprocessing(
    monkeypatch: pytest.MonkeyPatch, seed: int, until_s: float = float("inf")
) -> None:
    """Have the cloud read and judge ten seconds at a time, off its loop, on that seed's script."""
    right = SimulatedContext.start

    def start(context: SimulatedContext, work: Work, done: Callable[..., None]) -> None:
        loop, model = asyncio.get_running_loop(), vars(context)["_model"]
        slow = work.span is None and (model.side, model.script.seed) == ("cloud", seed)
        if slow and loop.time() < until_s:
            loop.call_later(10.0, right, context, work, done)
        else:
            right(context, work, done)

    monkeypatch.setattr(SimulatedContext, "start", start)
