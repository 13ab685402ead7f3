"""The oracle on real models: one text per question, seed, temperature and rule (SPEC section 0).

Every way of aggregating, at several latencies with jitter, against the synchronous run. Two real
processes over loopback, the latency emulated on the device's end, half of it in each direction.
"""

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import product
from typing import Any

from rich.console import Console

from dragonrt import bundled
from dragonrt.control.scheduler import Aggregator
from dragonrt.experiments.comparison import Method
from dragonrt.link.profile import LinkProfile
from dragonrt.modes.question import Question
from dragonrt.sampling.aggregation import Algorithm1, Coupled
from dragonrt.sampling.samplers import Sampler
from dragonrt.side import Precision
from scripts.bench.report import bench_table, print_report
from scripts.papers.arena import emulated
from scripts.papers.model_sides import run
from scripts.papers.sample_sides import sample_pair

NOTE = (
    "Each cell: answers equal to the synchronous one of the same question, seed, temperature and "
    "rule, of all answers. All answers of a cell are under way at once, on one connection."
)
AGGREGATORS = {
    Coupled.name: tuple(Aggregator),
    Algorithm1.name: tuple(one for one in Aggregator if one is not Aggregator.BOTH),
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
    documents: tuple[int, ...] = (2,)


QUICK = Matrix(questions=2, seeds=(1, 2, 3, 4), latencies_ms=(100,), documents=(0, 1, 2))
"""With eight answers at once, by each number of documents a side."""


def bench_oracle(
    *,
    output: Console,
    messages: Console,
    model: str,
    dtype: Precision = "auto",
    matrix: Matrix | None = None,
) -> None:
    """Compare them all; the default matrix takes about five minutes."""
    matrix = matrix or Matrix()
    questions = [each.text for each in bundled.questions() if each.demo][-matrix.questions :]
    table = bench_table(
        "rule",
        "temperature",
        "documents",
        "aggregator",
        *(f"{ms} ms" for ms in matrix.latencies_ms),
    )
    results: list[dict[str, Any]] = []
    with (
        messages.status("starting two processes") as status,
        sample_pair(model, dtype) as (device, port),
    ):

        async def ask(method: Method, temperature: float, documents: int, latency_ms: int) -> Texts:
            link = LinkProfile(latency_s=latency_ms / 2000, jitter_s=latency_ms / 10_000)
            async with device.connected(port, emulated(link)) as arena:
                asked = (
                    arena.ask_at_once(
                        questions,
                        Question(seed=seed, sampler=Sampler(temperature), documents=documents),
                        method.settings(),
                    )
                    for seed in matrix.seeds
                )
                answers = [each for some in await asyncio.gather(*asked) for each in some]
            asked_of = (each.answer.question for each in answers)
            keys = [(each.prompt, each.seed) for each in asked_of]
            return {key: each.tokens for key, each in zip(keys, answers, strict=True)}

        for rule, aggregators in AGGREGATORS.items():
            for temperature, documents in product(matrix.temperatures, matrix.documents):
                synchronous = Method("oracle", rule, Aggregator.SYNC, follow=False)
                oracle = run(ask(synchronous, temperature, documents, 0), virtual=False)
                for aggregator in aggregators:
                    method = Method(aggregator.value, rule, aggregator, follow=True)
                    equal: list[int] = []
                    for latency_ms in matrix.latencies_ms:
                        status.update(f"{rule}, {aggregator.value}, {latency_ms} ms")
                        texts = run(ask(method, temperature, documents, latency_ms), virtual=False)
                        equal.append(sum(texts[key] == oracle[key] for key in oracle))
                    results.append(
                        {
                            "rule": rule,
                            "temperature": temperature,
                            "documents": documents,
                            "aggregator": aggregator.value,
                            "latencies_ms": matrix.latencies_ms,
                            "answers": len(oracle),
                            "equal": equal,
                        }
                    )
                    table.add_row(*_cells(results[-1]))
    print_report(output, "oracle", table, results, note=NOTE)


def _cells(result: dict[str, Any]) -> Sequence[str]:
    cells = [f"{equal} of {result['answers']}" for equal in result["equal"]]
    plan = [result["rule"], f"{result['temperature']:g}", str(result["documents"])]
    return [*plan, result["aggregator"], *cells]
