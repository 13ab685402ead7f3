"""An adapter's samples, its training and a draft's: losses, resuming, files."""

import json
import re
from pathlib import Path
from random import Random

import numpy as np
import pytest
import torch
from gguf import GGUFReader, dequantize
from safetensors.torch import load_file
from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerBase

# The recipe is a package beside the distributed ones and is not installed.
from scripts.bench.reference import transformers_model
from scripts.lab.passages import read_corpus
from scripts.train.loop import rate_at
from scripts.train.models.adapter import adapter, mixture_losses, statistics, with_adapter
from scripts.train.models.adapter_articles import Pieces, articles
from scripts.train.models.adapter_notes import note, table, yes_or_no
from scripts.train.models.adapter_samples import bridge, link, named, samples
from scripts.train.models.draft import draft
from scripts.train.models.files import adapter_file, layers_file
from scripts.train.models.sample import UNKNOWN, Branch, Reading, batches, encoded, load, states
from tests import tiny_models

PEFT = pytest.mark.filterwarnings("ignore:`is_gradient_checkpointing`:FutureWarning")
READING = Reading(
    ["The ferry leaves at 7:40.", "Emil takes the ferry."],
    [
        Branch([("When?", "at 7:40"), ("And who?", "Emil")], [0.3, 0.6]),
        Branch([("What?", "the ferry")], [0.5, 0.5]),
    ],
)


@pytest.fixture(scope="module")
def tokenizer() -> PreTrainedTokenizerBase:
    return tiny_models.tokenizer()


@pytest.fixture(scope="module")
def base(tmp_path_factory: pytest.TempPathFactory, tokenizer: PreTrainedTokenizerBase) -> Path:
    path = tmp_path_factory.mktemp("base")
    torch.manual_seed(0)
    config = LlamaConfig(
        vocab_size=len(tokenizer),
        hidden_size=64,
        intermediate_size=96,
        num_hidden_layers=2,
        num_attention_heads=4,
        num_key_value_heads=2,
        tie_word_embeddings=True,
    )
    LlamaForCausalLM(config).bfloat16().save_pretrained(path)
    tokenizer.save_pretrained(path)
    return path


def re_spaced(text: str) -> str:
    return "".join(text.lower().replace("-\n", "").split())


def test_notes_hold_nearly_all_answers_and_no_slot_is_left() -> None:
    r, held = Random(1), list[bool]()
    for _ in range(100):
        told = note(r)
        held += [re_spaced(a) in re_spaced(told.text) for _, a in told.known]
        assert not set("{}|") & set("".join([told.text, *told.missing, *sum(told.known, ())]))
        assert not {q for q, _ in told.known} & set(told.missing)
    assert sum(held) > 0.7 * len(held)


def test_a_bridge_has_one_sides_key_and_the_others_value() -> None:
    r = Random(2)
    for _ in range(100):
        documents, asked = bridge(r)
        for ((_, answer),), needed in asked:
            if len(needed) == 2:
                key, value = re.split(r"(?:: | at | from | in |, )", answer, maxsplit=1)
                first, second = (re_spaced(each.text) for each in documents)
                assert re_spaced(key.removeprefix("at ")) in first
                assert re_spaced(value) in second


def test_a_later_turn_is_answered_by_the_other_document() -> None:
    r, held = Random(3), list[bool]()
    for _ in range(100):
        documents, asked = link(r)
        for turns, needed in asked:
            if turns[-1][1] != UNKNOWN:
                held.append(re_spaced(turns[-1][1]) in re_spaced(documents[needed[0]].text))
    assert sum(held) > 0.8 * len(held)


def test_texts_of_one_name_answer_what_the_other_does_not() -> None:
    r, article = Random(3), ("Lund", [("Lund is old.", [("How is Lund?", "old")])])
    for _ in range(100):
        texts, _ = named(r, Pieces([article], r, 64))
        for told, other in (texts, texts[::-1]):
            assert told.known
            assert not {question for question, _ in other.known} & {q for q, _ in told.known}


