"""`specfed-throughput`: tokens per second and bytes per token of federated inference (SPECFED).

Drafted blocks against autoregressive decoding, which asks the workers for every token. The
runtime's own coordinator and messages, real models, in virtual time: every worker has its own link,
and a forward takes as long whatever it reads. Under the coupled rule all ways give one text.
"""

import zlib
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from itertools import product
from pathlib import Path
from typing import Any

from dragonrt.backends.model import LanguageModel
from dragonrt.link.profile import LinkProfile
from dragonrt.modes.federated.machine import FederationError
from dragonrt.modes.federated.settings import FederatedSettings
from scripts.lab.arena import played
from scripts.lab.intervals import Row, averages, distinct, grouped, having, table
from scripts.lab.model_sides import text_side
from scripts.lab.prompt import Prompt
from scripts.papers import charts
from scripts.papers.framework import Clock, Progress, Settings, measure_all
from scripts.papers.specfed.top_k_uploads import Federation
from scripts.papers.speculation import question_of
from scripts.papers.texts import prompts

NAME = "specfed-throughput"
SUMMARY = "Federated tokens/s and bytes per token, with and without blocks (SPECFED; 5 minutes)"
CLOCKS: tuple[Clock, ...] = ("virtual",)

DRAFT_S, WORKER_S, LATENCY_S = 0.01, 0.05, 0.025
TEMPERATURE = 0.7
LENGTHS = (8, 4, 0)
"""Drafted tokens of a block; with 0 the workers decode token by token."""
CODECS = ("topk:64:residual", "dense:fp16")
RATES: tuple[float, ...] = (100e3, 300e3, 1e6, 10e6)
RATES_QUICK: tuple[float, ...] = (100e3, 1e6)
WORKERS, WORKERS_QUICK = (1, 2, 3, 4), (1, 2)
MIDDLE_RATE, MIDDLE_WORKERS = 1e6, 2
"""The fixed value of each in the picture where the other one varies."""
TOKENS, TOKENS_QUICK = 32, 12


@dataclass(frozen=True, slots=True)
class FederatedCase:
    """How one answer is made. `rate` is that of each worker's link, in bit/s each way."""

    codec: str
    block_tokens: int
    workers: int
    rate: float


def run(settings: Settings, progress: Progress) -> list[Row]:
    """Return a row per case and text."""
    rates, workers = settings.size((RATES, WORKERS), (RATES_QUICK, WORKERS_QUICK))
    cases = [
        FederatedCase(*case)
        for case in product(CODECS, LENGTHS, workers, rates)
        if settings.quick or case[3] == MIDDLE_RATE or case[2] == MIDDLE_WORKERS
    ]
    draft = Federation.load(settings).draft
    texts = enumerate(prompts(draft, settings.repeats, settings.corpora))
    tokens = settings.size(TOKENS, TOKENS_QUICK)

    def measure(one: tuple[tuple[int, Prompt], FederatedCase]) -> list[Row]:
        (number, text), case = one
        federation = Federation.load(settings, text)
        try:
            return [row_of(federation.draft, federation.workers, text, number, case, tokens)]
        except FederationError:  # the link is so slow that the device takes the workers for lost
            return []

    return measure_all(measure, list(product(texts, cases)), progress)


def row_of(
    draft: LanguageModel,
    models: Sequence[LanguageModel],
    prompt: Prompt,
    number: int,
    case: FederatedCase,
    tokens: int,
) -> Row:
    """Return the row of one answer behind the prompt."""
    workers = [models[each % len(models)] for each in range(case.workers)]
    given = played(
        question_of(prompt, number, TEMPERATURE, tokens),
        FederatedSettings(codec=case.codec, block_tokens=case.block_tokens, require_all=True),
        text_side("device", draft, prompt.tokens, number, DRAFT_S),
        *(text_side("cloud", model, prompt.tokens, number, WORKER_S) for model in workers),
        link=LinkProfile(latency_s=LATENCY_S, up=case.rate, down=case.rate),
    )
    counts, length = given.counts, len(given.tokens)
    way = f"blocks of {case.block_tokens}" if case.block_tokens else "autoregressive"
    return {
        "kind": prompt.kind,
        "method": f"{way}, {case.codec}",
        **asdict(case),
        "text": number,
        "tokens": length,
        "tokens_per_s": length / given.seconds,
        "bytes_per_token": given.wire_bytes / length,
        "tokens_per_round": length / counts.verified,
        "acceptance": counts.accepted_tokens / counts.judged if counts.judged else None,
        "digest": zlib.crc32(repr(given.tokens).encode()),
    }


def summarise(rows: list[Row]) -> dict[str, Any]:
    """Return throughput and bytes by method, workers and rate, and what blocks gain."""
    texts = grouped(rows, "codec", "workers", "text").values()
    keys, columns = ("codec", "workers", "rate"), ("tokens_per_s", "speedup", "bytes_per_token")
    return {
        "same_text": all(len(distinct(group, "digest")) == 1 for group in texts),
        "acceptance": table(rows, "workers", "block_tokens", mean=["acceptance"]),
        "means": table(_gains(rows), *keys, "block_tokens", mean=columns),
    }


def _gains(rows: list[Row]) -> list[Row]:
    """Return the rows with their speed-up over autoregressive decoding of the same text."""
    found = []
    for group in grouped(rows, "codec", "workers", "rate", "text").values():
        for single in having(group, block_tokens=0):
            speed = single["tokens_per_s"]
            found += [row | {"speedup": row["tokens_per_s"] / speed} for row in group]
    return found


def plot(rows: list[Row], path: Path) -> None:
    """Draw throughput over the rate, throughput and bytes over the number of workers."""
    looks = {
        method: charts.Look(
            charts.COLOURS[number % len(LENGTHS)],
            charts.MARKERS[number % len(LENGTHS)],
            "-" if number < len(LENGTHS) else ":",
        )
        for number, method in enumerate(distinct(rows, "method"))
    }
    at_workers, at_rate = having(rows, workers=MIDDLE_WORKERS), having(rows, rate=MIDDLE_RATE)
    speed, size = ("tokens_per_s", "tokens/s"), ("bytes_per_token", "bytes per token, all links")
    with charts.picture(path, columns=3, height_inches=3.9, legend=2) as (_, axes):
        for axis, some, over, (column, label) in zip(
            axes[0],
            (at_workers, at_rate, at_rate),
            ("rate", "workers", "workers"),
            (speed, speed, size),
            strict=True,
        ):
            charts.lines(axis, averages(some, column, "method", over), looks)
            axis.set(ylabel=label, xlabel=f"workers, {MIDDLE_RATE / 1e6:g} Mbit/s each")
        left, middle, right = axes[0]
        left.set(
            xscale="log", ylim=(0, None), xlabel=f"link of each of {MIDDLE_WORKERS} workers (bit/s)"
        )
        middle.set(ylim=(0, None), xticks=sorted(set(distinct(at_rate, "workers"))))
        right.set(yscale="log", xticks=sorted(set(distinct(at_rate, "workers"))))
