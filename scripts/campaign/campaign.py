"""Many scenarios on all cores: a seed for each run."""

import logging
import multiprocessing
import os
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor, as_completed

from scripts.campaign.exploration import RunOutcome, explore

_log = logging.getLogger("dragonrt")

BATCH = 50
"""Runs that a process is given at once."""


def explore_many(
    runs: int,
    seed: int,
    mode: str | None = None,
    on_progress: Callable[[int], None] = lambda done: None,
) -> list[RunOutcome]:
    """Run the scenarios of the seeds `seed` … `seed + runs - 1`, on as many cores as there are.

    They are of all modes, or of one. `on_progress` gets the number of runs done. What a run does
    depends on its seed alone, not on the process or the order it is run in.
    """
    end = seed + runs
    batches = [range(first, min(first + BATCH, end)) for first in range(seed, end, BATCH)]
    if len(batches) == 1:
        level = _log.level
        _be_quiet()
        found = explore(batches[0], mode)
        _log.setLevel(level)
        return found
    found = []
    spawn = multiprocessing.get_context("spawn")
    workers = min(len(batches), os.cpu_count() or 1)
    with ProcessPoolExecutor(workers, mp_context=spawn, initializer=_be_quiet) as pool:
        for done in as_completed([pool.submit(explore, batch, mode) for batch in batches]):
            found += done.result()
            on_progress(len(found))
    return sorted(found, key=lambda outcome: outcome.seed)


def _be_quiet() -> None:
    """Broken links are what these runs are about: their warnings say nothing."""
    _log.setLevel(logging.CRITICAL)
