"""Adapters: merged into floats, beside rounded weights, and what is refused."""

import copy
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import load_file, save_file
from torch import Tensor
from transformers import LlamaConfig, LlamaForCausalLM

from dragonrt import bundled
from dragonrt.backends.model import LanguageModel
from dragonrt.backends.row_set import RowSet
from dragonrt.backends.torch_.adapter import Adapter
from dragonrt.backends.torch_.checkpoint import Checkpoint, backend_of, load_checkpoint
from dragonrt.backends.torch_.int4 import Groups, can_multiply_int4
from dragonrt.backends.torch_.weights import Format, floats, int4
from dragonrt.errors import ModelError

LINE = [5, 60, 70, 80, 90, 17, 33, 44, 61, 12]
TARGETS = ("q_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj")
needs_int4 = pytest.mark.skipif(
    not can_multiply_int4(), reason="torch has no products of 4 bits here"
)


@pytest.fixture
def model() -> Any:
    torch.manual_seed(0)
    config = LlamaConfig(
        vocab_size=97,
        hidden_size=64,
        intermediate_size=160,
        num_hidden_layers=2,
        num_attention_heads=4,
        num_key_value_heads=2,
        max_position_embeddings=160,
        tie_word_embeddings=True,
    )
    made: Any = LlamaForCausalLM(config)
    return made.eval()


def written(model: Any, directory: Path, **options: Any) -> dict[str, Tensor]:
    """Write a random adapter; returns W's change by layer, computed here."""
    settings: dict[str, Any] = {
        "peft_type": "LORA",
        "r": 4,
        "lora_alpha": 8,
        "bias": "none",
        "target_modules": list(TARGETS),
    } | options
    generator = torch.Generator().manual_seed(1)
    tensors, changes = {}, {}
    for name, module in model.named_modules():
        if not name.endswith(TARGETS):
            continue
        rank, alpha = settings["r"], settings["lora_alpha"]
        for key, number in settings.get("rank_pattern", {}).items():
            rank = number if name.endswith(key) else rank
        for key, number in settings.get("alpha_pattern", {}).items():
            alpha = number if name.endswith(key) else alpha
        outputs, inputs = module.weight.shape
        down = torch.randn(rank, inputs, generator=generator) / inputs**0.5
        up = 0.2 * torch.randn(outputs, rank, generator=generator)
        tensors[f"base_model.model.{name}.lora_A.weight"] = down
        tensors[f"base_model.model.{name}.lora_B.weight"] = up
        scale = alpha / (rank**0.5 if settings.get("use_rslora") else rank)
        changes[name] = scale * up @ down
    directory.mkdir(exist_ok=True)
    save_file(tensors, directory / "adapter_model.safetensors")
    (directory / "adapter_config.json").write_text(json.dumps(settings))
    return changes


def changed(model: Any, changes: dict[str, Tensor], weight: Callable[[Tensor], Tensor]) -> Any:
    other = copy.deepcopy(model)
    for name, module in other.named_modules():
        if name.endswith("_proj"):
            module.weight.data = weight(module.weight.data) + changes.get(name, 0)
    return other


def expected(model: Any) -> Tensor:
    with torch.inference_mode():
        logits: Tensor = model(input_ids=torch.tensor([LINE])).logits[0]
    return logits.log_softmax(-1)


def decoded(
    model: Any, form: Format, adapter: Adapter | None = None, size: int = len(LINE)
) -> Tensor:
    tokenizer = load_checkpoint("dragon-draft", "cpu", "float32").tokenizer
    backend = backend_of(Checkpoint(model, tokenizer, "", form=form, adapter=adapter))
    rows = RowSet(backend, [backend.empty()], 16)
    blocks = (LINE[at : at + size] for at in range(0, len(LINE), size))
    found = [each.at(np.arange(97)) for block in blocks for each in rows.extend_all(block)]
    return torch.from_numpy(np.concatenate(found))


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"use_rslora": True},
        {"rank_pattern": {"v_proj": 2}, "alpha_pattern": {"o_proj": 3}},
        {"target_modules": "all-linear"},
        {"target_modules": ".*_proj"},
    ],
)
def test_a_merged_adapter_is_that_of_w_plus_ba(
    model: Any, options: dict[str, Any], tmp_path: Path
) -> None:
    changes = written(model, tmp_path, **options)
    adapter = Adapter.read(tmp_path)
    adapter.fit(model)
    wanted = expected(changed(model, changes, lambda weight: weight))
    torch.testing.assert_close(
        decoded(model, floats(torch.float32), adapter), wanted, atol=1e-4, rtol=0
    )
    adapter.merge(model)
    torch.testing.assert_close(expected(model), wanted, atol=1e-5, rtol=0)


@needs_int4
def test_beside_4_bits_the_weights_keep_their_codes_and_every_block_its_bits(
    model: Any, tmp_path: Path
) -> None:
    changes = written(model, tmp_path)
    form, adapter = int4(), Adapter.read(tmp_path)
    rounded = copy.deepcopy(model).to(form.dtype)
    wanted = expected(
        changed(model, changes, lambda weight: Groups.rounded(weight.to(form.dtype)).dense())
    )
    said = decoded(rounded, form, adapter)
    assert float((wanted.exp() * (wanted - said)).sum(dim=1).mean()) < 2e-3
    without = decoded(rounded, form)
    assert float((wanted.exp() * (wanted - without)).sum(dim=1).mean()) > 2e-2
    for size in (1, 2, 3, 4, 5):
        assert torch.equal(decoded(rounded, form, adapter, size), said)


def test_it_is_part_of_the_fingerprint(tmp_path: Path) -> None:
    def load(adapter: Path | None) -> LanguageModel:
        return LanguageModel.load("dragon-draft", "cpu", adapter=adapter)

    plain = load(None)
    reference: Any = LlamaForCausalLM.from_pretrained(bundled.model_path("dragon-draft"))
    for number, name in enumerate(("one", "two")):
        written(reference, tmp_path / name, lora_alpha=8 + number)
    found = [plain, load(tmp_path / "one"), load(tmp_path / "two"), load(tmp_path / "one")]
    assert found[1].fingerprint == found[3].fingerprint
    assert len({each.fingerprint for each in found}) == 3
    assert {each.tokenizer_fingerprint for each in found} == {plain.tokenizer_fingerprint}


def test_what_cannot_be_applied_is_refused_in_one_line(model: Any, tmp_path: Path) -> None:
    def refused() -> None:
        with pytest.raises(ModelError) as caught:
            Adapter.read(tmp_path).fit(model)
        assert "\n" not in str(caught.value)

    refused()
    config, file = tmp_path / "adapter_config.json", tmp_path / "adapter_model.safetensors"
    written(model, tmp_path)
    whole, tensors = json.loads(config.read_text()), load_file(file)
    for options in ({"peft_type": "IA3"}, {"bias": "all"}, {"use_dora": True}, {"r": 5}):
        config.write_text(json.dumps(whole | options))
        refused()
    config.write_text(json.dumps(whole))
    first = next(iter(tensors))
    others = {
        first.replace("layers.", "layers.9"): tensors[first].clone(),
        "base_model.model.lm_head.weight": torch.zeros(97, 64),
        first.replace("lora_A", "lora_magnitude_vector"): torch.zeros(3),
    }
    shorter = {key: tensor[:, :-1].contiguous() for key, tensor in tensors.items()}
    for found in ({}, shorter, *(tensors | {name: other} for name, other in others.items())):
        save_file(found, file)
        refused()
    file.write_bytes(file.read_bytes()[:100])
    refused()
    config.write_text("[]")
    refused()
