"""LoRA adapters, merged into the weights of a transformers model, and what is refused."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file

from dragonrt.backends.transformers_.checkpoint import load_model, merge
from dragonrt.errors import ModelError
from tests.tiny_models import CONV1D, tiny, written_adapter


@pytest.fixture
def model() -> Any:
    return tiny("llama")


@pytest.mark.parametrize(
    ("family", "options"),
    [
        ("llama", {}),
        ("llama", {"use_rslora": True}),
        ("llama", {"rank_pattern": {"v_proj": 2}, "alpha_pattern": {"o_proj": 3}}),
        ("llama", {"target_modules": "all-linear"}),
        ("gpt2", {}),
    ],
)
def test_a_merged_adapter_adds_its_product_to_each_layer(
    family: str, options: dict[str, Any], tmp_path: Path
) -> None:
    model, before = tiny(family), dict(tiny(family).named_parameters())
    changes = written_adapter(model, tmp_path, **options)
    merge(model, tmp_path)
    for name, weight in model.named_parameters():
        change = changes.get(name.removesuffix(".weight"), torch.zeros(()))
        change = change.T if name.removesuffix(".weight").endswith(CONV1D) else change
        torch.testing.assert_close(weight, before[name] + change, atol=1e-6, rtol=0)


def test_it_is_part_of_the_fingerprint(
    model: Any, directory: Callable[[str], Path], tmp_path: Path
) -> None:
    for number, name in enumerate(("one", "two")):
        written_adapter(model, tmp_path / name, lora_alpha=8 + number)
    plain, one, two, again = (
        load_model(str(directory("llama")), "cpu", adapter=adapter).info
        for adapter in (None, tmp_path / "one", tmp_path / "two", tmp_path / "one")
    )
    assert one.fingerprint == again.fingerprint
    assert len({each.fingerprint for each in (plain, one, two)}) == 3
    assert one.tokenizer_fingerprint == plain.tokenizer_fingerprint


def test_what_cannot_be_applied_is_refused_in_one_line(model: Any, tmp_path: Path) -> None:
    def refused() -> None:
        with pytest.raises(ModelError) as caught:
            merge(model, tmp_path)
        assert "\n" not in str(caught.value)

    refused()
    config, file = tmp_path / "adapter_config.json", tmp_path / "adapter_model.safetensors"
    written_adapter(model, tmp_path)
    whole, tensors = json.loads(config.read_text()), load_file(file)
    for options in ({"peft_type": "IA3"}, {"bias": "all"}, {"use_dora": True}, {"r": 5}):
        config.write_text(json.dumps(whole | options))
        refused()
    config.write_text(json.dumps(whole))
    first = next(iter(tensors))
    others = {
        first.replace("layers.", "layers.9"): tensors[first].clone(),
        "base_model.model.lm_head.weight": torch.zeros(261, 48),
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
