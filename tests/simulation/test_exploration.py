"""The search for defects: it finds none, it finds those put in, and a seed repeats a run."""

from collections.abc import Callable
from typing import Any

import pytest

from dragonrt.runtime.draft import Draft
from dragonrt.runtime.generation import Generation
from dragonrt.runtime.lookahead import Lookahead
from dragonrt.runtime.peer import Peer
from dragonrt.runtime.queues import DraftQueue
from dragonrt.sampling.aggregation import Coupled, side_weights
from dragonrt.simulation.campaign import explore_many
from dragonrt.simulation.exploration import explore, explore_one
from dragonrt.simulation.scenario import Scenario


@pytest.mark.slow
@pytest.mark.parametrize("first", range(0, 200, 50))
def test_no_run_violates_anything(first: int) -> None:
    violations = [run for run in explore(range(first, first + 50)) if run.violation is not None]
    assert violations == []


def test_scenarios_differ_in_everything_that_may_go_wrong() -> None:
    drawn = [Scenario.draw(seed) for seed in range(300)]
    assert len({len(scenario.questions) for scenario in drawn}) == 3
    assert len({len(scenario.schedules) for scenario in drawn}) == 2
    assert {type(fault).__name__ for each in drawn for fault in each.schedules[0].faults} == {
        "Cut",
        "Stall",
    }
    questions = [question for scenario in drawn for question in scenario.questions]
    assert len({(asked.plan.rule, asked.plan.placement) for asked in questions}) == 11
    assert {asked.on_loss for asked in questions} == {"alone", "wait"}
    assert {asked.stops for asked in questions if asked.end_s is not None} == {True, False}
    assert any(scenario.stall for scenario in drawn)
    assert any(scenario.killed_s for scenario in drawn)
    assert any(not scenario.may_lose_the_cloud for scenario in drawn)


def test_a_seed_repeats_its_run() -> None:
    first, again = explore(range(7, 12)), [explore_one(Scenario.draw(n)) for n in range(7, 12)]
    assert first == again
    assert len({run.duration_s for run in first}) > 3


def test_findings_add_up() -> None:
    findings = explore_many(6, 3)
    runs = explore(range(3, 9))
    assert (findings.runs, findings.violations) == (6, [])
    assert findings.tokens == sum(run.tokens for run in runs)
    assert findings.virtual_s == sum(run.duration_s for run in runs)


@pytest.mark.slow
def test_processes_find_what_one_finds() -> None:
    findings = explore_many(52, 0)
    assert (findings.runs, findings.violations) == (52, [])
    assert findings.tokens == sum(run.tokens for run in explore(range(52)))


# Defects that were put in are found, and the first one by its seed.


def violations(seeds: range) -> list[str]:
    return [run.violation for run in explore(seeds) if run.violation is not None]


def stale_drafts(queue: DraftQueue, step: int, prefix_hash: int) -> Draft | None:
    """The defect of DRAGON's reference: a draft is known by its step alone."""
    lines = queue._drafts.get(step)
    return next(iter(lines.values())) if lines else None


def swapped_sides(generation: Generation, step: int, own: Draft, theirs: Draft) -> int:
    """Each side takes itself for the device."""
    weights = side_weights(own.relevance, theirs.relevance)
    decoded = theirs.decoded(generation._codec)
    return generation._rule.target(step, own.candidate, decoded.candidate, weights)


def too_far(lookahead: Lookahead, decided: int) -> int:
    return min(decided + lookahead.plan.run_ahead + 1, lookahead.plan.max_tokens) - 1


def never_closed(peer: Peer, *_: Any) -> None:
    """Sessions stay open on the other side."""


@pytest.mark.parametrize(
    ("broken", "name", "defect", "expected"),
    [
        (DraftQueue, "get", stale_drafts, "where the oracle gives"),
        (Generation, "_target", swapped_sides, "where the oracle gives"),
        (Lookahead, "limit", too_far, "beyond the bound"),
        (Peer, "close", never_closed, "are left"),
    ],
)
def test_a_defect_is_found(
    monkeypatch: pytest.MonkeyPatch,
    broken: type,
    name: str,
    defect: Callable[..., Any],
    expected: str,
) -> None:
    monkeypatch.setattr(broken, name, defect)
    assert any(expected in violation for violation in violations(range(20)))


def test_a_rule_that_is_no_function_of_the_text_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    answers = iter(range(10**9))
    monkeypatch.setattr(Coupled, "target", lambda *_: 1 + next(answers) % 15)
    found = violations(range(20))
    assert any("decided" in violation for violation in found)


def test_a_text_that_stops_early_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    right = Generation.go_alone

    def gives_up(generation: Generation) -> None:
        right(generation)
        generation.stop()

    monkeypatch.setattr(Generation, "go_alone", gives_up)
    assert any("the answer ended with" in violation for violation in violations(range(40)))


def test_a_run_that_computes_without_end_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    def spins(lookahead: Lookahead, decided: int) -> int:
        while True:
            pass

    monkeypatch.setattr("dragonrt.simulation.exploration.LONGEST_COMPUTING_S", 0.05)
    monkeypatch.setattr(Lookahead, "limit", spins)
    (violation,) = violations(range(1))
    assert "computes for more than" in violation


def test_a_cloud_that_ends_as_the_handshake_does_is_no_hang() -> None:
    """In this scenario the handshake's last message and the Goodbye come in one read."""
    assert explore_one(Scenario.draw(20356)).violation is None
