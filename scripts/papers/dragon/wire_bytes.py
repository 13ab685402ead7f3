"""`wire`: the bytes that a draft's distribution takes (SPEC 1.5, DRAGON §7.1).

Real distributions are the bundled models' on the sample questions. Larger vocabularies are
synthetic: a Zipf-Mandelbrot law p(r) ∝ 1 / (r + 2.7)^s over ids in random order, its s solved so
that its entropy is that of a real distribution. Real tokenizers give frequent tokens low ids, so
random ids make the sets of ids as dear as they can be (all are as dear to the lattice codecs).
"""

import json
from collections.abc import Iterator
from math import comb
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dragonrt.distributions import (
    Codec,
    Distribution,
    LatticePoint,
    Quantized,
    codec,
    encode_distribution,
    entropy,
)
from dragonrt.distributions.bits import BitWriter
from dragonrt.wire.encoding import encode
from dragonrt.wire.messages import Draft
from scripts.papers import charts
from scripts.papers.framework import Clock, Progress, Settings
from scripts.papers.intervals import Row, averages, distinct, estimates, grouped, having
from scripts.papers.teacher_forced import BothSides

NAME = "wire"
SUMMARY = "Bytes per token of every codec, against JSON and DRAGON's 2,363x (§7.1; 3 minutes)"
CLOCKS: tuple[Clock, ...] = ("real",)

SECOND = "dragon-opt"
SYNTHETIC = (50_272, 151_936)
"""The vocabularies of OPT, which DRAGON reports, and of Qwen2.5."""
CODECS = (
    "dense:fp32",
    "dense:fp16",
    "topk:64:residual",
    "topk:16:renorm",
    "topp:0.95",
    "topp:0.8",
)
LATTICE_CODECS = ("qs:100", "ksqs:64:100", "csqs:0.001:100")
"""Bit strings of QSV and SQS, at the resolution of SQS's experiments (SPEC 2)."""
JSON, DRAGON_LAYOUT = "JSON", "topp:0.8, uint8 + fp16"
WAYS = (JSON, *CODECS, *LATTICE_CODECS, DRAGON_LAYOUT)
REPORTED, REPORTED_VOCABULARY = 2363, 50_272
SHIFT = 2.7  # Mandelbrot's


