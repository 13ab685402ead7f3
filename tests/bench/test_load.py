"""Texts under load, and what they hold: the benchmarks of both, small."""

import json
import sys
from io import StringIO
from typing import Any

import pytest
import torch
from rich.console import Console

from dragonrt.backends.model import LanguageModel
from scripts.bench import load as bench_load
from scripts.bench import memory as bench_memory
from scripts.bench.load import Lot, texts_under_load
from scripts.bench.random_models import small_pair


@pytest.mark.slow
@pytest.mark.parametrize(
    ("architecture", "dtype", "documents"),
    [("llama", "float32", 2), ("qwen3", "bfloat16", 1), ("gemma2", "bfloat16", 0)],
)
def test_sixteen_texts_at_once_are_those_of_their_runs_alone(
    architecture: str, dtype: str, documents: int
) -> None:
    models = small_pair(architecture, getattr(torch, dtype), 3)
    if not models[0].exact_blocks:
        pytest.skip(f"this CPU promises nothing of {dtype}")
    equal = texts_under_load(models, documents, Lot(answers=16, tokens=4, lots=1), 5)
    assert equal == [True] * 16


def reported(output: StringIO) -> list[dict[str, Any]]:
    results: list[dict[str, Any]] = json.loads(output.getvalue().splitlines()[-1])["results"]
    return results


@pytest.mark.slow
def test_the_benchmark_counts_texts_that_differ(monkeypatch: pytest.MonkeyPatch) -> None:
    texts = iter(([1, 2], [1, 2, 3, 4], [5, 6, 9, 8], [1, 2, 3, 4], [1, 2, 3, 4], [5, 6, 7, 8]))

    async def text(*_: object) -> list[int]:
        return next(texts)

    monkeypatch.setattr(bench_load, "_text", text)
    models = small_pair("llama", torch.float32, 3)
    assert texts_under_load(models, 0, Lot(answers=3, tokens=4, lots=1), 5) == [True, True, False]


@pytest.mark.slow
@pytest.mark.skipif(sys.platform != "linux", reason="what a process holds is read on Linux")
def test_what_sessions_hold_is_their_kv_and_little_else(monkeypatch: pytest.MonkeyPatch) -> None:
    small = LanguageModel.load("dragon-draft", "cpu", "bfloat16")
    monkeypatch.setattr(bench_memory, "random_model", lambda *_: small)
    output = StringIO()
    bench_memory.bench_memory(
        output=Console(file=output, width=200),
        messages=Console(file=StringIO()),
        answers=(1,),
        prompt_tokens=20,
        tokens=22,
    )
    (result,) = reported(output)
    assert result["sessions"] == 2
    assert result["counted_mb"] >= result["kv_mb"] > 0
    assert result["documents_mb"] > 0
