"""`dragonrt simulate`: what it prints, and how it ends where something is wrong."""

from collections.abc import Callable
from typing import Any

import pytest

from dragonrt.runtime.generation import Generation

Run = Callable[..., Any]


def test_runs_without_violations_end_well(run: Run) -> None:
    outcome = run("simulate", "--runs", "3", "--seed", "5")
    assert outcome.code == 0
    first, second = outcome.output.splitlines()
    assert first.startswith("3 runs from seed 5: ")
    assert " runs per second, " in first
    assert second == "violations: 0"


def test_the_first_violation_is_named_with_the_command_that_repeats_it(
    run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Generation, "_limit", lambda generation: generation.plan.max_tokens - 1)
    found = run("simulate", "--runs", "12")
    assert found.code == 1
    repeat = next(line for line in found.output.splitlines() if "repeat it with" in line)
    arguments = repeat.split("dragonrt ")[1].split()
    again = run(*arguments)
    assert again.code == 1
    assert "violations: 1" in again.output
    assert "Scenario(" in again.output
