"""Texts of figures: the long ones hold the evidence, within their room; ROUGE by hand."""

import json
from pathlib import Path

import pytest

from dragonrt.backends.model import LanguageModel
from dragonrt.errors import DragonError
from scripts.papers.texts import (
    answerable,
    prompts,
    rouge_l,
    rouge_n,
    with_evidence,
    within_long_text,
)

ROOM = 120
OTHERS = [each.text.strip() for each in answerable()]


def test_a_long_text_has_the_document_somewhere_among_articles(model: LanguageModel) -> None:
    places = set()
    for question in answerable():
        long = within_long_text(model, question, OTHERS, ROOM)
        assert long == within_long_text(model, question, OTHERS, ROOM)
        evidence = question.text.strip()
        told, asked = model.decode(long.tokens).split("\n\n")
        assert evidence in told
        places.add(told.index(evidence) > len("Document: "))
        assert asked == f"Question: {question.question}\nAnswer:"
        assert ROOM - 60 < len(model.encode(told)) < ROOM + 5
        assert long.stops == with_evidence(model, question).stops
    assert places == {True, False}


def test_without_room_it_is_the_document_alone(model: LanguageModel) -> None:
    question = answerable()[0]
    short = model.decode(with_evidence(model, question).tokens)
    long = model.decode(within_long_text(model, question, OTHERS, 1).tokens)
    assert long.split() == short.split()


def test_questions_of_articles_stand_behind_their_paragraph(
    model: LanguageModel, tmp_path: Path
) -> None:
    parts = [
        {"text": f"Level {n} is dry.", "questions": [{"question": f"Is {n} dry?", "answers": [""]}]}
        for n in range(4)
    ]
    file = tmp_path / "set.json"
    file.write_text(json.dumps([{"title": "Levels", "paragraphs": parts}]), encoding="utf-8")
    texts = [model.decode(each.tokens) for each in prompts(model, 2, [file])]
    for number, text in zip((0, 2), texts, strict=True):
        assert text.endswith(f"Level {number} is dry.\n\nQuestion: Is {number} dry?\nAnswer:")
    file.write_text("{}", encoding="utf-8")
    with pytest.raises(DragonError):
        prompts(model, 2, [file])


def test_first_turns_of_conversations_have_no_document(
    model: LanguageModel, tmp_path: Path
) -> None:
    file = tmp_path / "set.jsonl"
    turns = [{"turns": [f"Count to {number}.", "Again."]} for number in range(4)]
    file.write_text("\n".join(map(json.dumps, turns)), encoding="utf-8")
    questions = tmp_path / "set.json"
    paragraph = {"text": "Dry.", "questions": [{"question": "Dry?", "answers": ["yes"]}]}
    questions.write_text(json.dumps([{"title": "", "paragraphs": [paragraph] * 2}]), "utf-8")
    found = prompts(model, 2, [file, questions])
    assert [(each.kind, each.adapted) for each in found] == [("chat", False), ("answers", True)] * 2
    first, second = (model.decode(each.tokens) for each in found[::2])
    assert "Again." not in first
    assert ("Count to 0." in first, "Count to 2." in second) == (True, True)
    file.write_text('{"turns": []}', encoding="utf-8")
    with pytest.raises(DragonError):
        prompts(model, 1, [file])


def test_common_bigrams_count_as_often_as_both_texts_have_them() -> None:
    # ours: a-b b-a a-b; theirs: a-b b-c: one in common.
    assert rouge_n("a b a b", "a b c", 2) == pytest.approx(2 * 1 / (3 + 2))


def test_the_longest_common_subsequence_may_have_gaps() -> None:
    # b and d are in both, in this order: of 4 and of 3 words.
    assert rouge_l("a b c d", "b x d") == pytest.approx(2 * 2 / (4 + 3))
    assert rouge_l("d b", "b x d") == pytest.approx(2 * 1 / (2 + 3))
    assert rouge_l("a a b", "a b b") == pytest.approx(2 * 2 / (3 + 3))
    assert rouge_l("Press green", "press GREEN!") == 1.0
    assert rouge_l("", "") == 0.0
