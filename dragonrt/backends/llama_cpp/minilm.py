"""The bundled embedding model, all-MiniLM-L6-v2, as a GGUF file made of its package."""

import json
from pathlib import Path
from typing import Any

import numpy as np

from dragonrt.backends.llama_cpp.cache import cached

_RECIPE = "1"  # another one if the file changes though the model does not
_SPECIAL = ("[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]")


def minilm_file(directory: Path, fingerprint: str) -> Path:
    """Return the GGUF file of a model in sentence-transformers' layout; make it if missing.

    Its weights are float16: their embeddings have a cosine of 0.999998 to those of float32.

    Args:
        directory: a BERT with mean pooling.
        fingerprint: names the model's version.

    Raises ModelError if the file cannot be written.
    """
    return cached("minilm", f"{_RECIPE} {fingerprint}", lambda path: _write(directory, path))


def _write(directory: Path, path: Path) -> None:
    import gguf  # only here: other starts need neither
    from safetensors.numpy import load_file

    config = _json(directory / "config.json")
    # sentence-transformers cuts texts here; llama.cpp has as many positions as its context.
    length = int(_json(directory / "sentence_bert_config.json")["max_seq_length"])
    writer = gguf.GGUFWriter(path, "bert")
    writer.add_block_count(config["num_hidden_layers"])
    writer.add_context_length(length)
    writer.add_embedding_length(config["hidden_size"])
    writer.add_feed_forward_length(config["intermediate_size"])
    writer.add_head_count(config["num_attention_heads"])
    writer.add_layer_norm_eps(config["layer_norm_eps"])
    writer.add_causal_attention(False)
    writer.add_pooling_type(gguf.PoolingType.MEAN)
    words = (directory / "vocab.txt").read_text("utf-8").splitlines()
    writer.add_tokenizer_model("bert")
    writer.add_token_type_count(config["type_vocab_size"])
    writer.add_token_list([_token(word) for word in words])
    control, normal = gguf.TokenType.CONTROL, gguf.TokenType.NORMAL
    writer.add_token_types([control if word in _SPECIAL else normal for word in words])
    writer.add_bos_token_id(words.index("[CLS]"))
    writer.add_eos_token_id(words.index("[SEP]"))
    writer.add_sep_token_id(words.index("[SEP]"))
    writer.add_unk_token_id(words.index("[UNK]"))
    writer.add_pad_token_id(words.index("[PAD]"))
    writer.add_mask_token_id(words.index("[MASK]"))
    names = gguf.get_tensor_name_map(gguf.MODEL_ARCH.BERT, config["num_hidden_layers"])
    for source, weights in load_file(directory / "model.safetensors").items():
        name = names.get_name(source, (".weight", ".bias"))
        if name is None:  # of the training's objective
            continue
        if name.startswith("position_embd"):
            weights = weights[:length]
        rounded = name.endswith(".weight") and name.startswith(("blk.", "token_embd."))
        kind = np.float16 if rounded and weights.ndim == 2 else np.float32
        writer.add_tensor(name, weights.astype(kind))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def _token(word: str) -> str:
    """Return a word piece as llama.cpp has it: U+2581 before those that begin a word."""
    if word in _SPECIAL:
        return word
    return word.removeprefix("##") if word.startswith("##") else f"\u2581{word}"


def _json(path: Path) -> Any:
    return json.loads(path.read_text("utf-8"))
