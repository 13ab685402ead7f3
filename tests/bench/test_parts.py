"""The questions of two parts: one part stands on each side, and both are asked."""

from typing import Any

import pytest

from dragonrt.modes.question import Question
from dragonrt.node.process.side_settings import SideSettings
from dragonrt.service.prompts import parts_of
from scripts.bench.parts import asked, cases
from scripts.bench.split_qa.score import contains
from tests.retrieval.conftest import WordHashes


@pytest.mark.parametrize("case", cases(), ids=lambda case: case["question"])
def test_each_part_stands_on_its_side(case: dict[str, Any]) -> None:
    sides = [case["first"], "cloud" if case["first"] == "device" else "device"]
    assert len(parts_of(case["question"])) == 2
    for side, answers in zip(sides, case["answers"], strict=True):
        assert contains(case[side], answers)
    assert not contains(case[sides[0]], case["answers"][1]), "only the other side has the second"


@pytest.mark.slow
def test_a_question_is_asked_in_parts_and_whole(monkeypatch: pytest.MonkeyPatch) -> None:
    embedder = WordHashes().embedder()
    for module in ("parts", "isolation"):
        monkeypatch.setattr(f"scripts.bench.{module}.load_embedder", lambda *_, **__: embedder)
    side, question = SideSettings("device", model="dragon-small"), Question(seed=3, max_tokens=24)
    cut, whole = asked(side, question, cases()[:1])
    assert (len(cut["texts"]), len(whole["texts"])) == (2, 1)
    assert {cut["way"], whole["way"]} == {"in parts", "whole"}
