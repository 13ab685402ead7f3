"""`scripts/campaign/run`: what it prints, and how it ends where something is wrong."""

from collections.abc import Callable
from functools import partial
from typing import Any

import pytest

from dragonrt.modes.dragon.planner import Planner

Run = Callable[..., Any]


@pytest.fixture
def call(run: Run) -> Run:
    return partial(run, script="campaign")


def test_runs_without_violations_end_well(call: Run) -> None:
    outcome = call("--runs", "3", "--seed", "5")
    assert outcome.code == 0
    first, second, third = outcome.output.splitlines()
    assert first.startswith("3 runs from seed 5: ")
    assert " runs per second, " in first
    assert second.startswith("slowest answer, of the time in which it must end: ")
    assert third == "violations: 0"


def test_the_runs_are_of_one_mode_where_that_is_asked_for(call: Run) -> None:
    outcome = call("--runs", "3", "--mode", "federated")
    assert outcome.code == 0
    slowest = outcome.output.splitlines()[1]
    assert "federated" in slowest
    assert "dragon" not in slowest
    line = call("--mode", "solo").line
    assert line == (
        "unknown mode 'solo': choose one of all, dragon, speculative, federated, sprinter"
    )


def test_the_first_violation_is_shown_with_its_command(
    call: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Planner, "limit", property(lambda planner: planner._max_tokens - 1))
    found = call("--runs", "12")
    assert found.code == 1
    repeat = next(line for line in found.output.splitlines() if "repeat it with" in line)
    arguments = repeat.split("scripts/campaign/run ")[1].split()
    again = call(*arguments)
    assert again.code == 1
    assert "violations: 1" in again.output
    assert "Scenario(" in again.output
