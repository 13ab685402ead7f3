"""`wire`: the bytes that a draft's distribution takes (SPEC 1.5, DRAGON §7.1).

Real distributions are the models' on the sample questions. Larger vocabularies are synthetic: a
Zipf-Mandelbrot law p(r) ∝ 1 / (r + 2.7)^s over ids in random order, its s solved so that its
entropy is that of a real distribution. Real tokenizers give frequent tokens low ids, so random ids
make the sets of ids as dear as they can be (all are as dear to the lattice codecs).
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
from scripts.papers.intervals import Row, averages, distinct, estimates, grouped, having, mean
from scripts.papers.teacher_forced import BothSides

NAME = "wire"
SUMMARY = "Bytes per token of every codec, against JSON and DRAGON's 2,363x (§7.1; 3 minutes)"
CLOCKS: tuple[Clock, ...] = ("real",)

SYNTHETIC = (50_272, 151_936)
"""The vocabularies of OPT, which DRAGON reports, and of Qwen2.5."""
CODECS = (
    *("dense:fp32", "dense:fp16", "topk:64:residual", "topk:16:renorm", "topp:0.95", "topp:0.8"),
)
LATTICE_CODECS = ("qs:100", "ksqs:64:100", "csqs:0.001:100")
"""Bit strings of QSV and SQS, at the resolution of SQS's experiments (SPEC 2)."""
JSON, DRAGON_LAYOUT = "JSON", "topp:0.8, uint8 + fp16"
WAYS = (JSON, *CODECS, *LATTICE_CODECS, DRAGON_LAYOUT)
REPORTED, REPORTED_VOCABULARY = 2363, 50_272
SHIFT = 2.7  # Mandelbrot's


def run(settings: Settings, progress: Progress) -> list[Row]:
    """Return a row per distribution and way to write it.

    It has the entropy in nats, bytes of the payload alone and of the whole Draft message around it
    (None if no Draft can carry it); of a lattice point also its bits as written and as the paper's
    formula has them.
    """
    per_source = settings.size(60 * settings.repeats, 40)
    total = per_source * (len(settings.models) + len(SYNTHETIC))
    rows: list[Row] = []
    for done, sample in enumerate(_samples(settings, per_source), start=1):
        rows += sizes(*sample)
        progress(done, total)
    return rows


def _samples(
    settings: Settings, per_source: int
) -> Iterator[tuple[str, int, NDArray[np.floating[Any]]]]:
    """Yield the source, number and distribution of every sample."""
    random = np.random.Generator(np.random.Philox(settings.seed))
    entropies: list[float] = []
    for model in settings.models:
        positions = list(BothSides.load(model).positions(16, 32, settings.seed))
        real = [p for position in positions for p in (position.device, position.cloud)]
        chosen = random.choice(len(real), min(per_source, len(real)), replace=False)
        for number, index in enumerate(chosen):
            entropies.append(entropy(Distribution.from_dense(real[index])))
            yield model, number, real[index]
    for vocabulary in SYNTHETIC:
        for number, nats in enumerate(random.choice(entropies, per_source)):
            yield "synthetic", number, zipf(vocabulary, nats, random)


def zipf(vocabulary: int, nats: float, random: np.random.Generator) -> NDArray[np.float64]:
    """Return a Zipf-Mandelbrot law of that entropy over ids in random order, float64 [V].

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


def sizes(source: str, number: int, p: NDArray[np.floating[Any]]) -> Iterator[Row]:
    """Yield the rows of all ways to write one distribution."""
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
            row |= lattice_bits(code, quantized)
        yield {**common, "codec": way, **row}


def _draft(token: int, payload: bytes) -> Draft:
    """Return one whose other fields are as large as they get."""
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


def lattice_bits(code: Codec, quantized: Quantized) -> Row:
    """Return a lattice point's bits as written, and by SQS Eq. (1), (2), (5) and QSV III-B."""
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
    """Return ⌈log2 number⌉."""
    return (number - 1).bit_length()


def summarise(rows: list[Row]) -> dict[str, Any]:
    """Return median and mean bytes of each codec and source, and how much smaller they are."""
    summary: dict[str, Any] = {"reported_by_dragon": {"times_smaller_than_json": REPORTED}}
    for (source, vocabulary), group in grouped(rows, "source", "vocabulary").items():
        medians, means = estimates(group, "bytes", "codec"), averages(group, "bytes", "codec")
        messages = averages(group, "message_bytes", "codec")
        text, dense = means[JSON,].value, means["dense:fp16",].value
        summary[f"{source}, V = {vocabulary}"] = {
            "mean_entropy_nats": round(mean(having(group, codec=JSON), "entropy"), 4),
            "codecs": {
                name: {
                    "bytes": medians[name,].to_json(),
                    "mean_bytes": each.to_json(),
                    "times_smaller_than_json": round(text / each.value, 1),
                    "times_smaller_than_dense_fp16": round(dense / each.value, 1),
                    "whole_message_times_smaller_than_json": round(text / messages[name,].value, 1)
                    if (name,) in messages
                    else None,
                }
                for (name,), each in means.items()
            },
        }
    overheads = [row["message_bytes"] - row["bytes"] for row in rows if row["message_bytes"]]
    summary["draft_message_beyond_payload_bytes"] = max(overheads)
    summary["lattice_points_in_other_bits_than_the_formula"] = sum(
        row["bits"] != row["formula_bits"] for row in rows
    )
    return summary


def plot(rows: list[Row], path: Path) -> None:
    """Draw bytes by codec and source; and by entropy for what depends on it."""
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
            label = f"JSON of {REPORTED_VOCABULARY:,}\nover {REPORTED:,}, as\nDRAGON reports"
            upper.text(len(WAYS) - 0.5, reported * 1.2, label, ha="right", fontsize=8)
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
        label = "entropy of the distribution (nats)"
        lower.set(yscale="log", xlabel=label, ylabel="payload (bytes)")
        lower.legend(fontsize=8, ncols=2)
