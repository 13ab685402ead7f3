"""Write GGUF files from other model files, quantised by ggml. Its import is slow, so do it late."""

import json
import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from gguf import (
    GGML_QUANT_SIZES,
    MODEL_ARCH,
    MODEL_ARCH_NAMES,
    GGUFReader,
    GGUFValueType,
    GGUFWriter,
    PoolingType,
    ReaderTensor,
    TokenType,
    dequantize,
    get_tensor_name_map,
)
from gguf import GGMLQuantizationType as Type
from numpy.typing import NDArray
from safetensors.numpy import load_file

from dragonrt.backends.llama_cpp.library import load_library
from dragonrt.backends.lora import Factors

_EMBEDDING, _OUTPUT = "token_embd.weight", "output.weight"
_WRITTEN = ("GGUF.", "general.architecture")  # by the writer itself
_ROWS = 4096  # dequantised together
_HEADS = {"attn_q": "head_count", "attn_k": "head_count_kv"}
"""Layers whose rows llama.cpp reorders in files of some architectures, and keys of their heads."""
_REORDERED = ("llama", "smollm3", "granite")
_SPECIAL = ("[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]")


class Stored(NamedTuple):
    """A tensor to write: `data` has its numbers, or bytes [rows, bytes] of a quantised `kind`."""

    name: str
    data: NDArray[Any]
    kind: Type


def write_merged(
    path: Path,
    source: Path,
    adapter: Path,
    on_progress: Callable[[int, int], None],
    threads: int | None,
) -> None:
    """Write a Llama's GGUF file with an adapter merged into its weights; both are GGUF files.

    Linear layers become IQ4_NL, with errors weighed by the mean squares of the layers' inputs, and
    `attn_v` Q8_0. The embedding stays, and its IQ4_NL copy becomes the output layer.
    `on_progress` gets the numbers of weights done and of all. `threads` None: one per core.
    """
    base, update = GGUFReader(source), GGUFReader(adapter)
    parts = {each.name: each for each in update.tensors}

    def tensors(tensor: ReaderTensor) -> list[Stored]:
        if len(tensor.shape) == 1:
            return [_kept(tensor)]
        if tensor.name == _EMBEDDING:
            starts = range(0, len(tensor.data), _ROWS)
            pieces = (tensor.data[each : each + _ROWS] for each in starts)
            rows = [quantised(dequantize(each, tensor.tensor_type), Type.IQ4_NL) for each in pieces]
            return [_kept(tensor), Stored(_OUTPUT, np.concatenate(rows), Type.IQ4_NL)]
        a, b, inputs = (
            _numbers(parts[f"{tensor.name}.{part}"]) for part in ("lora_a", "lora_b", "inputs")
        )
        # These sums are exact in float64, so no library's order of them changes the bytes.
        weight = _numbers(tensor) + b.T @ a
        kind = Type.Q8_0 if ".attn_v." in tensor.name else Type.IQ4_NL
        return [Stored(tensor.name, quantised(weight, kind, inputs**2), kind)]

    pool = ThreadPoolExecutor(threads or os.cpu_count())
    try:
        sizes = {pool.submit(tensors, each): int(each.n_elements) for each in base.tensors}
        done = 0
        for future in as_completed(sizes):
            future.result()
            done += sizes[future]
            on_progress(done, sum(sizes.values()))
    finally:
        pool.shutdown(cancel_futures=True)
    write_llama(path, (base, update), [each for future in sizes for each in future.result()])


def write_with_layers(path: Path, base: Path, layers: Path) -> None:
    """Write a draft model's file: embedding, output, tokenizer of `base`, layers of `layers`."""
    files = GGUFReader(base), GGUFReader(layers)
    tensors = [
        _kept(tensor)
        for file, outer in zip(files, (True, False), strict=True)
        for tensor in file.tensors
        if (tensor.name in (_EMBEDDING, _OUTPUT)) == outer
    ]
    write_llama(path, files, tensors)


def write_adapter(
    path: Path, layers: Mapping[str, Factors], metadata: Callable[[str], str]
) -> None:
    """Write a LoRA as a GGUF file. The keys of `layers` are the layers' names in transformers.

    `metadata(key)` returns the value of a metadata key in the GGUF file of the LoRA's model.
    Raises ValueError or LookupError if the layers are not that model's.
    """
    kind = metadata("general.architecture")
    architectures = {name: each for each, name in MODEL_ARCH_NAMES.items()}
    names = get_tensor_name_map(architectures[kind], int(metadata(f"{kind}.block_count")))
    alphas = {float(np.float32(each.scale * len(each.down))) for each in layers.values()}
    if len(alphas) > 1:
        raise ValueError("its layers differ in alpha, which llama.cpp does not read")
    writer = GGUFWriter(path, kind)
    writer.add_type("adapter")
    writer.add_string("adapter.type", "lora")
    writer.add_float32("adapter.lora.alpha", alphas.pop())
    for layer, (down, up, _) in layers.items():
        if (name := names.get_name(layer)) is None:
            raise ValueError(f"{layer} is no layer of {kind}")
        if kind in _REORDERED and (key := _HEADS.get(name.rpartition(".")[2])):
            heads = int(metadata(f"{kind}.attention.{key}"))
            parts = up.reshape(heads, 2, -1, up.shape[1]).swapaxes(1, 2)
            up = np.ascontiguousarray(parts).reshape(up.shape)
        writer.add_tensor(f"{name}.weight.lora_a", down)
        writer.add_tensor(f"{name}.weight.lora_b", up)
    finish(writer)


