"""An adapter's samples and its training: branches apart from each other, pieces that resume."""

import json
from pathlib import Path
from random import Random

import pytest
import torch
from safetensors.torch import load_file
from transformers import (
    AutoModelForCausalLM,
    AutoTokenizer,
    LlamaConfig,
    LlamaForCausalLM,
    PreTrainedTokenizerBase,
)

# The recipe is a package beside the distributed ones and is not installed.
from dragonrt import bundled
from scripts.train.models.adapter import Settings, adapter, batch_of, encoded
from scripts.train.models.adapter_articles import readings
from scripts.train.models.adapter_model import Adapter, Llama
from scripts.train.models.adapter_notes import noted
from scripts.train.models.checkpoints import average
from scripts.train.models.sample import UNKNOWN, Reading

READING = Reading(
    "The ferry leaves at 7:40.", [[("When?", "at 7:40"), ("And who?", UNKNOWN)], [("What?", "x")]]
)


@pytest.fixture(scope="module")
def tokenizer() -> PreTrainedTokenizerBase:
    return AutoTokenizer.from_pretrained(bundled.model_path("dragon-small"))


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


def test_the_frozen_model_gives_the_logits_of_transformers(
    base: Path, tokenizer: PreTrainedTokenizerBase
) -> None:
    row = encoded(tokenizer, Reading("A crane.", [[("What?", "a crane")]]))
    assert row is not None
    ours = Adapter(Llama.read(base)).logits(batch_of([row]))
    reference = AutoModelForCausalLM.from_pretrained(base, dtype=torch.float32)
    with torch.no_grad():
        theirs = reference(torch.tensor([row.tokens])).logits[0]
    expected = theirs[[at for at, _, _ in row.targets]]
    torch.testing.assert_close(ours, expected, atol=0.05, rtol=0.05)


def test_notes_hold_nearly_all_answers() -> None:
    r = Random(1)
    held = []
    for _ in range(60):
        made = noted(r)
        answers = {a for branch in made.branches for _, a in branch} - {UNKNOWN}
        held += [re_spaced(a) in re_spaced(made.document) for a in answers]
    assert sum(held) > 0.8 * len(held)


def re_spaced(text: str) -> str:
    return "".join(text.lower().replace("-\n", "").split())


def test_a_question_is_answered_by_one_chunk_and_refused_by_others() -> None:
    texts = [f"The {thing} of Lund was built in {year}." for thing, year in
             (("harbor", 1901), ("tower", 1822), ("bridge", 1755))]  # fmt: skip
    article = (
        "Lund",
        [
            (text, [(f"When was the {text.split()[1]} of Lund built?", text[-5:-1])])
            for text in texts
        ],
    )
    for reading in readings([article], Random(0), 64):
        for ((question, answer),) in reading.branches:
            here = question.split()[3] in reading.document
            assert answer == (reading.document[-5:-1] if here else UNKNOWN)


def test_a_run_in_two_pieces_learns_and_exports(base: Path, tmp_path: Path) -> None:
    samples = tmp_path / "samples.jsonl"
    samples.write_text("\n".join([json.dumps([READING.document, READING.branches])] * 8))
    out = tmp_path / "out"
    for steps in (8, 16):
        adapter(Settings(base=base, samples=samples, out=out, steps=steps, rate=1e-2))
    lines = [json.loads(line) for line in (out / "adapter.log.jsonl").read_text().splitlines()]
    assert [line["step"] for line in lines] == list(range(1, 17))
    assert lines[-1]["loss"] < lines[0]["loss"]
    tensors = load_file(out / "adapter" / "adapter_model.safetensors")
    assert len(tensors) == 2 * 2 * 7
    assert {t.dtype for t in tensors.values()} == {torch.bfloat16}
    average(out / "adapter", out / "adapter", tmp_path / "mean", share=0.25)
    mean = load_file(tmp_path / "mean" / "adapter_model.safetensors")
    assert all(torch.equal(mean[name], tensor) for name, tensor in tensors.items())