def test_a_cell_is_asked_of_the_chunk_with_its_row() -> None:
    r = Random(6)
    for told in (told for _ in range(30) for told in table(r)):
        cells = [re.sub("^(Yes|No), ", "", answer) for _, answer in told.known]
        assert all(cell in told.text for cell in cells)
        assert not {question for question, _ in told.known} & set(told.missing)


def test_half_of_the_answers_to_yes_or_no_are_no() -> None:
    told = [yes_or_no(Random(seed)).known[0][1].partition(",")[0] for seed in range(200)]
    assert 60 < told.count("No") < 140
    assert set(told) == {"Yes", "No"}


def test_evaluated_articles_are_left_out(tmp_path: Path) -> None:
    paragraph = {"context": "one two three four five six seven eight nine", "qas": []}
    for name, title in (("kept", "A"), ("evaluated", "B")):
        found = {"data": [{"title": title, "paragraphs": [paragraph]}]}
        (tmp_path / name).write_text(json.dumps(found))
    files = [tmp_path / "kept"]
    assert [title for title, _ in articles(files, None)] == ["A"]
    assert articles(files, tmp_path / "evaluated") == []


def test_one_chunk_answers_a_question_and_others_refuse() -> None:
    texts = [f"The {thing} of Lund was built in {year}." for thing, year in
             (("harbor", 1901), ("tower", 1822), ("bridge", 1755))]  # fmt: skip
    article = (
        "Lund",
        [
            (text, [(f"When was the {text.split()[1]} of Lund built?", text[-5:-1])])
            for text in texts
        ],
    )
    r = Random(0)
    pieces = Pieces([article], r, 64)
    for _ in range(20):
        documents, asked = pieces.several(r, 2)
        for ((question, answer),), needed in asked:
            having = [i for i, text in enumerate(documents) if question.split()[3] in text]
            assert having == list(needed)
            assert answer == (documents[having[0]][-5:-1] if having else UNKNOWN)


def test_losses_are_those_of_the_mixture(tokenizer: PreTrainedTokenizerBase) -> None:
    made, refusal = encoded(tokenizer, READING), 5
    assert made is not None
    count = len(made.rows[0].targets)
    logits = torch.randn(2, count, len(tokenizer), generator=torch.manual_seed(0))
    losses = mixture_losses(made, logits, 0.1, refusal)
    p = logits.softmax(-1).double()
    at = 0
    for branch in READING.branches:
        tokens = tokenizer(f"{branch.turns[-1][1]}<|im_end|>", add_special_tokens=False).input_ids
        weights = (torch.tensor(branch.scores) / 0.1).exp() * (1 - p[:, at, refusal])
        weights /= weights.sum()
        start = at
        for token in tokens:
            expected = -(weights * p[:, at, token]).sum().log()
            if at != start:  # of another token that a row is sure of
                others = p[:, at].clone()
                others[:, token] = 0.0
                expected += 0.1 * -(1 - others.max(1).values).log().mean()
            assert float(losses[at]) == pytest.approx(float(expected), rel=1e-4)
            at += 1
    assert at == len(losses)


def test_a_question_sees_its_document_alone(base: Path, tokenizer: PreTrainedTokenizerBase) -> None:
    llama, _ = load(base)
    llama.float()
    both, second = (
        encoded(tokenizer, Reading(READING.documents, branches))
        for branches in (READING.branches, READING.branches[1:])
    )
    assert both is not None
    assert second is not None
    row, alone = both.rows[0], second.rows[0]
    at = [i for i, branch in enumerate(row.branches) if branch != 1]
    torch.testing.assert_close(states(llama, [row])[0, at], states(llama, [alone])[0])


