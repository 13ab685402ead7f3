"""GGUF files: every tensor type, every architecture, and what is refused.

The reference is a transformers model with the numbers that the package `gguf` dequantises (its own
reading of such files needs `accelerate`); names are those of the package, too.
"""

import copy
import struct
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import gguf
import numpy as np
import pytest
import torch
import transformers
from gguf import GGMLQuantizationType as Kind
from tokenizers.pre_tokenizers import ByteLevel
from transformers.pytorch_utils import Conv1D

from dragonrt.backends.model import LanguageModel
from dragonrt.backends.torch_.gguf.file import TYPES
from dragonrt.backends.torch_.gguf.model import DECODERS
from dragonrt.backends.torch_.int4 import can_multiply_int4
from dragonrt.errors import ModelError

SPECIAL = ("<|endoftext|>", "<|im_start|>", "<|im_end|>")
MERGES = ("Ġ t", "h e", "Ġt he", "2 3")
TEMPLATE = "{% for m in messages %}<|im_start|>{{ m['content'] }}<|im_end|>{% endfor %}"


def vocabulary_of(size: int) -> list[str]:
    """A vocabulary of bytes, merges, special tokens, and others that fill it up."""
    made = [*SPECIAL, *sorted(ByteLevel.alphabet()), *("".join(merge.split()) for merge in MERGES)]
    return made + [f"<unused {number}>" for number in range(size - len(made))]


