"""Loading models by name, and what a loaded model says about itself."""

import json
import shutil
import sys
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from transformers import AutoModelForCausalLM

from dragonrt import bundled
from dragonrt.backends.backend import Feed
from dragonrt.backends.model import LanguageModel
from dragonrt.backends.prompt import TRAINED
from dragonrt.backends.row_set import LARGEST
from dragonrt.backends.scheduler import run_alone
from dragonrt.errors import ModelError
from tests.tiny_models import tiny


@pytest.fixture
def llama(directory: Callable[[str], Path]) -> LanguageModel:
    return LanguageModel.load(directory("llama"), "cpu", "float32")


@pytest.fixture
def changed(directory: Callable[[str], Path], tmp_path: Path) -> Callable[..., Path]:
    """Copies the directory of a model, with changes to its configuration."""

    def copy(name: str, **changes: object) -> Path:
        path = tmp_path / name
        shutil.copytree(directory("llama"), path)
        config = json.loads((path / "config.json").read_text())
        (path / "config.json").write_text(json.dumps(config | changes))
        return path

    return copy


def test_a_directory_describes_itself(llama: LanguageModel) -> None:
    info = llama.backend.info
    assert (info.vocabulary, info.context_length) == (261, 160)
    assert info.parameters == tiny("llama").num_parameters()
    assert (info.device, info.dtype) == ("cpu", "float32")
    assert llama.decode(list(llama.stop_tokens)) == ""
    assert llama.decode(llama.encode("Zoë's 7")) == "Zoë's 7"
    assert llama.document_fingerprint.startswith(llama.fingerprint)


def test_a_bundled_model_describes_itself(model: LanguageModel) -> None:
    info = model.backend.info
    assert (model.name, info.vocabulary) == ("dragon-small", 8192)
    assert (info.context_length, info.parameters) == (1024, 5_786_368)


def test_bundled_models_share_a_tokenizer_and_keep_their_prompts(llama: LanguageModel) -> None:
    models = [LanguageModel.load(name, "cpu") for name in bundled.models()]
    assert all(each.prompt.template == TRAINED[each.name] for each in models)
    assert llama.prompt.template not in TRAINED.values()
    assert len({each.tokenizer_fingerprint for each in models}) == 1
    assert len({each.fingerprint for each in models}) == len(models)


def test_the_fingerprint_names_the_checkpoint_not_the_precision(
    llama: LanguageModel, changed: Callable[..., Path]
) -> None:
    path = changed("same")
    half = LanguageModel.load(path, "cpu", "bfloat16")
    assert half.dtype == "bfloat16"
    assert half.fingerprint == llama.fingerprint
    assert half.document_fingerprint != llama.document_fingerprint
    with pytest.raises(ModelError):
        llama.rows([half.document_kv([5, 6])])
    other = AutoModelForCausalLM.from_pretrained(path, dtype="auto")
    other.model.layers[0].mlp.up_proj.weight.data[0, 0] += 0.5
    other.save_pretrained(path)
    assert LanguageModel.load(path, "cpu").fingerprint != half.fingerprint
    rope = {"rope_type": "default", "rope_theta": 20000.0}
    turned = changed("turned", rope_parameters=rope, rope_theta=20000.0)
    assert LanguageModel.load(turned, "cpu").fingerprint != llama.fingerprint


def test_the_kv_of_another_version_is_not_used(
    model: LanguageModel, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = model.document_fingerprint
    monkeypatch.setattr(model.backend, "info", replace(model.backend.info, version="newer"))
    assert model.document_fingerprint != before


def refused(name: str | Path) -> str:
    with pytest.raises(ModelError) as caught:
        LanguageModel.load(name)
    assert "\n" not in str(caught.value)
    return str(caught.value)


@pytest.mark.parametrize("name", ["dragon-large", "no/such/directory", "some/model"])
def test_an_unknown_name_is_refused(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(name: str) -> None:
        raise OSError(f"We couldn't connect to the hub to load {name}.\nCheck your connection.")

    monkeypatch.setattr(
        "dragonrt.backends.transformers_.checkpoint.AutoConfig.from_pretrained", fail
    )
    assert name in refused(name)


def test_a_directory_without_transformers_installed_is_refused(
    directory: Callable[[str], Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "dragonrt.backends.transformers_.checkpoint", None)
    assert str(directory("llama")) in refused(str(directory("llama")))


def test_a_file_that_is_missing_is_not_sought_on_the_hub(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "dragonrt.backends.transformers_.checkpoint", None)
    assert "models/none.gguf" in refused("models/none.gguf")


def test_what_is_no_model_is_refused(changed: Callable[..., Path]) -> None:
    assert "t5" in refused(changed("encoder", model_type="t5", is_encoder_decoder=True))
    pickled = changed("pickled")
    (pickled / "model.safetensors").unlink()
    (pickled / "pytorch_model.bin").write_bytes(b"pickle")
    assert "safetensors" in refused(pickled)
    broken = changed("broken")
    (broken / "model.safetensors").write_bytes(b"\x10\0\0\0\0\0\0\0not a header at all")
    refused(broken)
    assert "model.layers.3" in refused(changed("short", num_hidden_layers=4))


def test_what_this_machine_or_a_file_cannot_do_is_refused(
    directory: Callable[[str], Path], tmp_path: Path
) -> None:
    missing = "cuda" if not torch.cuda.is_available() else "mps"
    with pytest.raises(ModelError):
        LanguageModel.load(directory("llama"), missing)  # type: ignore[arg-type]
    file = tmp_path / "model.gguf"
    file.write_bytes(b"GGUF")
    with pytest.raises(ModelError):
        LanguageModel.load(file, dtype="float32")
    with pytest.raises(ModelError):
        LanguageModel.load(file, "cuda")


def test_torch_uses_the_threads_asked_for(directory: Callable[[str], Path]) -> None:
    before = torch.get_num_threads()
    try:
        LanguageModel.load(directory("llama"), "cpu", threads=2)
        assert torch.get_num_threads() == 2
    finally:
        torch.set_num_threads(before)


def test_stop_strings_of_one_token_end_an_answer(llama: LanguageModel) -> None:
    newline = tuple(llama.encode("\n"))
    assert llama.answer_stops == (*llama.stop_tokens, *newline)
    assert llama.with_stops(("\n", "more than one token")) == llama.answer_stops


def test_the_kv_of_a_document_is_that_of_all_its_tokens(
    llama: LanguageModel, model: LanguageModel
) -> None:
    document, line = list(range(20, 29)), [30, 31]
    for each in (llama, model):
        every = np.arange(each.vocabulary)
        full = each.rows([each.document_kv(())]).extend([*document, *line]).log_probabilities(every)
        for made in (each.document_kv(document), run_alone(partial(each.prefill, document))):
            stored = each.backend.load(made.dump())
            assert made.length == stored.length == len(document)
            again = each.rows([stored]).extend(line).log_probabilities(every)
            np.testing.assert_allclose(again, full, atol=0.02)


def test_no_forward_of_many_rows_takes_more_memory_than_of_few(
    llama: LanguageModel, monkeypatch: pytest.MonkeyPatch
) -> None:
    rows, forward = llama.rows([llama.document_kv(())] * 8), llama.backend.forward
    sizes: list[int] = []

    def counted(feeds: Sequence[Feed]) -> Any:
        sizes.extend(rows.count * len(feed.tokens) for feed in feeds)
        return forward(feeds)

    monkeypatch.setattr(llama.backend, "forward", counted)
    assert len(rows.extend_all([5] * 140)) == 140
    assert max(sizes) <= LARGEST < sum(sizes)
