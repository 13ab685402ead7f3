"""`race`: entries, bytes and requests of the race codec (SPEC 1.8), against top-p and everything.

Pairs of a larger vocabulary are synthetic: a law that both sides share and one of each side's own,
over other ids each, mixed so that entropy and distance are those of a real pair. CONCORD (arXiv
2606.15179) certifies the greedy token: compare it with temperature 0 here.
"""

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dragonrt.distributions import (
    Codec,
    Distribution,
    Step,
    codec,
    decode_distribution,
    encode_distribution,
    entropy,
    total_variation,
)
from dragonrt.distributions.codec import RACE_TAU
from dragonrt.distributions.race_codec import OwnRace, RaceCodec, RaceEntries
from dragonrt.modes.dragon.race import lowered, raised
from dragonrt.sampling.aggregation import Candidate, Coupled
from dragonrt.sampling.noise import Noise
from dragonrt.sampling.samplers import Sampler
from scripts.lab.intervals import Row, distinct, having, mean, significant, table
from scripts.papers import charts
from scripts.papers.dragon.wire_bytes import zipf
from scripts.papers.framework import Clock, Progress, Settings, measure_all
from scripts.papers.teacher_forced import BothSides

NAME = "race"
SUMMARY = "Entries, bytes and requests of the codec race over its threshold (SPEC 1.8; 5 minutes)"
CLOCKS: tuple[Clock, ...] = ("real",)

TEMPERATURES = (0.0, 0.8, 1.0)
TAUS = (0.02, 0.05, 0.1, 0.2, 0.35)
CODECS = ("race", *(f"race:{tau:g}" for tau in TAUS), "race:0.1:fp32", "topp:0.8", "dense:fp32")
LARGE = 151_936
"""The vocabulary of Qwen2.5 and 3."""
REPORTED = {
    "throughput": [1.66, 2.15],
    "times_fewer_bytes_than_dense": "over 100",
    "temperature": 0,
}
"""By CONCORD's abstract, over its baselines on Natural Questions and WikiText-2."""


@dataclass(frozen=True, slots=True)
class Pair:
    """What both sides say at one place of an answer; the device comes first."""

    answer: int
    p: tuple[NDArray[np.floating[Any]], NDArray[np.floating[Any]]]
    weights: tuple[float, float]


def run(settings: Settings, progress: Progress) -> list[Row]:
    """Return a row for every place, temperature, codec and seed."""
    questions, seeds = settings.size((16, settings.repeats), (3, 1))
    real = [
        Pair(each.question, (each.device, each.cloud), each.weights)
        for each in BothSides.load(settings.model).positions(questions, 32, settings.seed)
    ]
    random = np.random.Generator(np.random.Philox(settings.seed))
    chosen = random.choice(len(real), min(len(real), settings.size(200, 20)), replace=False)
    large = [enlarged(real[place], LARGE, random) for place in chosen]
    cases = [
        (source, pairs, temperature, settings.seed + seed)
        for source, pairs, repeats in ((settings.model, real, seeds), ("synthetic", large, 1))
        for seed in range(repeats)
        for temperature in TEMPERATURES
    ]
    return measure_all(lambda case: rows_of(*case), cases, progress)


def enlarged(pair: Pair, vocabulary: int, random: np.random.Generator) -> Pair:
    """Return a pair over a larger vocabulary with about these entropies and this distance."""
    own = [Distribution.from_dense(p / p.sum()) for p in pair.p]
    apart = min(0.999, total_variation(*own))
    choice = -sum(x * math.log(x) for x in (apart, 1 - apart) if x > 0)
    nats = [max(0.01, entropy(each) - choice) for each in own]
    common = random.permutation(_law(vocabulary, round(sum(nats) / 2, 1)))
    sides = [random.permutation(_law(vocabulary, round(each, 1))) for each in nats]
    p, q = ((1 - apart) * common + apart * each for each in sides)
    return Pair(pair.answer, (p, q), pair.weights)


@lru_cache(maxsize=128)
def _law(vocabulary: int, nats: float) -> NDArray[np.float64]:
    return zipf(vocabulary, max(nats, 0.01), np.random.default_rng(0))


def rows_of(source: str, pairs: Sequence[Pair], temperature: float, seed: int) -> Iterator[Row]:
    """Yield the rows of all codecs at all places."""
    by = Coupled(Noise(seed), Sampler(temperature))
    vocabulary = pairs[0].p[0].size
    codes = [codec(name, vocabulary) for name in CODECS]
    dense = codec("dense:fp32", vocabulary)
    taus = [RACE_TAU, RACE_TAU]
    answer = -1
    for step, pair in enumerate(pairs):
        if pair.answer != answer:  # every answer begins with the threshold of the codec's name
            answer, taus = pair.answer, [RACE_TAU, RACE_TAU]
        q = [dense.quantize(p).distribution for p in pair.p]
        common = {
            "source": source,
            "vocabulary": vocabulary,
            "temperature": temperature,
            "seed": seed,
            "place": step,
            "entropy": round(sum(map(entropy, q)) / 2, 4),
        }
        reference = _winner(by, step, q, pair.weights)
        for code in codes:
            if isinstance(code, RaceCodec):
                each = taus if code.adapts else [code.tau, code.tau]
                row, asked = raced(by, step, code, pair, each)
                if code.adapts:
                    taus = [
                        raised(lowered(t) if a else t) for t, a in zip(taus, asked, strict=True)
                    ]
                row["as_fp32"] = row["as_fp32"] == reference
            else:
                quantized = [code.quantize(p) for p in pair.p]
                payloads = [encode_distribution(code, each) for each in quantized]
                row = _row(payloads, [each.distribution for each in quantized])
            yield {**common, "codec": code.name, **row}


