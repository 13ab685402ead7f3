"""The oracle on real models: one text per question, seed, temperature and rule (SPEC section 0).

Every way of aggregating, at several latencies with jitter, against the synchronous run. Two real
processes over loopback, the latency emulated on the device's end, half of it in each direction.
"""

import asyncio
from collections.abc import Iterator
from itertools import product
from pathlib import Path
from typing import Annotated

from dragonrt import bundled
from dragonrt.cli.options import option
from dragonrt.control.scheduler import Aggregator
from dragonrt.link.profile import LinkProfile
from dragonrt.modes.dragon.settings import DragonSettings
from dragonrt.modes.question import Question
from dragonrt.sampling.rules import Algorithm1, Coupled
from dragonrt.sampling.samplers import Sampler
from dragonrt.service.comparison import Method
from scripts.lab.arena import emulated
from scripts.lab.harness import benchmark
from scripts.lab.intervals import Row
from scripts.lab.model_sides import LoadedSide, run, sample_pair

WAITS = DragonSettings(on_loss="wait")
"""On a busy machine a side can be silent too long; an answer of one side alone is another text."""

AGGREGATORS = {
    Coupled.name: tuple(Aggregator),
    Algorithm1.name: tuple(one for one in Aggregator if one is not Aggregator.BOTH),
}


@benchmark(
    {
        "rule": "{rule}",
        "temperature": "{temperature:g}",
        "documents": "{documents}",
        "aggregator": "{aggregator}",
        "latency": "{latency_ms} ms",
        "equal": "{equal} of {answers}",
    },
    note="Answers equal to the synchronous one of the same question, seed, temperature and rule. "
    "All answers of a row are under way at once, on one connection.",
)
def oracle(
    *,
    model: Annotated[
        str, option("Name, GGUF file, directory or hub id.", default="smollm2")
    ] = bundled.SMOLLM2,
    llama_library: Annotated[Path | None, option("As `dragonrt device`'s.")] = None,
    quick: Annotated[
        bool, option("2 questions, 4 seeds, 100 ms; with 0, 1 and 2 documents a side.")
    ] = False,
) -> Iterator[Row]:
    """Compare them all."""
    latencies_ms, documents = ((100,), (0, 1, 2)) if quick else ((0, 50, 200), (2,))
    asked = [each.text for each in bundled.questions() if each.demo][-2 if quick else -3 :]
    seeds = range(1, 5 if quick else 6)
    with sample_pair(model, llama_library=llama_library) as (device, port):
        for rule, heat, count in product(AGGREGATORS, (0.0, 0.8), documents):
            questions = [
                Question(prompt=prompt, seed=seed, sampler=Sampler(heat), documents=count)
                for prompt, seed in product(asked, seeds)
            ]
            synchronous = Method("oracle", rule, Aggregator.SYNC, follow=False)
            expected = run(_texts(device, port, questions, synchronous, 0), virtual=False)
            for aggregator, latency_ms in product(AGGREGATORS[rule], latencies_ms):
                method = Method(aggregator.value, rule, aggregator, follow=True)
                texts = run(_texts(device, port, questions, method, latency_ms), virtual=False)
                yield {
                    "rule": rule,
                    "temperature": heat,
                    "documents": count,
                    "aggregator": aggregator.value,
                    "latency_ms": latency_ms,
                    "answers": len(questions),
                    "equal": sum(a == b for a, b in zip(texts, expected, strict=True)),
                }


async def _texts(
    device: LoadedSide, port: int, questions: list[Question], method: Method, latency_ms: int
) -> list[list[int]]:
    link = LinkProfile(latency_s=latency_ms / 2000, jitter_s=latency_ms / 10_000)
    async with device.connected(port, emulated(link)) as arena:
        asking = (arena.ask_each([each.prompt], each, method.settings(WAITS)) for each in questions)
        return [given.tokens for (given,) in await asyncio.gather(*asking)]
