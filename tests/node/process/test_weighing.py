"""The weights of one side's documents, by their scores and by the names of the question."""

from dataclasses import replace

import pytest

from dragonrt.backends.model import LanguageModel
from dragonrt.modes.question import Question
from dragonrt.node.process.local_side import LACKING, OWN, weighing
from dragonrt.side import SIDES, Side
from retrieval import Chunk, Hit

ASKED = Question(prompt="What was my time at Arden?", relevance_temperature=0.25)
TEXTS = [("Arden: 51:09", "Runs", "runs"), ("51:09", "Arden", "runs"), ("51:09", "", "arden_runs")]
HITS = [Hit(Chunk("", *each, 0, 9), 0.5) for each in (*TEXTS, ("Lund: 51:09", "Runs", "runs"))]


@pytest.mark.parametrize("side", SIDES)
@pytest.mark.parametrize("own", [True, False])
def test_a_note_about_another_place_loses_weight_of_my_question(
    side: Side, own: bool, draft_model: LanguageModel
) -> None:
    asked = ASKED if own else replace(ASKED, prompt=ASKED.prompt.replace("my", "the"))
    added = [OWN, OWN, OWN, OWN - LACKING] if own and side == "device" else [0, 0, 0, 0]
    found = weighing(draft_model, asked, HITS, None, side).initial
    assert found.tolist() == [2 + each for each in added]
    assert weighing(draft_model, asked, [], None, side).initial.tolist() == [0]
