"""The bundled models load, and the sample documents hold what the sample questions ask for."""

import json
from pathlib import Path

import pytest
from transformers import AutoConfig

from dragonrt.bundled import (
    BundledError,
    SampleQuestion,
    documents,
    model_path,
    models,
    questions,
    verifier_path,
    verifiers,
)
from dragonrt.side import Side
from retrieval.documents import load

WORDS_OF_A_CHUNK = 64
SIDES: tuple[Side, ...] = ("device", "cloud")


def files(side: Side) -> list[Path]:
    return sorted(documents(side).iterdir())


@pytest.mark.parametrize(("side", "least"), [("device", 45), ("cloud", 90)])
def test_there_are_enough_documents_and_each_is_one_chunk(side: Side, least: int) -> None:
    assert len(files(side)) >= least
    for path in files(side):
        assert 4 <= len(load(path).text.split()) <= WORDS_OF_A_CHUNK, path.name


@pytest.mark.parametrize("side", SIDES)
def test_documents_come_in_several_formats(side: Side) -> None:
    formats = {path.suffix for path in files(side)}
    assert formats == ({".md", ".txt"} if side == "device" else {".md", ".html"})


def test_no_document_is_there_twice() -> None:
    texts = [load(path).text for side in SIDES for path in files(side)]
    assert len(set(texts)) == len(texts)


def test_titles_are_not_part_of_the_text() -> None:
    """The models were trained on documents without headings."""
    for path in files("cloud"):
        document = load(path)
        assert document.title, path.name
        assert not document.text.startswith(("#", "---", document.title + "\n")), path.name


@pytest.mark.parametrize("question", questions(), ids=lambda question: question.text)
def test_expected_answers_are_in_the_evidence(question: SampleQuestion) -> None:
    evidence = [load(documents(side) / name).text for side, name in question.evidence]
    assert question.answered_by("\n".join(evidence))
    sides = {side for side, _ in question.evidence}
    assert (
        sides
        == {"private": {"device"}, "public": {"cloud"}, "both": {"device", "cloud"}}[question.kind]
    )


def test_the_demonstration_asks_two_questions_of_every_kind_first() -> None:
    asked = questions()
    default = [question for question in asked if question.demo]
    assert sorted(question.kind for question in default) == sorted(
        ["private", "public", "both"] * 2
    )
    assert asked[: len(default)] == tuple(default)


def test_an_answer_needs_every_expected_part() -> None:
    question = SampleQuestion("both", "When?", ("Monday", "14:30"), (), demo=False)
    assert question.answered_by("on monday at 14:30")
    assert not question.answered_by("on Monday")


@pytest.mark.parametrize("name", models())
def test_every_model_has_a_loadable_configuration(name: str) -> None:
    config = AutoConfig.from_pretrained(model_path(name))
    assert config.vocab_size == 8192
    assert config.model_type == ("opt" if name == "dragon-opt" else "llama")
    assert (model_path(name) / "model.safetensors").stat().st_size > 1_000_000


def test_the_models_share_one_tokenizer() -> None:
    tokenizers = {(model_path(name) / "tokenizer.json").read_bytes() for name in models()}
    assert len(tokenizers) == 1
    assert len(json.loads(tokenizers.pop())["model"]["vocab"]) == 8192


def test_the_model_card_names_every_model() -> None:
    card = (model_path("dragon-small").parent / "README.md").read_text(encoding="utf-8")
    assert all(name in card for name in models())


def test_the_verifiers_card_has_every_name_and_its_scores() -> None:
    names = verifiers()
    card = (verifier_path(names[0]).parent / "README.md").read_text(encoding="utf-8")
    for name in names:
        record = json.loads(Path(f"{verifier_path(name)}.json").read_text())
        test = record["trained_on"]["test"]
        scores = f"{test['auc']:.3f} | {test['eta_tp']:.3f}, {test['eta_fp']:.3f} |"
        assert any(f"| {name} |" in line and scores in line for line in card.splitlines())


def test_an_unknown_model_is_refused_with_the_names_there_are() -> None:
    with pytest.raises(BundledError, match="dragon-small, dragon-draft, dragon-opt"):
        model_path("dragon-large")
