"""What stored KV saves: the time to the first token against prefilling the documents afresh.

Two pairs of processes that differ in one thing: the index of one pair holds the documents' KV, that
of the other does not, so that each side prefills what it found, one document after another.
"""

import shutil
import tempfile
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from typing import Any

from rich.console import Console

from dragonrt import bundled
from dragonrt.experiments.cloud_process import cloud_process
from dragonrt.experiments.comparison import LEADERLESS
from dragonrt.modes.question import GREEDY, Question
from dragonrt.node.process import default_index
from dragonrt.side import Side
from scripts.bench.report import Series, bench_table, print_report
from scripts.papers.model_sides import run
from scripts.papers.sample_sides import LoadedSide, sample_pair

NOTE = (
    "From the question to the first token on the device, retrieval on both sides included, over "
    "loopback without latency. Medians over the sample questions and interleaved repeats."
)


def bench_ttft(
    *,
    output: Console,
    messages: Console,
    model: str = bundled.models()[0],
    documents: int = 8,
    repeats: int = 3,
    seed: int = 1,
) -> None:
    """Milliseconds to the first token with stored KV and without, `documents` per side."""
    with ExitStack() as stack:
        stack.enter_context(messages.status("starting two pairs of processes"))
        folder = stack.enter_context(tempfile.TemporaryDirectory(prefix="dragonrt-"))
        stored, port = stack.enter_context(sample_pair(model))
        bare = {side: _without_kv(side, Path(folder) / side) for side in ("device", "cloud")}
        options = ("--index", str(bare["cloud"]), "--kv-cache", "0")
        other = stack.enter_context(cloud_process(*options, model=model))
        settings = replace(stored.settings, documents=(), index=bare["device"], kv_cache="0")
        afresh = LoadedSide.load(settings)
        question = Question(seed=seed, sampler=GREEDY, max_tokens=1, documents=documents)
        times = run(
            _measure((stored, port), (afresh, other.wait_ready()), question, repeats), virtual=False
        )
    stored_ms, afresh_ms = times
    ratio = afresh_ms.median / stored_ms.median
    table = bench_table("model", "documents per side", "stored KV", "afresh", "ratio")
    table.add_row(
        model,
        str(documents),
        f"{stored_ms.median:.1f} ms",
        f"{afresh_ms.median:.1f} ms",
        f"{ratio:.2f}x",
    )
    result: dict[str, Any] = {
        "model": model,
        "documents_per_side": documents,
        "stored_ms": stored_ms.to_json(),
        "afresh_ms": afresh_ms.to_json(),
        "ratio": round(ratio, 3),
    }
    print_report(output, "ttft", table, [result], seed=seed, note=NOTE)


def _without_kv(side: Side, copy: Path) -> Path:
    """A copy of a side's index of the sample documents that lacks their KV."""
    index = default_index((bundled.documents(side),))
    shutil.copytree(index, copy, ignore=shutil.ignore_patterns("kv"))
    return copy


async def _measure(
    stored: tuple[LoadedSide, int], afresh: tuple[LoadedSide, int], question: Question, repeats: int
) -> tuple[Series, Series]:
    """Milliseconds to the first token of every question, the two pairs by turns."""
    prompts = [each.text for each in bundled.questions()]
    times: tuple[list[float], list[float]] = [], []
    async with (
        stored[0].connected(stored[1]) as with_kv,
        afresh[0].connected(afresh[1]) as without_kv,
    ):
        for _ in range(repeats):
            for prompt in prompts:
                for arena, samples in zip((with_kv, without_kv), times, strict=True):
                    answer = await arena.ask(
                        replace(question, prompt=prompt), LEADERLESS.settings()
                    )
                    samples.append(1000 * answer.first_s)
    return Series(tuple(times[0])), Series(tuple(times[1]))