def stored(architecture: str, model: Any, name: str, parameter: torch.Tensor) -> np.ndarray:
    """A parameter as the converter writes it."""
    found = parameter.detach().float()
    if isinstance(model.get_submodule(name.rpartition(".")[0]), Conv1D) and found.ndim == 2:
        found = found.T
    if architecture in ("gemma2", "gemma3") and "norm" in name:
        found = found + 1
    for kind, heads in (
        ("q_proj", model.config.num_attention_heads),
        ("k_proj", getattr(model.config, "num_key_value_heads", 0)),
    ):
        if architecture in ("llama", "smollm3") and kind in name:
            rows = found.shape[0]
            found = (
                found.reshape(heads, 2, rows // heads // 2, -1).swapaxes(1, 2).reshape(found.shape)
            )
    return np.ascontiguousarray(found.numpy())


def random_blocks(kind: Kind, shape: tuple[int, ...], seed: int = 0) -> np.ndarray:
    """Blocks of a type that `gguf` cannot quantise to, all bits of which are used."""
    block, size = gguf.GGML_QUANT_SIZES[kind]
    made = np.random.default_rng(seed).integers(
        0, 256, (*shape[:-1], shape[-1] // block, size), dtype=np.uint8
    )
    scales = np.array([0.002, 0.01], np.float16).view(np.uint8)
    if kind == Kind.Q6_K:
        made[..., -2:] = np.array([0.0002], np.float16).view(np.uint8)
    else:
        made[..., :4] = scales
    return made.reshape(*shape[:-1], -1)


@dataclass
class File:
    """What goes into a file; change it before `write`."""

    model: Any
    architecture: str
    kind: Kind = Kind.F32
    values: dict[str, Any] = field(default_factory=dict)
    instead: dict[str, int] = field(default_factory=dict)
    tensors: dict[str, tuple[np.ndarray, Kind]] = field(default_factory=dict)
    pre: str = "smollm"
    extra: dict[str, Any] | None = None  # instead of a tokenizer

    def __post_init__(self) -> None:
        for index, (name, parameter) in enumerate(self.model.named_parameters()):
            found = stored(self.architecture, self.model, name, parameter)
            self.tensors[self.stored_name(name)] = self._quantised(found, index)

    def stored_name(self, parameter: str) -> str:
        number = {name: arch for arch, name in gguf.MODEL_ARCH_NAMES.items()}[self.architecture]
        names = gguf.get_tensor_name_map(number, self.model.config.num_hidden_layers)
        return str(names.get_name(parameter, try_suffixes=(".weight", ".bias")))

    def _quantised(self, found: np.ndarray, seed: int) -> tuple[np.ndarray, Kind]:
        if found.ndim == 1 or self.kind == Kind.F32:
            return found, Kind.F32
        if self.kind in (Kind.Q4_K, Kind.Q5_K, Kind.Q6_K):
            return random_blocks(self.kind, found.shape, seed), self.kind
        return gguf.quantize(found, self.kind), self.kind

    def reference(self) -> Any:
        """The model with the numbers that the file has, by the package's own dequantisation."""
        model = copy.deepcopy(self.model)
        for name, parameter in model.named_parameters():
            raw, kind = self.tensors[self.stored_name(name)]
            numbers = torch.from_numpy(np.array(gguf.dequantize(raw, kind), np.float32))
            # where each number of the parameter went, found by writing numbers in order
            order = torch.arange(parameter.numel(), dtype=torch.float64).view(parameter.shape)
            added = self.architecture.startswith("gemma") and "norm" in name
            went = stored(self.architecture, model, name, order.float()) - added
            places = torch.from_numpy(went).long().flatten()
            parameter.data.view(-1)[places] = numbers.flatten() - float(added)
        return model.eval()

    def write(self, path: Path) -> Path:
        """Write it."""
        config = self.model.config
        writer = gguf.GGUFWriter(path, self.architecture)
        heads = config.num_attention_heads
        sizes = {
            "add_context_length": config.max_position_embeddings,
            "add_embedding_length": config.hidden_size,
            "add_block_count": config.num_hidden_layers,
            "add_feed_forward_length": getattr(config, "intermediate_size", 96),
            "add_head_count": heads,
        }
        if hasattr(config, "num_key_value_heads"):
            sizes["add_head_count_kv"] = config.num_key_value_heads
            sizes["add_key_length"] = (
                getattr(config, "head_dim", None) or config.hidden_size // heads
            )
            writer.add_layer_norm_rms_eps(config.rms_norm_eps)
        for name, size in (sizes | self.instead).items():
            getattr(writer, name)(size)
        for key, value in self.values.items():
            add = writer.add_float32 if isinstance(value, float) else writer.add_uint32
            (writer.add_string if isinstance(value, str) else add)(
                f"{self.architecture}.{key}", value
            )
        for key, value in (self.extra or {}).items():
            writer.add_key_value(key, value, gguf.GGUFValueType.get_type(value))
        if self.extra is None:
            self._write_tokenizer(writer)
        for name, (raw, kind) in self.tensors.items():
            writer.add_tensor(name, raw, raw_dtype=kind)
        writer.write_header_to_file()
        writer.write_kv_data_to_file()
        writer.write_tensors_to_file()
        writer.close()
        return path

    def _write_tokenizer(self, writer: gguf.GGUFWriter) -> None:
        vocabulary = vocabulary_of(self.model.config.vocab_size)
        writer.add_tokenizer_model("gpt2")
        writer.add_tokenizer_pre(self.pre)
        writer.add_token_list(vocabulary)
        kinds = [
            3 if each in SPECIAL else 5 if each.startswith("<unused") else 1 for each in vocabulary
        ]
        writer.add_token_types(kinds)
        writer.add_token_merges(list(MERGES))
        writer.add_bos_token_id(1)
        writer.add_eos_token_id(0)
        writer.add_chat_template(TEMPLATE)


SIZES: dict[str, Any] = {
    "vocab_size": 300,
    "hidden_size": 48,
    "intermediate_size": 96,
    "num_hidden_layers": 3,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "max_position_embeddings": 160,
    "pad_token_id": 0,
    "bos_token_id": 1,
    "eos_token_id": 0,
}
HEADS = {"head_dim": 16}
GEMMA = HEADS | {"query_pre_attn_scalar": 16, "sliding_window": 24, "num_hidden_layers": 7}
WINDOW = {"attention.sliding_window": 24}
LINE = [5, 60, 70, 80, 90, 100, 110, 120, 130, 200, 250, 17, 33]
ROPE = {"rope_parameters": {"rope_type": "default", "rope_theta": 5_000_000.0}}
GPT2 = {"vocab_size": 300, "bos_token_id": 1, "eos_token_id": 0, "n_embd": 48, "n_layer": 3}
FAMILIES: dict[str, tuple[str, dict[str, Any], dict[str, Any]]] = {
    "llama": ("Llama", {"tie_word_embeddings": True, "attention_bias": False}, {}),
    "qwen2": ("Qwen2", {"tie_word_embeddings": False}, {}),
    "qwen3": ("Qwen3", HEADS, {}),
    "smollm3": (
        "SmolLM3",
        ROPE | {"num_hidden_layers": 5, "use_sliding_window": False},
        {"rope.freq_base": 5_000_000.0},
    ),
    "olmo2": ("Olmo2", {}, {}),
    "phi3": ("Phi3", {"sliding_window": None}, {"rope.dimension_count": 12}),
    "gemma2": (
        "Gemma2",
        GEMMA | {"attn_implementation": "eager"},
        WINDOW | {"attn_logit_softcapping": 50.0},
    ),
    "gemma3": ("Gemma3Text", GEMMA, WINDOW | {"rope.freq_base": 1_000_000.0}),
    "gpt2": ("GPT2", GPT2 | {"n_head": 4, "n_positions": 160, "n_inner": 96}, {}),
}
"""Of every architecture that is read: transformers' name and options, and the file's values."""


def random_model(family: str, **options: Any) -> Any:
    torch.manual_seed(0)
    sizes = options if family == "GPT2" else SIZES | options
    config = getattr(transformers, f"{family}Config")(**sizes)
    head = "LMHeadModel" if family == "GPT2" else "ForCausalLM"
    made = getattr(transformers, family.removesuffix("Text") + head)(config).eval()
    for parameter in made.parameters():
        parameter.data += 0.05 * torch.randn_like(parameter)
    return made


def llama(**options: Any) -> File:
    return File(random_model("Llama", **options), "llama")


def says(model: LanguageModel) -> torch.Tensor:
    """Log-probabilities behind every token of a line, a part of which is a document."""
    found = model.rows([model.document_kv(LINE[:4])]).extend_all(LINE[4:])
    return torch.from_numpy(
        np.concatenate([each.at(np.arange(model.vocabulary)) for each in found])
    )


def expected(model: Any) -> torch.Tensor:
    with torch.inference_mode():
        logits = model(input_ids=torch.tensor([LINE])).logits[0, 4:]
    found: torch.Tensor = logits.float().log_softmax(-1)
    return found


@pytest.mark.parametrize("architecture", FAMILIES)
def test_every_architecture_gives_transformers_logits(architecture: str, tmp_path: Path) -> None:
    family, options, values = FAMILIES[architecture]
    file = File(random_model(family, **options), architecture, values=values)
    model = LanguageModel.load(file.write(tmp_path / "model.gguf"), "cpu", "float32")
    torch.testing.assert_close(says(model), expected(file.reference()), atol=2e-4, rtol=0)
    assert model.context_length == 160


@pytest.mark.parametrize("kind", sorted(kind.name for kind in TYPES))
def test_every_tensor_type_gives_the_logits_of_its_numbers(kind: str, tmp_path: Path) -> None:
    sizes = {"hidden_size": 256, "intermediate_size": 512, "num_hidden_layers": 2}
    model = random_model("Llama", **sizes, tie_word_embeddings=False)
    file = File(model, "llama", Kind[kind])
    path, reference = file.write(tmp_path / "model.gguf"), file.reference()
    exact = LanguageModel.load(path, "cpu", "float32")
    torch.testing.assert_close(says(exact), expected(reference), atol=1e-3, rtol=0)
    own = LanguageModel.load(path, "cpu")
    in_groups = Kind[kind] in DECODERS and can_multiply_int4()
    assert own.dtype == ("int4" if in_groups else "float32")
    said, wanted = says(own), expected(reference)
    assert float((wanted.exp() * (wanted - said)).sum(dim=1).mean()) < 2e-3
    assert own.exact_blocks


@pytest.mark.parametrize("kind", list(DECODERS))
def test_codes_of_4_bits_are_those_of_the_file(kind: Kind) -> None:
    raw = random_blocks(kind, (6, 512), seed=3)
    groups = DECODERS[kind](torch.from_numpy(raw))
    numbers = torch.from_numpy(gguf.dequantize(raw, kind))
    torch.testing.assert_close(groups.dense(), numbers, atol=1e-6, rtol=1e-5)
    halves = set(raw.flatten() & 15) | set(raw.flatten() >> 4)
    assert set(groups.codes.flatten().tolist()) == halves == set(range(16))
    assert groups.shape == (6, 512)


def test_llama_3s_factors_divide_the_frequencies(tmp_path: Path) -> None:
    file = llama()
    factors = np.linspace(1, 8, 6, dtype=np.float32)
    file.tensors["rope_freqs.weight"] = (factors, Kind.F32)
    model = LanguageModel.load(file.write(tmp_path / "model.gguf"), "cpu", "float32")
    del file.tensors["rope_freqs.weight"]
    reference = file.reference()
    reference.model.rotary_emb.inv_freq /= torch.from_numpy(factors)
    torch.testing.assert_close(says(model), expected(reference), atol=2e-4, rtol=0)


def test_types_differ_in_one_layer(tmp_path: Path) -> None:
    file = File(llama(hidden_size=64, intermediate_size=96).model, "llama", Kind.Q4_0)
    key = "blk.1.attn_v.weight"
    file.tensors[key] = (gguf.quantize(gguf.dequantize(*file.tensors[key]), Kind.Q8_0), Kind.Q8_0)
    model = LanguageModel.load(file.write(tmp_path / "model.gguf"), "cpu")
    said, wanted = says(model), expected(file.reference())
    assert float((wanted.exp() * (wanted - said)).sum(dim=1).mean()) < 2e-3
    if can_multiply_int4():
        assert model.dtype == "mixed"


def test_names_follow_the_content(tmp_path: Path) -> None:
    file = llama()
    one = LanguageModel.load(file.write(tmp_path / "one.gguf"), "cpu")
    again = LanguageModel.load(file.write(tmp_path / "again.gguf"), "cpu")
    raw, kind = file.tensors["output_norm.weight"]
    file.tensors["output_norm.weight"] = (raw + 1, kind)
    other = LanguageModel.load(file.write(tmp_path / "other.gguf"), "cpu")
    assert one.fingerprint == again.fingerprint != other.fingerprint
    assert one.tokenizer_fingerprint == other.tokenizer_fingerprint
    assert one.parameters == sum(raw.size for raw, _ in file.tensors.values())


CORPUS = (
    "In 2023 I paid 1,250.00 for\t  3 things.\n\n  12 more: café, naïve, Ωμέγα, 東京, 🙂🙃",
    "def f(x):\n    return x**2  # it's 'quoted'; don't\r\n",
    "  the the  23 and ²³½ <|im_start|>user\nhello<|im_end|>\n",
)


@pytest.mark.parametrize("pre", ["smollm", "gpt-2", "qwen2", "llama-bpe"])
def test_a_checkpoint_of_the_same_tokenizer_reads_and_pairs_alike(pre: str, tmp_path: Path) -> None:
    file = llama(vocab_size=len(vocabulary_of(0)))
    file.pre = pre
    model = LanguageModel.load(file.write(tmp_path / "model.gguf"), "cpu")
    file.model.save_pretrained(tmp_path / "hub")
    converted: Any = transformers.AutoTokenizer.from_pretrained(tmp_path, gguf_file="model.gguf")
    converted.save_pretrained(tmp_path / "hub")
    hub = LanguageModel.load(tmp_path / "hub", "cpu")
    assert hub.tokenizer_fingerprint == model.tokenizer_fingerprint
    for text in CORPUS:
        tokens = model.encode(text)
        if pre != "smollm":  # transformers does not know it, and splits no digits
            assert tokens == hub.encode(text)
        assert model.decode(tokens) == hub.decode(tokens)
    assert model.stop_tokens == (0, 2)
    assert model.prompt.question_text([], "What?").endswith("<|im_end|>")
    # smollm's digits stand alone, though there is a merge of the two
    assert len(model.encode("23")) == (1 if pre in ("gpt-2", "llama-bpe") else 2)


def refused(path: Path) -> str:
    with pytest.raises(ModelError) as caught:
        LanguageModel.load(path, "cpu")
    assert "\n" not in str(caught.value)
    return str(caught.value)


def test_a_truncated_file_is_refused_wherever_it_ends(tmp_path: Path) -> None:
    whole = llama().write(tmp_path / "whole.gguf").read_bytes()
    for number in range(24):
        cut = tmp_path / "cut.gguf"
        cut.write_bytes(whole[: len(whole) * number // 24])
        refused(cut)


def test_absurd_numbers_in_the_header_are_refused(tmp_path: Path) -> None:
    whole = llama().write(tmp_path / "whole.gguf").read_bytes()
    for place in range(0, 400, 8):
        data = bytearray(whole)
        data[place : place + 8] = struct.pack("<Q", 2**60 + 7)
        (tmp_path / "bad.gguf").write_bytes(data)
        with suppress(ModelError):  # some of these bytes are text
            LanguageModel.load(tmp_path / "bad.gguf", "cpu")


def spoilt(kind: str) -> File:
    file = llama(hidden_size=64) if kind == "IQ4_NL" else llama()
    match kind:
        case "mamba":
            file.architecture = kind
        case "mixture of experts":
            file.values["expert_count"] = 8
        case "blk.1.ffn_up.weight":
            del file.tensors[kind]
        case "blk.0.extra.weight":
            file.tensors[kind] = (np.zeros(3, np.float32), Kind.F32)
        case "blk.0.ffn_up.weight":
            file.tensors[kind] = (np.zeros((95, 48), np.float32), Kind.F32)
        case "IQ4_NL":
            file.tensors["blk.0.ffn_up.weight"] = (np.zeros((96, 36), np.uint8), Kind.IQ4_NL)
        case "klingon":
            file.pre = kind
    return file


@pytest.mark.parametrize(
    "kind",
    [
        *("mamba", "mixture of experts", "IQ4_NL", "klingon"),
        *("blk.1.ffn_up.weight", "blk.0.extra.weight", "blk.0.ffn_up.weight"),
    ],
)
def test_what_is_no_model_that_is_known_is_refused(kind: str, tmp_path: Path) -> None:
    assert kind in refused(spoilt(kind).write(tmp_path / "model.gguf"))


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("block_count", 2**32 - 1),
        ("attention.head_count", 0),
        ("attention.head_count", 7),
        ("embedding_length", 2**31),
        ("attention.key_length", 2**30),
        ("context_length", 2**31),
        ("rope.freq_base", "fast"),
        ("rope.scaling.type", "longrope"),
    ],
)
def test_absurd_sizes_are_refused(key: str, value: Any, tmp_path: Path) -> None:
    file = llama()
    if key.startswith("rope"):
        file.values[key] = value
    else:
        file.instead[f"add_{key.removeprefix('attention.')}"] = value
    refused(file.write(tmp_path / "model.gguf"))
