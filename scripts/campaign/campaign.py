"""Many scenarios on all cores: a seed for each run, and what was found."""

import logging
import multiprocessing
import os
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor, as_completed
from dataclasses import dataclass, field

from scripts.campaign.exploration import RunOutcome, explore

_log = logging.getLogger("dragonrt")

BATCH = 50
"""Runs that a process is given at once."""


@dataclass(slots=True)
class Findings:
    """The sum over all runs; `violations` are in the order of their seeds.

    `slowest` is the largest part that an answer took of the time in which it must end, by mode.
    """

    runs: int = 0
    tokens: int = 0
    virtual_s: float = 0.0
    violations: list[RunOutcome] = field(default_factory=list)
    slowest: dict[str, float] = field(default_factory=dict)

    def take(self, outcomes: list[RunOutcome]) -> None:
        """Add the outcomes of more runs."""
        self.runs += len(outcomes)
        self.tokens += sum(outcome.tokens for outcome in outcomes)
        self.virtual_s += sum(outcome.duration_s for outcome in outcomes)
        for outcome in outcomes:
            slowest = max(outcome.slowest, self.slowest.get(outcome.mode, 0.0))
            self.slowest[outcome.mode] = slowest
        self.violations += [outcome for outcome in outcomes if outcome.violation is not None]
        self.violations.sort(key=lambda outcome: outcome.seed)


def explore_many(
    runs: int,
    seed: int,
    mode: str | None = None,
    on_progress: Callable[[int, int], None] = lambda done, violations: None,
) -> Findings:
    """Run the scenarios of the seeds `seed` … `seed + runs - 1`, on as many cores as there are.

    They are of all modes, or of one.

    `on_progress` hears the runs done and the violations found so far. What a run does depends on
    its seed alone, not on the process or the order it is run in.
    """
    findings = Findings()
    batches = [
        range(first, min(first + BATCH, seed + runs)) for first in range(seed, seed + runs, BATCH)
    ]
    if len(batches) == 1:
        level = _log.level
        _be_quiet()
        findings.take(explore(batches[0], mode))
        _log.setLevel(level)
        return findings
    spawn = multiprocessing.get_context("spawn")
    workers = min(len(batches), os.cpu_count() or 1)
    with ProcessPoolExecutor(workers, mp_context=spawn, initializer=_be_quiet) as pool:
        for done in as_completed([pool.submit(explore, batch, mode) for batch in batches]):
            findings.take(done.result())
            on_progress(findings.runs, len(findings.violations))
    return findings


def _be_quiet() -> None:
    """Broken links are what these runs are about: their warnings say nothing."""
    _log.setLevel(logging.CRITICAL)