def write_embedder(path: Path, directory: Path) -> None:
    """Write a sentence-transformers directory (a BERT, mean pooling) as a float16 GGUF file."""
    config = _json(directory / "config.json")
    # sentence-transformers cuts texts here; llama.cpp has as many positions as its context.
    length = int(_json(directory / "sentence_bert_config.json")["max_seq_length"])
    writer = GGUFWriter(path, "bert")
    writer.add_block_count(config["num_hidden_layers"])
    writer.add_context_length(length)
    writer.add_embedding_length(config["hidden_size"])
    writer.add_feed_forward_length(config["intermediate_size"])
    writer.add_head_count(config["num_attention_heads"])
    writer.add_layer_norm_eps(config["layer_norm_eps"])
    writer.add_causal_attention(False)
    writer.add_pooling_type(PoolingType.MEAN)
    words = (directory / "vocab.txt").read_text("utf-8").splitlines()
    writer.add_tokenizer_model("bert")
    writer.add_token_type_count(config["type_vocab_size"])
    writer.add_token_list([_token(word) for word in words])
    control, normal = TokenType.CONTROL, TokenType.NORMAL
    writer.add_token_types([control if word in _SPECIAL else normal for word in words])
    writer.add_bos_token_id(words.index("[CLS]"))
    writer.add_eos_token_id(words.index("[SEP]"))
    writer.add_sep_token_id(words.index("[SEP]"))
    writer.add_unk_token_id(words.index("[UNK]"))
    writer.add_pad_token_id(words.index("[PAD]"))
    writer.add_mask_token_id(words.index("[MASK]"))
    names = get_tensor_name_map(MODEL_ARCH.BERT, config["num_hidden_layers"])
    for source, weights in load_file(directory / "model.safetensors").items():
        name = names.get_name(source, (".weight", ".bias"))
        if name is None:  # of the training's objective
            continue
        if name.startswith("position_embd"):
            weights = weights[:length]
        rounded = name.endswith(".weight") and name.startswith(("blk.", "token_embd."))
        kind = np.float16 if rounded and weights.ndim == 2 else np.float32
        writer.add_tensor(name, weights.astype(kind))
    finish(writer)


def _token(word: str) -> str:
    """Return a word piece as llama.cpp has it: U+2581 before those that begin a word."""
    if word in _SPECIAL:
        return word
    return word.removeprefix("##") if word.startswith("##") else f"\u2581{word}"


def _json(path: Path) -> Any:
    return json.loads(path.read_text("utf-8"))


def quantised(
    weight: NDArray[Any], kind: Type, importance: NDArray[Any] | None = None
) -> NDArray[np.uint8]:
    """Quantise a weight [rows, columns] to a ggml type; return its rows as bytes, [rows, bytes].

    `importance` [columns] weighs the rounding errors of the columns.
    """
    block, size = GGML_QUANT_SIZES[kind]
    weight = np.ascontiguousarray(weight, np.float32)
    found = np.empty((len(weight), weight.shape[1] // block * size), np.uint8)
    weighing = None if importance is None else np.ascontiguousarray(importance, np.float32)
    load_library().ggml_quantize_chunk(
        kind,
        weight.ctypes.data,
        found.ctypes.data,
        0,
        *weight.shape,
        None if weighing is None else weighing.ctypes.data,
    )
    return found


def _kept(tensor: ReaderTensor) -> Stored:
    return Stored(tensor.name, tensor.data, tensor.tensor_type)


def _numbers(tensor: ReaderTensor) -> NDArray[np.float64]:
    return dequantize(tensor.data, tensor.tensor_type).astype(np.float64)


def write_llama(path: Path, metadata: Sequence[GGUFReader], tensors: Iterable[Stored]) -> None:
    """Write a Llama's GGUF file of `tensors`; in `metadata`, later files override earlier ones."""
    writer = GGUFWriter(path, "llama")
    fields = {name: field for each in metadata for name, field in each.fields.items()}
    for name, field in fields.items():
        if not name.startswith(_WRITTEN):
            sub_type = field.types[-1] if field.types[0] == GGUFValueType.ARRAY else None
            writer.add_key_value(name, field.contents(), field.types[0], sub_type)
    for name, data, kind in tensors:
        writer.add_tensor(name, data, raw_dtype=kind)
    finish(writer)


def finish(writer: GGUFWriter) -> None:
    """Write the header, metadata and tensors of a GGUF `writer` to its file, and close the file."""
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
