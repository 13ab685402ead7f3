"""The files of a corpus from git clones, and samples as controllers and verifiers read them."""

import json
import subprocess
from pathlib import Path

import pytest

from dragonrt.errors import TrainingError
from scripts.lab.passages import read_corpus
from scripts.train.models.adapter_samples import samples
from scripts.train.models.corpus import Corpus, corpus
from scripts.train.models.sample import Branch, Reading

SQUAD = {
    "data": [
        {"title": title, "paragraphs": [{"context": "A “crane” stands\nin Lund.", "qas": asked}]}
        for title in [*map(str, range(9)), "Kept_away"]
        for asked in [
            [
                {"question": "Where is it?", "answers": [{"text": "Lund"}]},
                {"question": "Who built it?", "is_impossible": True},
            ]
        ]
    ]
}
QUESTIONS = '{"question": "who painted the crane"}\n'
CLONES = {
    "deepmind+xquad": {"xquad.en.json": json.dumps({"data": []})},
    "chrischute+squad": {"data/dev-v2.0.json": json.dumps(SQUAD)},
    "pytorch+examples": {"word_language_model/data/wikitext-2/test.txt": " = Kept away = \n"},
    "google-research-datasets+natural-questions": {"nq_open/NQ-open.dev.jsonl": QUESTIONS},
}


def clone(repository: Path, files: dict[str, str]) -> None:
    """Make a git repository as a user would have cloned it."""
    for path, text in files.items():
        (repository / path).parent.mkdir(parents=True, exist_ok=True)
        (repository / path).write_text(text)
    identity = ["-c", "user.name=A", "-c", "user.email=a@b.c", "-c", "commit.gpgsign=false"]
    for command in (["init", "-q"], ["add", "."], [*identity, "commit", "-qm", "All"]):
        subprocess.run(["git", "-C", str(repository), *command], check=True)


def test_a_corpus_is_built_from_clones_but_for_what_is_evaluated_on(tmp_path: Path) -> None:
    for name, files in CLONES.items():
        clone(tmp_path / "clones" / name, files)
    corpus(tmp_path / "clones", tmp_path / "corpus")
    read = Corpus.read(tmp_path / "corpus")
    text = 'A "crane" stands in Lund.'
    assert read.texts == ([[text]],)
    ((passage,),) = read.readings
    assert passage.paragraph == text
    assert passage.questions == (("Where is it?", "Lund"), ("Who built it?", ""))
    assert read.stray_questions == ("Who painted the crane?",)


def test_a_missing_clone_is_named(tmp_path: Path) -> None:
    clone(tmp_path / "deepmind+xquad", CLONES["deepmind+xquad"])
    with pytest.raises(TrainingError, match="chrischute/squad"):
        corpus(tmp_path, tmp_path / "corpus")


def test_samples_are_written_as_questions_about_the_nearest_document(tmp_path: Path) -> None:
    reading = Reading(
        ["The ferry leaves at 7:40.", "Emil takes it."],
        [
            Branch([("When?", "at 7:40")], [0.6, 0.3]),
            Branch([("Who?", "Emil")], [0.2, 0.5]),
            Branch([("When?", "at 7:40"), ("And who?", "Emil")], [0.1, 0.5]),
        ],
    )
    (tmp_path / "samples.jsonl").write_text(reading.line() + "\n")
    samples(tmp_path / "samples.jsonl", tmp_path / "texts")
    assert read_corpus(tmp_path / "texts") == [
        "Document: The ferry leaves at 7:40.\n\nQuestion: When?\nAnswer: at 7:40",
        "Document: Emil takes it.\n\nQuestion: Who?\nAnswer: Emil",
    ]