@pytest.fixture
def written(tmp_path: Path) -> Path:
    path = tmp_path / "samples.jsonl"
    apart = [reading.line() for reading in READING.apart()]
    path.write_text("\n".join([READING.line(), *apart] * 3))
    return path


def test_a_gguf_files_model_can_be_trained() -> None:
    model = transformers_model("dragon-draft")
    assert model.float().dtype == torch.float32
    assert "quantization_config" not in model.config.to_dict()


def test_batches_hold_every_reading_once_a_round(tokenizer: PreTrainedTokenizerBase) -> None:
    made = [rows for each in READING.apart() if (rows := encoded(tokenizer, each))]
    found = batches(made, seed=3, budget=1)
    again = batches(made, seed=3, budget=1)
    firsts = [next(found) for _ in range(2)]
    assert firsts == [next(again) for _ in range(2)]
    assert sorted(each.length for (each,) in firsts) == sorted(each.length for each in made)


@PEFT
def test_a_resumed_run_is_the_uninterrupted_one(
    base: Path, written: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def train(out: Path, steps: int) -> dict[str, torch.Tensor]:
        adapter(written, out, base=base, fresh=True, steps=steps, rate=1e-2, positions=400)
        return load_file(out / "adapter" / "adapter_model.safetensors")

    whole = train(tmp_path / "whole", 8)
    monkeypatch.setattr("scripts.train.loop.rate_at", lambda step, steps: rate_at(step, 8))
    train(tmp_path / "parts", 3)
    parts = train(tmp_path / "parts", 8)
    assert whole.keys() == parts.keys()
    assert all(torch.equal(whole[name], parts[name]) for name in whole)
    logs = [(tmp_path / run / "adapter.log.jsonl").read_text() for run in ("whole", "parts")]
    assert logs[0] == logs[1]
    first, *_, last = (json.loads(line)["loss"] for line in logs[0].splitlines())
    assert last < first


@PEFT
def test_an_adapters_file_is_what_another_run_begins_with(
    base: Path, written: Path, tmp_path: Path
) -> None:
    adapter(written, tmp_path, base=base, fresh=True, steps=4, rate=1e-2)
    trained, means, file = (tmp_path / name for name in ("adapter", "means.npz", "adapter.gguf"))
    statistics(written, means, base=base, adapter=trained)
    adapter_file(trained, means, file)
    before, after = (with_adapter(load(base)[0].float(), each) for each in (trained, file))
    names = dict(after.named_parameters())
    for name, weight in before.named_parameters():
        near = torch.cosine_similarity(weight.flatten().float(), names[name].flatten().float(), 0)
        assert near > 0.98, name
    stored = np.load(means)
    assert len(stored.files) == 2 * 7
    assert all((stored[name] > 0).all() for name in stored.files)


def test_a_draft_comes_closer_and_its_file_has_its_layers(
    base: Path, written: Path, tmp_path: Path
) -> None:
    draft(written, tmp_path, base=base, layers=(1,), steps=6, rate=1e-2)
    lines = (tmp_path / "draft.log.jsonl").read_text().splitlines()
    losses = [json.loads(line)["loss"] for line in lines]
    assert losses[-1] < losses[0]
    statistics(written, tmp_path / "means.npz", base=tmp_path / "draft")
    layers_file(tmp_path / "draft", tmp_path / "means.npz", tmp_path / "layers.gguf")
    tensors = {each.name: each for each in GGUFReader(tmp_path / "layers.gguf").tensors}
    assert len(tensors) == 7 + 3
    stored = tensors["blk.0.ffn_up.weight"]
    rows = torch.from_numpy(dequantize(stored.data, stored.tensor_type).copy())
    trained = load_file(tmp_path / "draft" / "model.safetensors")[
        "model.layers.0.mlp.up_proj.weight"
    ]
    assert torch.cosine_similarity(rows.flatten(), trained.float().flatten(), 0) > 0.98


def test_samples_are_questions_about_the_nearest_document(tmp_path: Path) -> None:
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
