"""The scripts of docs/examples, run."""

import importlib.util
import json
from pathlib import Path
from typing import Any

import pytest

import dragonrt
from dragonrt import bundled

DOCS = Path(__file__).parents[2] / "docs"
NOTES = str(bundled.documents("device"))
QUESTIONS = [each.text for each in bundled.questions()[:2]]

pytestmark = pytest.mark.slow


def script(name: str) -> Any:
    spec = importlib.util.spec_from_file_location(f"example_{name}", DOCS / f"examples/{name}.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


async def test_a_chat_prints_answers_and_files(capsys: pytest.CaptureFixture[str]) -> None:
    async with dragonrt.serve_cloud(documents=bundled.documents("cloud"), port=0) as port:
        await script("chat").chat(f"127.0.0.1:{port}", None, NOTES, QUESTIONS)
    assert ".md" in capsys.readouterr().out


async def test_a_batch_keeps_the_order_of_its_questions() -> None:
    async with dragonrt.serve_cloud(documents=bundled.documents("cloud"), port=0) as port:
        lines = await script("batch").batch(f"127.0.0.1:{port}", None, NOTES, QUESTIONS)
    answers = [json.loads(line) for line in lines]
    assert [each["question"] for each in answers] == QUESTIONS
    assert all(each["answer"] for each in answers)


async def test_the_text_is_the_same_over_a_round_trip() -> None:
    found = await script("latency").measure((0, 40), tokens=8)
    assert found[0][1] == found[40][1] != ""
