"""Loading models by name, and what a loaded model says about itself."""

import json
import shutil
from pathlib import Path

import pytest
import torch
from transformers import AutoModelForCausalLM

from dragonrt import bundled
from dragonrt.backends.model import LanguageModel
from dragonrt.backends.torch_ import process
from dragonrt.errors import ModelError


@pytest.fixture(scope="module")
def draft() -> LanguageModel:
    return LanguageModel.load("dragon-draft", "cpu")


def copy_of_draft(tmp_path: Path, **changes: object) -> Path:
    """A bundled model's directory with changes to its configuration."""
    directory = tmp_path / "model"
    shutil.copytree(bundled.model_path("dragon-draft"), directory)
    config = json.loads((directory / "config.json").read_text())
    (directory / "config.json").write_text(json.dumps(config | changes))
    return directory


def test_a_bundled_model_describes_itself(model: LanguageModel) -> None:
    info = model.backend.info
    assert (model.name, info.vocabulary) == ("dragon-small", 8192)
    assert (info.context_length, info.parameters) == (1024, 5_786_368)
    assert (info.device, info.dtype) == ("cpu", "float32")
    assert model.decode(list(model.stop_tokens)) == ""
    assert model.document_fingerprint.startswith(model.fingerprint)


def test_every_bundled_model_shares_the_tokenizer() -> None:
    models = [LanguageModel.load(name, "cpu") for name in bundled.models()]
    assert len({each.tokenizer_fingerprint for each in models}) == 1
    assert len({each.fingerprint for each in models}) == len(models) == 3


def test_the_fingerprint_names_the_checkpoint_not_the_precision(
    draft: LanguageModel, tmp_path: Path
) -> None:
    directory = copy_of_draft(tmp_path)
    half = LanguageModel.load(directory, "cpu", "bfloat16")
    assert half.dtype == "bfloat16"
    assert half.fingerprint == draft.fingerprint
    assert half.document_fingerprint != draft.document_fingerprint
    with pytest.raises(ModelError):
        draft.rows([half.document_kv([5, 6])])
    changed = AutoModelForCausalLM.from_pretrained(directory, dtype="auto")
    changed.model.layers[0].mlp.up_proj.weight.data[0, 0] += 0.5
    changed.save_pretrained(directory)
    assert LanguageModel.load(directory, "cpu").fingerprint != half.fingerprint
    rope = {"rope_type": "default", "rope_theta": 20000.0}
    turned = copy_of_draft(tmp_path / "turned", rope_parameters=rope, rope_theta=20000.0)
    assert LanguageModel.load(turned, "cpu").fingerprint != draft.fingerprint


def refused(name: str | Path) -> str:
    with pytest.raises(ModelError) as caught:
        LanguageModel.load(name)
    assert "\n" not in str(caught.value)
    return str(caught.value)


@pytest.mark.parametrize("name", ["dragon-large", "no/such/directory", "some/model"])
def test_an_unknown_name_is_refused(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(name: str) -> None:
        raise OSError(f"We couldn't connect to the hub to load {name}.\nCheck your connection.")

    monkeypatch.setattr("dragonrt.backends.torch_.checkpoint.AutoConfig.from_pretrained", fail)
    assert name in refused(name)


def test_what_is_no_model_is_refused(tmp_path: Path) -> None:
    encoder = copy_of_draft(tmp_path / "encoder", model_type="t5", is_encoder_decoder=True)
    assert "t5" in refused(encoder)
    pickled = copy_of_draft(tmp_path / "pickled")
    (pickled / "model.safetensors").unlink()
    (pickled / "pytorch_model.bin").write_bytes(b"pickle")
    assert "safetensors" in refused(pickled)
    broken = copy_of_draft(tmp_path / "broken")
    (broken / "model.safetensors").write_bytes(b"\x10\0\0\0\0\0\0\0not a header at all")
    refused(broken)
    assert "model.layers.3" in refused(copy_of_draft(tmp_path / "short", num_hidden_layers=4))


def test_a_missing_device_is_reported() -> None:
    missing = "cuda" if not torch.cuda.is_available() else "mps"
    with pytest.raises(ModelError):
        LanguageModel.load("dragon-draft", missing)  # type: ignore[arg-type]


def test_torch_uses_the_threads_asked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    before = torch.get_num_threads()
    try:
        LanguageModel.load("dragon-draft", "cpu", threads=2)
        assert torch.get_num_threads() == 2
    finally:
        torch.set_num_threads(before)
    monkeypatch.delenv("OMP_NUM_THREADS", raising=False)
    for cores, expected in ((1, 1), (2, 1), (8, 4), (64, 8)):  # two processors a core
        processors = set(range(2 * cores))
        monkeypatch.setattr("os.sched_getaffinity", lambda _, p=processors: p, raising=False)
        monkeypatch.setattr(process, "_siblings", lambda number: f"{number // 2}")
        assert process.usual_threads() == expected
    monkeypatch.setenv("OMP_NUM_THREADS", "3")
    assert process.usual_threads() == 3


def test_stop_strings_of_one_token_end_an_answer(draft: LanguageModel) -> None:
    newline = tuple(draft.encode("\n"))
    assert draft.answer_stops == (*draft.stop_tokens, *newline)
    assert draft.with_stops(("\n", "more than one token")) == draft.answer_stops
