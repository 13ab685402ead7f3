"""Tokenizers of the package transformers, with the interface of the contract."""

from collections.abc import Mapping, Sequence
from typing import Any

from jinja2 import TemplateError
from typing_extensions import override

from dragonrt.backends.backend import Tokenizer, vocabulary_fingerprint
from dragonrt.errors import ModelError


class TransformersTokenizer(Tokenizer):
    """A tokenizer of the package transformers."""

    def __init__(self, tokenizer: Any) -> None:
        self._tokenizer = tokenizer
        self.is_chat = bool(tokenizer.chat_template)
        bos = tokenizer.bos_token_id
        self.start = tokenizer.bos_token if bos is not None and bos in tokenizer.encode("") else ""

    @property
    def fingerprint(self) -> str:
        """Return the `vocabulary_fingerprint`: equal to that of the model's GGUF file."""
        backend = getattr(self._tokenizer, "backend_tokenizer", None)
        kind = "slow" if backend is None else backend.decoder.__getstate__().decode()
        for mark, name in (("ByteFallback", "sentencepiece"), ("ByteLevel", "byte-level")):
            kind = name if mark in kind else kind
        return vocabulary_fingerprint(kind, self._tokenizer.get_vocab())

    @override
    def encode(self, text: str) -> list[int]:
        tokens: list[int] = self._tokenizer.encode(text, add_special_tokens=False)
        return tokens

    @override
    def decode(self, tokens: Sequence[int]) -> str:
        text: str = self._tokenizer.decode(
            list(tokens), skip_special_tokens=True, clean_up_tokenization_spaces=False
        )
        return text

    @override
    def chat(self, messages: Sequence[Mapping[str, str]]) -> str:
        try:
            rendered: str = self._tokenizer.apply_chat_template(
                messages,
                tokenize=False,
                add_generation_prompt=True,
                enable_thinking=False,  # of Qwen3 and SmolLM3; other templates do not read it
            )
        except TemplateError as error:
            raise ModelError(f"the model's chat template refuses the messages: {error}") from error
        return rendered
