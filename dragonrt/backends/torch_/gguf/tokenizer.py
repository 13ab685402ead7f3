"""The tokenizer of a GGUF file, built from its metadata.

A byte-level BPE is built here, in a third of a second for 49,152 tokens. `tokenizer.ggml.pre` names
its pre-tokenizer. An unknown one is refused, for another would give other tokens without a word.
transformers' converter derives the merges of SentencePiece vocabularies.
"""

from collections.abc import Mapping, Sequence
from typing import Any

from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, normalizers
from tokenizers import pre_tokenizers as splitters
from tokenizers.processors import TemplateProcessing
from transformers import PreTrainedTokenizerFast

from dragonrt.errors import ModelError

_CONTROL, _USER_DEFINED, _UNUSED = 3, 4, 5  # values of tokenizer.ggml.token_type
_WORDS = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+"
_REST = r"| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
_SPLITS = {
    "qwen2": rf"{_WORDS}|\p{{N}}{_REST}",
    "llama-bpe": rf"{_WORDS}|\p{{N}}{{1,3}}{_REST}",
}
_ALIASES = {
    "qwen2": ("deepseek-r1-qwen",),
    "llama-bpe": ("llama3", "llama-v3", "dbrx", "smaug-bpe"),
    "gpt-2": ("gpt2", "olmo"),
    "smollm": ("starcoder", "refact", "command-r"),
}
_KNOWN = {name: name for name in _ALIASES}
_KNOWN |= {alias: name for name, aliases in _ALIASES.items() for alias in aliases}
_TURN_ENDS = ("<|im_end|>", "<|eot_id|>", "<end_of_turn>")


def tokenizer_of(metadata: Mapping[str, Any]) -> PreTrainedTokenizerFast:
    """Build the tokenizer, with chat template and special tokens.

    Raises ModelError if the metadata lacks a vocabulary, or names a tokenizer that is not known.
    """
    tokens, kind = _list(metadata, "tokens"), metadata.get("tokenizer.ggml.model")
    if kind == "gpt2":
        backend = _byte_level(metadata, tokens, metadata.get("tokenizer.ggml.pre", "gpt-2"))
    elif kind == "llama":
        backend = _sentence_piece(metadata, tokens)
    else:
        raise ModelError(f"a GGUF tokenizer of the kind {kind} is not read: gpt2 and llama are")
    special = {
        f"{name}_token": tokens[number]
        for name, key in (("bos", "bos"), ("eos", "eos"), ("unk", "unknown"), ("pad", "padding"))
        if (number := _token_id(metadata, key, len(tokens))) is not None
    }
    bos = special.get("bos_token")
    if bos is not None and metadata.get("tokenizer.ggml.add_bos_token", kind == "llama"):
        backend.post_processor = TemplateProcessing(
            single=f"{bos} $A", pair=f"{bos} $A {bos} $B", special_tokens=[(bos, tokens.index(bos))]
        )
    return PreTrainedTokenizerFast(  # type: ignore[no-untyped-call]  # it has no types
        tokenizer_object=backend,
        chat_template=metadata.get("tokenizer.chat_template"),
        clean_up_tokenization_spaces=False,
        **special,
    )


def stop_tokens(metadata: Mapping[str, Any]) -> tuple[int, ...]:
    """Return the tokens that end a text, a turn or a message, as far as the file names them."""
    tokens = _list(metadata, "tokens")
    named = [_token_id(metadata, key, len(tokens)) for key in ("eos", "eot", "eom")]
    ends = [number for number, token in enumerate(tokens) if token in _TURN_ENDS]
    return tuple(dict.fromkeys(number for number in (*named, *ends) if number is not None))


def _byte_level(metadata: Mapping[str, Any], tokens: Sequence[str], name: str) -> Tokenizer:
    if (pre := _KNOWN.get(name)) is None:
        known = ", ".join(sorted(_KNOWN))
        raise ModelError(f"the GGUF file splits text by {name}, which is not known; known: {known}")
    merges = [tuple(merge.split(" ", 1)) for merge in _list(metadata, "merges")]
    kinds = metadata.get("tokenizer.ggml.token_type", ())
    if len(kinds) not in (0, len(tokens)):
        raise ModelError(f"{len(tokens):,} tokens of the GGUF file have {len(kinds):,} types")
    split: list[Any] = []
    if pre in _SPLITS:
        split = [splitters.Split(Regex(_SPLITS[pre]), behavior="isolated")]
    elif pre == "smollm":
        split = [splitters.Digits(individual_digits=True)]
    byte_level = splitters.ByteLevel(add_prefix_space=False, use_regex=pre not in _SPLITS)
    unused = {number for number, kind in enumerate(kinds) if kind == _UNUSED}  # fill up the sizes
    vocabulary = {token: number for number, token in enumerate(tokens) if number not in unused}
    try:
        model = models.BPE(vocabulary, merges, ignore_merges=pre == "llama-bpe")
    except Exception as error:  # tokenizers raises no other type
        raise ModelError(f"the GGUF file's merges do not fit its tokens: {error}") from error
    backend = Tokenizer(model)
    if pre == "qwen2":
        backend.normalizer = normalizers.NFC()
    backend.pre_tokenizer = splitters.Sequence([*split, byte_level]) if split else byte_level
    backend.decoder = decoders.ByteLevel()
    for special, kind in ((True, _CONTROL), (False, _USER_DEFINED)):
        added = [
            AddedToken(token, normalized=False, special=special)
            for token, its_kind in zip(tokens, kinds, strict=False)
            if its_kind == kind
        ]
        (backend.add_special_tokens if special else backend.add_tokens)(added)
    return backend


def _sentence_piece(metadata: Mapping[str, Any], tokens: Sequence[str]) -> Tokenizer:
    found = {
        "tokenizer_type": "llama",
        "tokens": list(tokens),
        "scores": _list(metadata, "scores"),
        "token_type": metadata.get("tokenizer.ggml.token_type"),
    }
    if "tokenizer.ggml.merges" in metadata:
        found["merges"] = _list(metadata, "merges")
    try:  # a transformers before 5.20 lacks the module
        from transformers.integrations.gguf.gguf_tokenizer_mapping import convert_gguf_tokenizer

        backend, _ = convert_gguf_tokenizer(metadata.get("general.architecture", ""), found)
    except (ImportError, KeyError, ValueError, TypeError) as error:
        raise ModelError(f"the GGUF file's vocabulary cannot be converted: {error}") from error
    return backend


def _list(metadata: Mapping[str, Any], name: str) -> list[Any]:
    found = metadata.get(f"tokenizer.ggml.{name}")
    if found is None or isinstance(found, (str, int, float)) or not len(found):
        raise ModelError(f"the GGUF file has no tokenizer.ggml.{name}")
    return list(found)


def _token_id(metadata: Mapping[str, Any], key: str, size: int) -> int | None:
    number = metadata.get(f"tokenizer.ggml.{key}_token_id")
    if number is not None and not (isinstance(number, int) and 0 <= number < size):
        raise ModelError(f"the GGUF file's {key} token is {number}, of {size:,}")
    return number
