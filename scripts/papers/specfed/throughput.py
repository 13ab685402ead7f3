"""`specfed-throughput`: tokens per second and bytes per token of federated inference (SPECFED).

Drafted blocks against autoregressive decoding, where the workers are asked for every token. The
runtime's own coordinator and messages, real models, in virtual time: every worker has its own link,
and a forward takes as long whatever it reads. Under the coupled rule all ways give one text.
"""

import zlib
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from dragonrt.backends.model import LanguageModel
from dragonrt.link.profile import LinkProfile
from dragonrt.modes.question import Question
from dragonrt.modes.settings import FederatedSettings
from dragonrt.sampling.samplers import Sampler
from scripts.papers import charts
from scripts.papers.framework import Clock, Progress, Settings
from scripts.papers.intervals import Row, averages, distinct, grouped, having
from scripts.papers.model_sides import text_side
from scripts.papers.specfed.federated_text import Federation
from scripts.papers.texts import prompts
from scripts.papers.virtual_arena import played
from scripts.train.controllers.prompt import Prompt

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
"""What is held where the other one varies in the picture."""
TOKENS, TOKENS_QUICK = 32, 12


@dataclass(frozen=True, slots=True)
class FederatedCase:
    """How one answer is made. `rate` is that of each worker's link, in bit/s each way."""

    codec: str
    block_tokens: int
    workers: int
    rate: float

    @property
    def method(self) -> str:
        way = f"blocks of {self.block_tokens}" if self.block_tokens else "autoregressive"
        return f"{way}, {self.codec}"


def run(settings: Settings, progress: Progress) -> list[Row]:
    """A row per case and text."""

    federation = Federation.load(settings)
    rates, workers = (RATES_QUICK, WORKERS_QUICK) if settings.quick else (RATES, WORKERS)
    cases = [
        FederatedCase(codec, block_tokens, count, rate)
        for codec in CODECS
        for block_tokens in LENGTHS
        for count in workers
        for rate in rates
        if settings.quick or rate == MIDDLE_RATE or count == MIDDLE_WORKERS
    ]
    texts = prompts(federation.draft, 2 * settings.repeats, settings.corpus)
    tokens = TOKENS_QUICK if settings.quick else TOKENS
    rows: list[Row] = []
    for number, text in enumerate(texts):
        for case in cases:
            rows.append(_measure(federation.draft, federation.workers, text, number, case, tokens))
            progress(len(rows), len(texts) * len(cases))
    return rows


def _measure(
    draft: LanguageModel,
    models: Sequence[LanguageModel],
    prompt: Prompt,
    number: int,
    case: FederatedCase,
    tokens: int,
) -> Row:

    workers = [models[each % len(models)] for each in range(case.workers)]
    given = played(
        Question(
            seed=number,
            sampler=Sampler(TEMPERATURE),
            max_tokens=tokens,
            stop_tokens=prompt.stops,
        ),
        FederatedSettings(codec=case.codec, block_tokens=case.block_tokens, require_all=True),
        text_side("device", draft, prompt.tokens, number, DRAFT_S),
        *(text_side("cloud", model, prompt.tokens, number, WORKER_S) for model in workers),
        link=LinkProfile(latency_s=LATENCY_S, up=case.rate, down=case.rate),
    )
    counts = given.counts
    return {
        "kind": prompt.kind,
        "method": case.method,
        "codec": case.codec,
        "block_tokens": case.block_tokens,
        "workers": case.workers,
        "rate": case.rate,
        "text": number,
        "tokens": len(given.tokens),
        "tokens_per_s": len(given.tokens) / given.seconds,
        "bytes_per_token": given.wire_bytes / len(given.tokens),
        "tokens_per_round": len(given.tokens) / counts.verified,
        "acceptance": counts.stood / counts.judged if counts.judged else None,
        "digest": zlib.crc32(repr(given.tokens).encode()),
    }


def summarise(rows: list[Row]) -> dict[str, Any]:
    """Throughput and bytes by method, workers and rate, and what blocks gain."""
    keys = ("codec", "workers", "rate")
    speeds = averages(rows, "tokens_per_s", "block_tokens", *keys)
    sizes = averages(rows, "bytes_per_token", "block_tokens", *keys)
    gains = averages(_gains(rows), "speedup", "block_tokens", *keys)
    texts = grouped(rows, "codec", "workers", "text")
    points = {}
    for point in grouped(rows, *keys):
        codec, workers, rate = point
        points[f"{codec}, {workers} workers, {rate / 1e3:g} kbit/s"] = {
            f"blocks of {length}" if length else "autoregressive": {
                "tokens_per_s": speeds[length, *point].to_json(),
                "speedup": gains[length, *point].to_json(),
                "bytes_per_token": round(sizes[length, *point].value, 1),
            }
            for length in LENGTHS
        }
    acceptance = averages(rows, "acceptance", "workers", "block_tokens")
    return {
        "same_text": all(len({row["digest"] for row in group}) == 1 for group in texts.values()),
        "acceptance": {
            f"{workers} workers, blocks of {length}": each.to_json()
            for (workers, length), each in acceptance.items()
        },
        **points,
    }


def _gains(rows: list[Row]) -> list[Row]:
    """The rows with how much faster they are than autoregressive decoding of the same text."""
    found = []
    for group in grouped(rows, "codec", "workers", "rate", "text").values():
        single = next(row["tokens_per_s"] for row in group if not row["block_tokens"])
        found += [row | {"speedup": row["tokens_per_s"] / single} for row in group]
    return found


def plot(rows: list[Row], path: Path) -> None:
    """Throughput over the rate, throughput and bytes over the number of workers."""
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
            found = averages(some, column, "method", over)
            charts.lines(axis, found, looks)
            axis.set(ylabel=label, xlabel=f"workers, {MIDDLE_RATE / 1e6:g} Mbit/s each")
        left, middle, right = axes[0]
        left.set(
            xscale="log", ylim=(0, None), xlabel=f"link of each of {MIDDLE_WORKERS} workers (bit/s)"
        )
        middle.set(ylim=(0, None), xticks=sorted(set(distinct(at_rate, "workers"))))
        right.set(yscale="log", xticks=sorted(set(distinct(at_rate, "workers"))))
