"""Every architecture keeps the contract of a backend, and says what transformers says."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any, cast

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from safetensors.torch import load_file, save_file
from transformers import AutoModelForCausalLM

from dragonrt.backends.transformers_.checkpoint import load_model, merge
from dragonrt.backends.transformers_.kv_cache import DocumentKV
from dragonrt.errors import ModelError
from dragonrt.side import Precision
from dragonrt.testing.backend_contract import CHECKS, LENGTHS, Subject, numbers
from tests.tiny_models import CONV1D, FAMILIES, tiny, written_adapter

Case = tuple[Path, Subject]


@pytest.fixture(
    scope="module", params=[*((name, "float32") for name in FAMILIES), ("llama", "bfloat16")]
)
def case(request: pytest.FixtureRequest, directory: Callable[[str], Path]) -> Case:
    family, dtype = request.param
    path = directory(family)
    return path, Subject(load_model(str(path), "cpu", cast(Precision, dtype)))


@pytest.mark.parametrize("check", CHECKS)
def test_contract(case: Case, check: Callable[[Subject], None]) -> None:
    check(case[1])


def test_every_row_is_its_text_alone(case: Case) -> None:
    path, on = case
    reference = AutoModelForCausalLM.from_pretrained(path, dtype=torch.float32)
    line, rows = on.text(21, 1), on.opened()
    found = numbers([*rows.extend_all(line[:20]), rows.extend(line[20:])])
    for row, length in enumerate(LENGTHS):
        tokens = torch.tensor([on.text(length, length) + line])
        with torch.inference_mode():
            said = reference(tokens, output_hidden_states=True)
        wanted = torch.cat([said.logits[0].log_softmax(-1), said.hidden_states[-1][0]], 1)[length:]
        error = np.abs(found[:, row] - wanted.numpy())
        assert error.mean() < 0.03
        if on.info.dtype == "float32":
            assert error.max() < 1e-4


# Document KV as arrays: the form in which a store keeps it.


def document(length: int, dtype: torch.dtype = torch.float32) -> DocumentKV:
    generator = torch.Generator().manual_seed(length)

    def layers() -> tuple[torch.Tensor, ...]:
        return tuple(torch.randn(2, length, 4, generator=generator).to(dtype) for _ in range(3))

    return DocumentKV(layers(), layers())


@pytest.mark.parametrize("length", [0, 7])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
def test_arrays_keep_every_bit(length: int, dtype: torch.dtype) -> None:
    original = document(length, dtype)
    arrays = original.dump()
    for array in arrays.values():
        array.setflags(write=False)
    restored = DocumentKV.from_arrays(arrays)
    assert restored.length == length
    pairs = zip(original.keys + original.values, restored.keys + restored.values, strict=True)
    for before, after in pairs:
        assert after.dtype == dtype
        assert torch.equal(before, after)
        after.zero_()  # no alias of the arrays


BROKEN: dict[str, Callable[[dict[str, NDArray[Any]]], object]] = {
    "empty": lambda arrays: arrays.clear(),
    "missing": lambda arrays: arrays.pop("values.1"),
    "renamed": lambda arrays: arrays.update({"keys.9": arrays.pop("keys.2")}),
    "shorter": lambda arrays: arrays.update({"values.2": arrays["values.2"][:, :2]}),
    "dtype": lambda arrays: arrays.update({"keys.0": arrays["keys.0"].astype(np.float16)}),
    "flat": lambda arrays: arrays.update({"keys.0": arrays["keys.0"].ravel()}),
    "double": lambda arrays: arrays.update({"keys.0": arrays["keys.0"].astype(np.float64)}),
}


@pytest.mark.parametrize("kind", BROKEN)
def test_other_arrays_are_refused(kind: str) -> None:
    arrays = document(3).dump()
    BROKEN[kind](arrays)
    with pytest.raises(ModelError):
        DocumentKV.from_arrays(arrays)


# LoRA adapters, merged into the weights.


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
