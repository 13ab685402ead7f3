"""Another embedding model than the bundled one: a tiny multilingual one, from file to answer."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from tokenizers import Tokenizer, models, pre_tokenizers, trainers
from transformers import PreTrainedTokenizerFast, XLMRobertaConfig, XLMRobertaModel

from dragonrt.backends.model import LanguageModel
from dragonrt.node.process.composition import complete_library
from dragonrt.node.process.side_settings import SideSettings

NOTES = {
    "de.txt": "Die Fähre fährt um neun Uhr vom Nordkai ab.",
    "el.txt": "Το πλοίο φεύγει στις εννιά από τη βόρεια αποβάθρα.",
    "zh.txt": "渡轮九点从北码头出发。",
}
MARKS = ["<s>", "<pad>", "</s>", "<unk>", "<mask>"]


@pytest.fixture
def multilingual(tmp_path: Path) -> Path:
    """A random XLM-RoBERTa of 16 dimensions, in the layout of sentence-transformers."""
    path, pieces = tmp_path / "multilingual", Tokenizer(models.Unigram())
    pieces.pre_tokenizer = pre_tokenizers.Metaspace()
    trainer = trainers.UnigramTrainer(
        vocab_size=120, special_tokens=MARKS, unk_token="<unk>", show_progress=False
    )
    pieces.train_from_iterator(NOTES.values(), trainer)
    names = dict(zip(("bos", "pad", "eos", "unk", "mask"), MARKS, strict=True))
    tokenizer: Any = PreTrainedTokenizerFast(  # type: ignore[no-untyped-call]  # it has no types
        tokenizer_object=pieces, **{f"{name}_token": each for name, each in names.items()}
    )
    torch.manual_seed(0)
    config = XLMRobertaConfig(
        vocab_size=len(tokenizer),
        hidden_size=16,
        num_hidden_layers=1,
        num_attention_heads=2,
        intermediate_size=32,
        max_position_embeddings=66,
    )
    model: Any = XLMRobertaModel(config)
    model.save_pretrained(path)
    tokenizer.save_pretrained(path)
    kinds = {"": "Transformer", "1_Pooling": "Pooling"}
    modules = [
        {"idx": i, "name": str(i), "path": name, "type": f"sentence_transformers.models.{kind}"}
        for i, (name, kind) in enumerate(kinds.items())
    ]
    (path / "modules.json").write_text(json.dumps(modules))
    (path / "sentence_bert_config.json").write_text('{"max_seq_length": 64}')
    (path / "1_Pooling").mkdir()
    pooling = {"word_embedding_dimension": 16, "pooling_mode_mean_tokens": True}
    (path / "1_Pooling" / "config.json").write_text(json.dumps(pooling))
    return path


@pytest.mark.slow
def test_documents_are_found_by_a_multilingual_embedder(
    multilingual: Path, tmp_path: Path, model: LanguageModel, run: Callable[..., Any]
) -> None:
    notes = tmp_path / "notes"
    notes.mkdir()
    for name, text in NOTES.items():
        (notes / name).write_text(text, encoding="utf-8")
    asked = ("device", "--documents", str(notes), "--index", str(tmp_path / "index"), "--port", "1")
    own = ("--embedder", str(multilingual), "--search", "dense", "--max-tokens", "4")
    outcome = run(*asked, *own, "--model", model.name, "--ask", "When?", "--json")
    assert outcome.code == 0
    assert json.loads(outcome.output)["question"] == "When?"
    settings = SideSettings(
        "device",
        documents=(notes,),
        index=tmp_path / "index",
        embedder=str(multilingual),
        search="dense",
    )
    library = complete_library(settings, model, kv=False)
    assert library is not None
    assert library.embedder.title == "multilingual"
    for name, text in NOTES.items():
        (hit,) = library.find(text, 1)
        assert (hit.chunk.source, round(hit.score, 3)) == (name, 1.0)
