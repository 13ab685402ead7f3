"""A language model: weights, tokenizer, prompt format, and sequences to decode with."""

import hashlib
from collections.abc import Sequence as Tokens
from pathlib import Path
from typing import Any

import torch

from dragonrt.backends.batch import Reading
from dragonrt.backends.decoder import Decoder
from dragonrt.backends.kv_pool import KvPool
from dragonrt.backends.preemption import Preemption
from dragonrt.backends.prompt import Prompt, PromptFormat, PromptTemplate, prompt_format
from dragonrt.backends.sequence import Extension, Sequence, document_kv
from dragonrt.backends.threads import usual_threads
from dragonrt.backends.torch_ import fingerprint
from dragonrt.backends.torch_.architectures import transformer
from dragonrt.backends.torch_.checkpoint import Checkpoint, load_checkpoint
from dragonrt.backends.torch_.document import DocumentKV
from dragonrt.backends.torch_.process import loading
from dragonrt.backends.torch_.weights import Format, LayerFactory, floats
from dragonrt.backends.transformers_.backend import HubDecoder
from dragonrt.errors import ModelError
from dragonrt.side import Backend, Precision


class LanguageModel:
    """A decoder-only model and its tokenizer.

    Attributes:
        name: what it was loaded by.
        parameters: how many weights it has.
        fingerprint: differs whenever checkpoint or adapter do, whatever dtype it runs in.
        tokenizer_fingerprint: differs whenever token ids mean something else. Two sides can
            aggregate if and only if theirs are equal.
        stop_tokens: tokens behind which no text goes on.
        prompt: how documents and questions are written for this model.
    """

    def __init__(
        self, name: str, checkpoint: Checkpoint, template: PromptTemplate | None = None
    ) -> None:
        model, tokenizer = checkpoint.model, checkpoint.tokenizer
        self.name = name
        self.parameters = checkpoint.parameters or int(model.num_parameters())
        self.fingerprint = checkpoint.fingerprint
        self.tokenizer_fingerprint = fingerprint.of_tokenizer(tokenizer)
        self.stop_tokens = _stop_tokens(model)
        self.prompt: PromptFormat = prompt_format(tokenizer, template)
        self._tokenizer = tokenizer
        self._form = checkpoint.form or floats(model.dtype)
        self._decoder = _decoder(checkpoint, self._form)

    @classmethod
    def load(
        cls,
        name: str | Path,
        on: Backend = "auto",
        dtype: Precision = "auto",
        threads: int | None = None,
        template: PromptTemplate | None = None,
        adapter: Path | None = None,
    ) -> "LanguageModel":
        """Load a bundled model, a directory, a GGUF file, `smollm2`, or a model of the hub.

        `on` auto prefers CUDA, then MPS, then the CPU. `dtype` auto is the checkpoint's; on a
        CPU it is bfloat16 for more than small models where that is fast, otherwise float32; of a
        GGUF file with weights of 4 bits it is the file's own types. int8 and int4 round the
        weights. `threads` is how many threads torch uses in this whole process, by default a
        side's share of the cores; no bit depends on it where blocks are exact. `template` replaces
        the words around documents and questions. `adapter` is the directory of a LoRA.

        Raises:
            ModelError: see `load_checkpoint`; also if the model keeps a recurrent state.
        """
        torch.set_num_threads(usual_threads() if threads is None else threads)
        with loading():
            return cls(str(name), load_checkpoint(name, on, dtype, adapter), template)

    @property
    def vocabulary(self) -> int:
        """The size of a distribution; it may exceed the number of tokens in the tokenizer."""
        return self._decoder.geometry.vocabulary

    @property
    def hidden_size(self) -> int:
        """How many numbers the output layer reads of each token."""
        return self._decoder.geometry.hidden_size

    @property
    def context_length(self) -> int:
        """How many tokens a document and everything after it may have together."""
        return self._decoder.geometry.context_length

    @property
    def on(self) -> str:
        """Where it runs: cpu, cuda or mps."""
        return self._decoder.geometry.device.type

    @property
    def dtype(self) -> str:
        """How its weights are held: float32, bfloat16, float16, int8, int4, or mixed (a file's)."""
        return self._form.name

    @property
    def document_fingerprint(self) -> str:
        """What stored document KV depends on: checkpoint, precision, forward and prompt."""
        words = hashlib.sha256(repr(self.prompt.template).encode()).hexdigest()[:16]
        return f"{self.fingerprint}:{self.dtype}:{self._decoder.version}:{words}"

    @property
    def exact_blocks(self) -> bool:
        """Whether a block of tokens gives the very bits of the same tokens one by one.

        And whether a forward over several sequences gives each the bits it gets alone. So it is
        with a hand-written forward on a CPU, in float32 and where it is fast in bfloat16.
        """
        return self._decoder.exact_blocks

    @property
    def refusal(self) -> int | None:
        """The token that begins what the model says if it knows no answer, where that is known."""
        refusal = self.prompt.template.refusal
        return self.encode(refusal)[0] if refusal else None

    @property
    def answer_stops(self) -> tuple[int, ...]:
        """Tokens that end an answer: the stop tokens, and what the prompt's form ends it with."""
        return self.with_stops(self.prompt.template.stops)

    def with_stops(self, strings: Tokens[str]) -> tuple[int, ...]:
        """The stop tokens, and each of the strings that is a single token."""
        single = [self.encode(string) for string in strings]
        return (*self.stop_tokens, *(tokens[0] for tokens in single if len(tokens) == 1))

    def asked(self, text: str) -> Prompt:
        """The prompt of an answer."""
        return Prompt("answers", tuple(self.encode(text)), self.answer_stops)

    def begun(self, text: str) -> Prompt:
        """The prompt of prose."""
        return Prompt("prose", tuple(self.encode(text)))

    def encode(self, text: str) -> list[int]:
        """The tokens of a text, none added."""
        tokens: list[int] = self._tokenizer.encode(text, add_special_tokens=False)
        return tokens

    def decode(self, tokens: Tokens[int]) -> str:
        """The text of tokens, special ones left out."""
        text: str = self._tokenizer.decode(
            list(tokens), skip_special_tokens=True, clean_up_tokenization_spaces=False
        )
        return text

    def document_kv(self, tokens: Tokens[int]) -> DocumentKV:
        """Prefill one document, which may be empty.

        Raises:
            ModelError: an unknown token, or more tokens than the context holds.
        """
        return document_kv(self._decoder, tokens)

    def reading_document(self, tokens: Tokens[int], preemption: Preemption) -> Reading[DocumentKV]:
        """Like `document_kv`, in forwards that may be shared; Preempted is raised if requested."""
        if not tokens:
            return self.document_kv(())
        rows = self.sequence([self.document_kv(())], len(tokens))
        yield Extension(rows, tokens, False, preemption, prompt=True)
        return rows.shared_kv(0)

    def sequence(
        self, documents: Tokens[DocumentKV], capacity: int = 256, pool: KvPool | None = None
    ) -> Sequence:
        """A row per document, with room for `capacity` shared tokens (it grows as needed).

        See `Sequence` for what is raised.
        """
        return Sequence(self._decoder, documents, capacity, pool)


def _decoder(checkpoint: Checkpoint, form: Format) -> Decoder[Any]:
    model, adapter = checkpoint.model, checkpoint.adapter
    decoder = transformer(model, LayerFactory(model, checkpoint.source, form, adapter))
    if decoder is not None:
        return decoder
    kind = model.config.model_type
    if form.name in ("int8", "int4"):
        raise ModelError(
            f"{kind} runs by transformers' forward, which {form.name} is not made for: "
            "use bfloat16 or auto"
        )
    if checkpoint.source is not None:
        raise ModelError(f"this {kind} model runs from a checkpoint only, not from a GGUF file")
    if adapter is not None:
        adapter.merge(model)
    return HubDecoder(model)


def _stop_tokens(model: Any) -> tuple[int, ...]:
    ids = model.generation_config.eos_token_id
    if ids is None:
        ids = model.config.eos_token_id
    if ids is None:
        return ()
    return tuple(ids) if isinstance(ids, list) else (int(ids),)
