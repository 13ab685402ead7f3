"""The points of a simulated experiment on all cores."""

import multiprocessing
import os
from collections.abc import Callable, Sequence
from concurrent.futures import ProcessPoolExecutor
from typing import TypeVar

from scripts.papers.framework import Progress

Case = TypeVar("Case")
Result = TypeVar("Result")

FEW = 8
"""So many cases are done before another process has started."""


def measure_all(
    measure: Callable[[Case], Result], cases: Sequence[Case], progress: Progress
) -> list[Result]:
    """`measure` of every case, in their order; both must be picklable.

    Only for virtual time: processes that share cores would disturb real measurements.
    """
    results: list[Result] = []
    if len(cases) <= FEW:
        for case in cases:
            results.append(measure(case))
            progress(len(results), len(cases))
        return results
    spawn = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(os.cpu_count(), mp_context=spawn) as pool:
        for result in pool.map(measure, cases, chunksize=4):
            results.append(result)
            progress(len(results), len(cases))
    return results
