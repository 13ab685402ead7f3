"""The oracle on real models: one text per question, seed, temperature and rule (SPEC section 0).

Every way of aggregating, at several latencies with jitter, against the synchronous run. Two real
processes over loopback, the latency emulated on the device's end, half of it in each direction.
"""

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from rich.console import Console

from dragonrt import bundled
from dragonrt.experiments.bench.report import bench_table, print_report
from dragonrt.experiments.cloud_process import cloud_process
from dragonrt.experiments.comparison import Method
from dragonrt.experiments.sides import LoadedSide, run, sample_settings
from dragonrt.runtime.endpoints import emulation
from dragonrt.runtime.plan import Plan
from dragonrt.runtime.scheduler import Placement
from dragonrt.sampling.aggregation import Algorithm1, Coupled
from dragonrt.sampling.samplers import Sampler

NOTE = (
    "Each cell: answers equal to the synchronous one of the same question, seed, temperature and "
    "rule, of all answers. All answers of a cell are under way at once, on one connection."
)
PLACEMENTS = {
    Coupled.name: tuple(Placement),
    Algorithm1.name: tuple(one for one in Placement if one is not Placement.BOTH),
}

Texts = dict[tuple[str, int], list[int]]
"""The tokens of each (question, seed)."""


@dataclass(frozen=True, slots=True)
class Matrix:
    """What is compared: every combination of these."""

    questions: int = 3
    seeds: tuple[int, ...] = (1, 2, 3, 4, 5)
    temperatures: tuple[float, ...] = (0.0, 0.8)
    latencies_ms: tuple[int, ...] = (0, 50, 200)


def bench_oracle(*, output: Console, messages: Console, matrix: Matrix | None = None) -> None:
    """Compare them all; the default matrix takes about five minutes."""
    matrix = matrix or Matrix()
    questions = [each.text for each in bundled.questions() if each.demo][-matrix.questions :]
    table = bench_table(
        "rule", "temperature", "aggregator", *(f"{ms} ms" for ms in matrix.latencies_ms)
    )
    results: list[dict[str, Any]] = []
    with (
        cloud_process("--documents", str(bundled.documents("cloud"))) as cloud,
        messages.status("starting two processes") as status,
    ):
        device = LoadedSide.load(sample_settings("device"))
        port = cloud.wait_ready()

        async def ask(method: Method, temperature: float, latency_ms: int) -> Texts:
            emulate = emulation(
                "device", None, f"{latency_ms / 2:g}ms", f"{latency_ms / 10:g}ms", None, None, 0
            )
            async with device.connected(port, emulate) as arena:
                plans = [method.plan(Plan(seed, Sampler(temperature))) for seed in matrix.seeds]
                asked = (arena.ask_at_once(plan, questions) for plan in plans)
                answers = [each for some in await asyncio.gather(*asked) for each in some]
            keys = [(question, seed) for seed in matrix.seeds for question in questions]
            return {key: each.tokens for key, each in zip(keys, answers, strict=True)}

        for rule, placements in PLACEMENTS.items():
            for temperature in matrix.temperatures:
                synchronous = Method("oracle", rule, Placement.SYNC, follow=False)
                oracle = run(ask(synchronous, temperature, 0), virtual=False)
                for placement in placements:
                    method = Method(placement.value, rule, placement, follow=True)
                    equal: list[int] = []
                    for latency_ms in matrix.latencies_ms:
                        status.update(f"{rule}, {placement.value}, {latency_ms} ms")
                        texts = run(ask(method, temperature, latency_ms), virtual=False)
                        equal.append(sum(texts[key] == oracle[key] for key in oracle))
                    results.append(
                        {
                            "rule": rule,
                            "temperature": temperature,
                            "aggregator": placement.value,
                            "latencies_ms": matrix.latencies_ms,
                            "answers": len(oracle),
                            "equal": equal,
                        }
                    )
                    table.add_row(*_cells(results[-1]))
    print_report(output, "oracle", table, results, note=NOTE)


def _cells(result: dict[str, Any]) -> Sequence[str]:
    cells = [f"{equal} of {result['answers']}" for equal in result["equal"]]
    return [result["rule"], f"{result['temperature']:g}", result["aggregator"], *cells]