def run(settings: Settings, progress: Progress) -> list[Row]:
    """A row per distribution and way to write it: entropy in nats, bytes of the payload alone and
    of the whole Draft message around it (None where no Draft can carry it); of a lattice point also
    its bits as written and as the paper's formula has them."""

    models = (settings.model,) if settings.quick else tuple({settings.model: 0, SECOND: 0})
    per_source = 40 if settings.quick else 60 * settings.repeats
    total = per_source * (len(models) + len(SYNTHETIC))
    rows: list[Row] = []

    def measure(source: str, distributions: Iterator[NDArray[np.floating[Any]]]) -> None:
        for number, p in enumerate(distributions):
            rows.extend(_sizes(source, number, p))
            progress(len(rows) // len(WAYS), total)

    random = np.random.Generator(np.random.Philox(settings.seed))
    entropies: list[float] = []
    for model in models:
        positions = list(BothSides.load(model).positions(16, 32, settings.seed))
        real = [p for position in positions for p in (position.device, position.cloud)]
        chosen = random.choice(len(real), min(per_source, len(real)), replace=False)
        entropies += [entropy(Distribution.from_dense(real[index])) for index in chosen]
        measure(model, (real[index] for index in chosen))
    for vocabulary in SYNTHETIC:
        wanted = random.choice(entropies, per_source)
        measure("synthetic", (zipf(vocabulary, nats, random) for nats in wanted))
    return rows


def zipf(vocabulary: int, nats: float, random: np.random.Generator) -> NDArray[np.float64]:
    """A Zipf-Mandelbrot law of that entropy over ids in random order, float64 [V].

    An entropy above log V gives the uniform distribution.
    """
    log_ranks = np.log(np.arange(vocabulary) + SHIFT)
    low, high = 0.0, 64.0
    for _ in range(50):
        exponent = (low + high) / 2
        p = np.exp(-exponent * (log_ranks - log_ranks[0]))
        p /= p.sum()
        if -(p @ np.log(np.maximum(p, 1e-300))) > nats:
            low = exponent
        else:
            high = exponent
    shuffled: NDArray[np.float64] = p[random.permutation(vocabulary)]
    return shuffled


def _sizes(source: str, number: int, p: NDArray[np.floating[Any]]) -> Iterator[Row]:
    """All ways to write one distribution."""
    common = {
        "source": source,
        "vocabulary": p.size,
        "sample": number,
        "entropy": round(entropy(Distribution.from_dense(p)), 6),
    }
    entries: dict[str, int] = {}
    for way in WAYS:
        row: Row = {"entries": p.size, "message_bytes": None, "bits": None, "formula_bits": None}
        if way == JSON:
            row["bytes"] = len(json.dumps(p.astype(np.float32).tolist()))
        elif way == DRAGON_LAYOUT:
            # A byte for an id cannot address a vocabulary (SPEC 1.5): its size, for comparison.
            row["entries"] = entries["topp:0.8"]
            row["bytes"] = 3 * row["entries"]
        else:
            code = codec(way, p.size)
            quantized = code.quantize(p)
            payload = encode_distribution(code, quantized)
            row["entries"] = entries[way] = len(quantized.distribution)
            row["bytes"] = len(payload)
            if len(payload) < 2**20:
                row["message_bytes"] = len(encode(_draft(p.size - 1, payload)))
            row |= _lattice_bits(code, quantized)
        yield {**common, "codec": way, **row}


def _draft(token: int, payload: bytes) -> Draft:
    """One whose other fields are as large as they get."""
    return Draft(
        session=1,
        step=100,
        prefix_hash=2**64 - 1,
        token=token,
        relevance=1.0,
        decode_us=50_000,
        ahead=10,
        decided_hash=2**32 - 1,
        payload=payload,
    )


def _lattice_bits(code: Codec, quantized: Quantized) -> Row:
    """The bits of a lattice point as written, and by SQS Eq. (1), (2), (5) and QSV III-B."""
    point, writer = quantized.code, BitWriter()
    if not isinstance(point, LatticePoint):
        return {}
    code.write(quantized, writer)
    kept = point.ids.size
    formula = _bits(comb(point.resolution + kept - 1, point.resolution))
    if not code.name.startswith("qs"):
        formula += _bits(comb(code.vocabulary, kept))
    if code.name.startswith("csqs"):
        formula += _bits(code.vocabulary)
    return {"bits": writer.bits, "formula_bits": formula}


def _bits(number: int) -> int:
    """⌈log2 number⌉."""
    return (number - 1).bit_length()


def summarise(rows: list[Row]) -> dict[str, Any]:
    """Median and mean bytes of each codec and source, and how many times smaller than JSON."""
    medians = estimates(rows, "bytes", "source", "vocabulary", "codec")
    means = averages(rows, "bytes", "source", "vocabulary", "codec")
    messages = averages(rows, "message_bytes", "source", "vocabulary", "codec")
    summary: dict[str, Any] = {"reported_by_dragon": {"times_smaller_than_json": REPORTED}}
    for (source, vocabulary), group in grouped(rows, "source", "vocabulary").items():
        dense = means[source, vocabulary, "dense:fp16"].value
        text = means[source, vocabulary, JSON].value
        one_each = [row["entropy"] for row in group if row["codec"] == JSON]
        summary[f"{source}, V = {vocabulary}"] = {
            "mean_entropy_nats": round(sum(one_each) / len(one_each), 4),
            "codecs": {
                name: {
                    "bytes": medians[source, vocabulary, name].to_json(),
                    "mean_bytes": means[source, vocabulary, name].to_json(),
                    "times_smaller_than_json": round(
                        text / means[source, vocabulary, name].value, 1
                    ),
                    "times_smaller_than_dense_fp16": round(
                        dense / means[source, vocabulary, name].value, 1
                    ),
                    "whole_message_times_smaller_than_json": round(
                        text / messages[source, vocabulary, name].value, 1
                    )
                    if (source, vocabulary, name) in messages
                    else None,
                }
                for name in WAYS
            },
        }
    overheads = [row["message_bytes"] - row["bytes"] for row in rows if row["message_bytes"]]
    summary["draft_message_beyond_payload_bytes"] = max(overheads)
    lattice = [row for row in rows if row["bits"] is not None]
    summary["lattice_points_in_other_bits_than_the_formula"] = sum(
        row["bits"] != row["formula_bits"] for row in lattice
    )
    return summary


def plot(rows: list[Row], path: Path) -> None:
    """Bytes by codec and source; and by entropy for what depends on it."""
    rows = [row | {"law": f"{row['source']}, V = {row['vocabulary']:,}"} for row in rows]
    looks = charts.looks(distinct(rows, "law"))
    means = averages(rows, "bytes", "law", "codec")
    with charts.picture(path, rows=2, height_inches=8.0) as (_, axes):
        upper, lower = axes[:, 0]
        charts.bars(upper, means, looks, WAYS)
        text = means.get((f"synthetic, V = {REPORTED_VOCABULARY:,}", JSON))
        if text is not None:
            reported = text.value / REPORTED
            upper.axhline(reported, color=charts.BLACK, linestyle="--", linewidth=1)
            told = f"JSON of {REPORTED_VOCABULARY:,}\nover {REPORTED:,}, as\nDRAGON reports"
            upper.text(len(WAYS) - 0.5, reported * 1.2, told, ha="right", fontsize=8)
        labels = [name.replace(", ", ",\n").replace(":", ":\n") for name in WAYS]
        upper.set_xticks(range(len(WAYS)), labels, fontsize=8)
        upper.set(yscale="log", ylabel="bytes per token (mean, 95 %)")
        upper.legend(loc="upper right")
        for law, look in looks.items():
            for codec, filled in (("topp:0.95", False), ("topp:0.8", True)):
                some = having(rows, law=law, codec=codec)
                lower.scatter(
                    [row["entropy"] for row in some],
                    [row["bytes"] for row in some],
                    s=12,
                    marker=look.marker,
                    edgecolors=look.colour,
                    facecolors=look.colour if filled else "none",
                    linewidths=0.8,
                    label=f"{codec}, {law}",
                )
        lower.set(
            yscale="log", xlabel="entropy of the distribution (nats)", ylabel="payload (bytes)"
        )
        lower.legend(fontsize=8, ncols=2)
