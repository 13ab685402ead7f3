"""The tokenizer of a GGUF file, as llama.cpp reads it, and its chat template."""

import ctypes
import json
from collections.abc import Mapping, Sequence
from datetime import datetime
from functools import cached_property
from typing import Any, NoReturn

import numpy as np
from jinja2 import Template, TemplateError
from jinja2.ext import Extension, loopcontrols
from jinja2.nodes import Node, Scope
from jinja2.parser import Parser
from jinja2.sandbox import ImmutableSandboxedEnvironment
from typing_extensions import override

from dragonrt.backends.backend import Tokenizer, vocabulary_fingerprint
from dragonrt.backends.llama_cpp.library import LlamaModel
from dragonrt.errors import ModelError

_KINDS = {1: "sentencepiece", 2: "byte-level"}  # values of llama_vocab_type
_UNUSED = 2  # a bit of llama_token_attr


class LlamaTokenizer(Tokenizer):
    """The tokenizer and the chat template of a GGUF file."""

    def __init__(self, model: LlamaModel) -> None:
        """Raises ModelError if the chat template cannot be parsed."""
        self._model, self._library, self._vocab = model, model.library, model.vocab
        bos = self._library.vocab_bos(self._vocab)
        self._bos = self._text(bos) if bos >= 0 else ""
        self.start = self._bos if self._library.vocab_get_add_bos(self._vocab) else ""
        eos = model.metadata("tokenizer.ggml.eos_token_id")
        self._eos = self._text(int(eos)) if eos else ""
        template = model.metadata("tokenizer.chat_template")
        self._template = _template(template) if template else None
        self.is_chat = self._template is not None

    @cached_property
    def fingerprint(self) -> str:
        """Return a hash of what token ids mean; it is the same for the model's checkpoint."""
        kind = self._library.vocab_type(self._vocab)
        attribute = self._library.vocab_get_attr
        tokens = (
            n for n in range(self._model.vocabulary) if not attribute(self._vocab, n) & _UNUSED
        )
        return vocabulary_fingerprint(
            _KINDS.get(kind, str(kind)), {self._text(number): number for number in tokens}
        )

    @cached_property
    def stops(self) -> tuple[int, ...]:
        """Return the ids of the tokens that end a text, a chat turn or a message."""
        is_end = self._library.vocab_is_eog
        return tuple(
            number for number in range(self._model.vocabulary) if is_end(self._vocab, number)
        )

    @override
    def encode(self, text: str) -> list[int]:
        return [int(each) for each in self._model.tokens(text, framed=False)]

    @override
    def decode(self, tokens: Sequence[int]) -> str:
        given = np.array(tokens, np.int32)
        size = 16 * len(tokens) + 16
        while True:
            text = ctypes.create_string_buffer(size)
            arguments = (self._vocab, given.ctypes.data, given.size, text, size)
            length = self._library.detokenize(*arguments, False, False)
            if length >= 0:
                return text.raw[:length].decode("utf-8", "replace")
            size = -length

    @override
    def chat(self, messages: Sequence[Mapping[str, str]]) -> str:
        if self._template is None:
            raise ModelError("the model's file has no chat template")
        try:
            return self._template.render(
                messages=messages,
                tools=None,
                documents=None,
                add_generation_prompt=True,
                enable_thinking=False,  # of Qwen3 and SmolLM3; other templates do not read it
                bos_token=self._bos,
                eos_token=self._eos,
            )
        except Exception as error:  # a template is a program of others
            why = " ".join(f"{error or type(error).__name__}".split())
            raise ModelError(f"the model's chat template refuses the messages: {why}") from error

    def _text(self, token: int) -> str:
        return str(self._library.vocab_get_text(self._vocab, token).decode("utf-8", "replace"))


class _Generation(Extension):
    """Parses the blocks that mark what an assistant generated. They matter for training only."""

    tags = {"generation"}  # noqa: RUF012 (an attribute of instances in jinja2)

    @override
    def parse(self, parser: Parser) -> Node:
        line = next(parser.stream).lineno
        return Scope(parser.parse_statements(("name:endgeneration",), True), lineno=line)


def _template(text: str) -> Template:
    """Parse a chat template as transformers does, with what templates expect to be there."""

    def refuse(message: str) -> NoReturn:
        raise TemplateError(message)

    room = ImmutableSandboxedEnvironment(
        trim_blocks=True, lstrip_blocks=True, extensions=[_Generation, loopcontrols]
    )
    room.filters["tojson"] = _dumped
    room.globals["raise_exception"] = refuse
    room.globals["strftime_now"] = lambda form: datetime.now().strftime(form)
    try:
        return room.from_string(text)
    except TemplateError as error:
        raise ModelError(f"the file's chat template cannot be parsed: {error}") from error


def _dumped(value: Any, ensure_ascii: bool = False, **how: Any) -> str:
    return json.dumps(value, ensure_ascii=ensure_ascii, **how)