def _row(payloads: Sequence[bytes], sent: Sequence[Distribution]) -> Row:
    return {
        "bytes": sum(map(len, payloads)) / 2,
        "entries": sum(map(len, sent)) / 2,
        "asks": False,
        "asked_tokens": 0,
        "wrong": 0,
        "as_fp32": None,
    }


def _winner(by: Coupled, step: int, q: Sequence[Distribution], weights: tuple[float, float]) -> int:
    """Return the winner of the full mixture by its definition."""
    device, cloud = (Candidate(0, each) for each in q)
    return by.target(step, device, cloud, weights)


def raced(
    by: Coupled, step: int, code: Codec, pair: Pair, taus: Sequence[float]
) -> tuple[Row, list[bool]]:
    """Return a step with the race codec, and for each side whether the other one asks it."""
    quantized = [
        code.quantize(p, by.listing(step, p, tau)) for p, tau in zip(pair.p, taus, strict=True)
    ]
    payloads = [encode_distribution(code, each) for each in quantized]
    own = [each.distribution for each in quantized]
    read = [decode_distribution(code, payload, Step(step)) for payload in payloads]
    plain = [Distribution(p.ids, p.probabilities, p.rest, p.vocabulary) for p in own]
    winner = _winner(by, step, plain, pair.weights)
    asked, wrong, tokens = [False, False], 0, 0
    for side, weights in ((0, pair.weights), (1, (pair.weights[1], pair.weights[0]))):
        mine, theirs = own[side], read[1 - side]
        assert isinstance(mine, OwnRace)
        assert isinstance(theirs, RaceEntries)
        proof = by.certified(step, mine, theirs, weights)
        asked[1 - side] = proof.winner is None
        tokens += proof.missing.size
        wrong += proof.winner not in (None, winner)
    found = {"asks": any(asked), "asked_tokens": tokens, "wrong": wrong, "as_fp32": winner}
    return _row(payloads, read) | found, asked


def summarise(rows: list[Row]) -> dict[str, Any]:
    """Return bytes, entries and requests by source, temperature and codec, and ratios to top-p."""
    columns = ("bytes", "entries", "asks", "as_fp32", "entropy")
    found = table(rows, "source", "temperature", "codec", mean=columns)
    for codecs in (each for heats in found.values() for each in heats.values()):
        for each in codecs.values():
            for other in ("topp:0.8", "dense:fp32"):
                ratio = each["bytes"]["mean"] / codecs[other]["bytes"]["mean"]
                each[f"bytes, times {other}'s"] = significant(ratio, 4)
    wrong = int(sum(row["wrong"] for row in rows))
    return found | {"reported_by_concord": REPORTED, "wrong_winners": wrong}


def plot(rows: list[Row], path: Path) -> None:
    """Draw bytes and requests over the threshold; top-p beside them."""
    looks = charts.looks(TEMPERATURES)
    sources = distinct(rows, "source")
    with charts.picture(path, rows=2, columns=len(sources), height_inches=7.0) as (_, axes):
        for (upper, lower), source in zip(axes.T, sources, strict=True):
            for temperature in TEMPERATURES:
                some = having(rows, source=source, temperature=temperature)
                fixed = [having(some, codec=f"race:{tau:g}") for tau in TAUS]
                style = {"marker": "o", "color": looks[temperature].colour}
                sizes, asking = (
                    [mean(each, column) for each in fixed] for column in ("bytes", "asks")
                )
                upper.plot(TAUS, sizes, label=f"temperature {temperature:g}", **style)
                lower.plot(TAUS, [100 * each for each in asking], **style)
            own = having(rows, source=source, codec="topp:0.8")
            top_p, title = mean(own, "bytes"), f"{source}, V = {own[0]['vocabulary']:,}"
            upper.axhline(top_p, color=charts.BLACK, linestyle="--", linewidth=1, label="topp:0.8")
            upper.set(xscale="log", title=title, ylabel="bytes per draft", ylim=(0, None))
            lower.set(xscale="log", xlabel="τ", ylabel="steps that ask (%)", ylim=(0, None))
            upper.legend(fontsize=8)
            for axis in (upper, lower):
                axis.set_xticks(TAUS, [f"{tau:g}" for tau in TAUS])
                axis.set_xticks((), minor=True)
