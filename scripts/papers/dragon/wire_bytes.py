"""`wire`: the bytes that a draft's distribution takes (SPEC 1.5, DRAGON §7.1).

Larger vocabularies are synthetic: a Zipf-Mandelbrot law p(r) ∝ 1 / (r + 2.7)^s with the entropy of
a real distribution, over ids in random order, which makes the sets of ids as dear as they can be.
"""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dragonrt.distributions import Distribution, codec, entropy
from dragonrt.modes.dragon.drafts import Draft
from dragonrt.wire.encoding import encode
from scripts.lab.intervals import Row, averages, distinct, having, table
from scripts.papers import charts, teacher_forced
from scripts.papers.framework import Clock, Progress, Settings

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
    """Return a row per distribution and way to write it."""
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
    random = np.random.Generator(np.random.Philox(settings.seed))
    entropies: list[float] = []
    for model in settings.models:
        positions = list(teacher_forced.positions(model, 16, 32, settings.seed))
        real = [p for position in positions for p in (position.device, position.cloud)]
        chosen = random.choice(len(real), min(per_source, len(real)), replace=False)
        for number, index in enumerate(chosen):
            entropies.append(entropy(Distribution.from_dense(real[index])))
            yield model, number, real[index]
    for vocabulary in SYNTHETIC:
        for number, nats in enumerate(random.choice(entropies, per_source)):
            yield "synthetic", number, zipf(vocabulary, nats, random)


def zipf(vocabulary: int, nats: float, random: np.random.Generator) -> NDArray[np.float64]:
    """Return a Zipf-Mandelbrot law of that entropy over ids in random order, float64 [V]."""
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
    yield common | _row(JSON, p.size, len(json.dumps(p.astype(np.float32).tolist())))
    for way in (*CODECS, *LATTICE_CODECS):
        code = codec(way, p.size)
        quantized = code.quantize(p)
        payload, entries = code.encode(quantized), len(quantized.distribution)
        whole = len(encode(_draft(p.size - 1, payload))) if len(payload) < 2**20 else None
        yield common | _row(way, entries, len(payload), whole)
        if way == "topp:0.8":
            # A byte for an id cannot address a vocabulary (SPEC 1.5): its size, for comparison.
            yield common | _row(DRAGON_LAYOUT, entries, 3 * entries)


def _row(way: str, entries: int, size: int, whole: int | None = None) -> Row:
    return {"codec": way, "entries": entries, "bytes": size, "message_bytes": whole}


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


def summarise(rows: list[Row]) -> dict[str, Any]:
    """Return mean bytes of each codec and source, and how much smaller than JSON they are."""
    overheads = [row["message_bytes"] - row["bytes"] for row in rows if row["message_bytes"]]
    found = table(rows, "source", "vocabulary", "codec", mean=("entropy", "bytes", "message_bytes"))
    for codecs in (each for vocabularies in found.values() for each in vocabularies.values()):
        for each in codecs.values():
            for column, kind in (("bytes", JSON), ("bytes", "dense:fp16"), ("message_bytes", JSON)):
                if column in each:
                    ratio = codecs[kind]["bytes"]["mean"] / each[column]["mean"]
                    each[f"{column}, times smaller than {kind}"] = round(ratio, 1)
    return found | {
        "times_smaller_than_json_by_dragon": REPORTED,
        "draft_message_beyond_payload_bytes": max(overheads),
    }


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
