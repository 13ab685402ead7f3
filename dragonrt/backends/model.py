"""A language model: a backend, its tokenizer and its prompt format. Load one by its name."""

import hashlib
from collections.abc import Sequence as Tokens
from functools import cached_property
from pathlib import Path

from dragonrt import bundled
from dragonrt.backends.agreement import Agreement
from dragonrt.backends.backend import Backend, Document, Preemption, RowLogits
from dragonrt.backends.llama_cpp.model_file import file_of
from dragonrt.backends.prompt import TRAINED, PromptFormat, PromptTemplate, prompt_format
from dragonrt.backends.row_set import RowSet
from dragonrt.backends.scheduler import Done, Request
from dragonrt.bundled import SMOLLM2, SMOLLM2_DRAFT
from dragonrt.errors import ModelError
from dragonrt.side import Precision, TorchDevice

AUTO = "auto"
ENGINES = (AUTO, "llama.cpp", "transformers", "vllm")
"""What runs models. Each is imported when a model is loaded by it."""
_EXTRAS = {
    "transformers": "pip install 'dragonrt[transformers]', or name a GGUF file",
    "vllm": "pip install 'dragonrt[vllm]'",
}
"""Commands that install engines whose libraries are not in every installation."""


class LanguageModel:
    """A decoder-only model with its tokenizer; `name` is the name that it was loaded by.

    `prompt` formats documents and questions. Other attributes are those of `ModelInfo`.
    """

    def __init__(self, name: str, backend: Backend, template: PromptTemplate | None = None) -> None:
        self.name = name
        self.backend = backend
        info = backend.info
        template = template or TRAINED.get(info.finetune)
        self.prompt: PromptFormat = prompt_format(backend.tokenizer, template)
        self.parameters, self.vocabulary = info.parameters, info.vocabulary
        self.context_length, self.stop_tokens = info.context_length, info.stop_tokens
        self.fingerprint = info.fingerprint
        self.tokenizer_fingerprint = info.tokenizer_fingerprint
        self.device, self.dtype = info.device, info.dtype
        self.exact_blocks = info.exact_blocks

    @classmethod
    def load(
        cls,
        name: str | Path,
        device: TorchDevice = "auto",
        dtype: Precision = "auto",
        threads: int | None = None,
        template: PromptTemplate | None = None,
        adapter: Path | None = None,
        library: Path | None = None,
        engine: str = AUTO,
        options: Tokens[str] = (),
    ) -> "LanguageModel":
        """Load a model: bundled ones and GGUF files by llama.cpp, others by transformers or vLLM.

        Args:
            name: a bundled model, a GGUF file or one of the hub (`file_of`), a directory, a hub id.
            device: for transformers; auto prefers CUDA, then MPS, then the CPU.
            dtype: for transformers and vLLM; auto is the checkpoint's, and on a CPU bfloat16 where
                that is fast, otherwise float32.
            threads: the number of CPU threads; by default `usual_threads()`.
            template: the prompt's words; by default those of the model's training, or general ones.
            adapter: the directory of a LoRA, or for a GGUF model also a GGUF file.
            library: the file of llama.cpp's library, if it is not that of an installed package.
            engine: one of ENGINES; auto chooses llama.cpp or transformers by the name.
            options: engine arguments as name=value; only vLLM has some.

        Raises ModelError if the model cannot be loaded, or an argument does not suit its engine.
        """
        name = str(name)
        if engine not in ENGINES:
            raise ModelError(f"unknown engine {engine!r}: choose one of {', '.join(ENGINES)}")
        path = file_of(name)
        engine = _usual_engine(name, path) if engine == AUTO else engine
        if options and engine != "vllm":
            raise ModelError(f"{engine} has no engine options: leave out --engine-option")
        backend: Backend
        try:
            if engine == "llama.cpp":
                from dragonrt.backends.llama_cpp.backend import load_model as load_file

                if not path.is_file():
                    raise ModelError(f"{name} is no GGUF file, which llama.cpp needs")
                if dtype != "auto":
                    raise ModelError(f"{name} has number types of its own: leave out --dtype")
                if device not in ("auto", "cpu"):
                    raise ModelError(f"llama.cpp's build decides where {name} runs: leave out --on")
                backend = load_file(path, threads, adapter, library)
            elif engine == "transformers":
                from dragonrt.backends.transformers_.checkpoint import load_model

                backend = load_model(_checkpoint(name, path), device, dtype, threads, adapter)
            else:
                from dragonrt.backends.vllm_.checkpoint import load_model as load_engine

                if device != "auto":
                    raise ModelError("vLLM's build decides where a model runs: leave out --on")
                if adapter is not None:
                    raise ModelError("vLLM reads weights as they are: merge the adapter into them")
                backend = load_engine(_checkpoint(name, path), dtype, threads, options)
        except ModuleNotFoundError as error:
            if engine not in _EXTRAS:
                raise
            raise ModelError(f"{name} needs {error.name}: {_EXTRAS[engine]}") from None
        return cls(name, backend, template)

    @property
    def document_fingerprint(self) -> str:
        """Return a key for stored KV. It changes with weights, number type, version and prompt."""
        words = hashlib.sha256(repr(self.prompt.template).encode()).hexdigest()[:16]
        return f"{self.fingerprint}:{self.dtype}:{self.backend.info.version}:{words}"

    @cached_property
    def agreement(self) -> Agreement:
        """Return this model's Agreement, which finds rows that disagree with a number or name."""
        return Agreement(self.decode, self.vocabulary)

    @property
    def refusal(self) -> int | None:
        """Return the id of the first token of the model's refusal to answer; None if not known."""
        refusal = self.prompt.template.refusal
        return self.encode(refusal)[0] if refusal else None

    @property
    def answer_stops(self) -> tuple[int, ...]:
        """Return the ids of tokens that end an answer: the model's stop tokens and the prompt's."""
        return self.with_stops(self.prompt.template.stops)

    def with_stops(self, strings: Tokens[str]) -> tuple[int, ...]:
        single = [self.encode(string) for string in strings]
        return (*self.stop_tokens, *(tokens[0] for tokens in single if len(tokens) == 1))

    def encode(self, text: str) -> list[int]:
        return self.backend.tokenizer.encode(text)

    def decode(self, tokens: Tokens[int]) -> str:
        return self.backend.tokenizer.decode(tokens)

    def document_kv(self, tokens: Tokens[int]) -> Document:
        """Read a document's tokens now, outside of a scheduler; return their KV as a Document."""
        if not tokens:
            return self.backend.empty()
        rows = self.rows([self.backend.empty()], len(tokens))
        rows.extend(tokens, prompt=True, hidden=False)
        return rows.kv.document(0, rows.length)

    def prefill(self, tokens: Tokens[int], done: Done[Document], preemption: Preemption) -> Request:
        """Return a Request to read a document's `tokens`; `done` gets the Document or an error."""
        length = len(tokens)
        rows, known = self.rows([self.backend.empty()], length), self.backend.token_document(tokens)
        if known is not None:  # what it needs is computed with the first question behind it
            return Request(rows, (), lambda _: done(known), preemption)

        def read(logits: list[RowLogits] | Exception) -> None:
            done(logits if isinstance(logits, Exception) else rows.kv.document(0, length))

        piece = rows.info.prompt_piece
        return Request(rows, tokens, read, preemption, prompt=length, piece=piece, every=length)

    def rows(self, documents: Tokens[Document], capacity: int = 256) -> RowSet:
        """Open a RowSet: one row per document, with room for `capacity` shared tokens at first."""
        return RowSet(self.backend, documents, capacity)


def _usual_engine(name: str, path: Path) -> str:
    """Return the engine for a name: files are llama.cpp's, checkpoints transformers'."""
    if path.is_file():
        return "llama.cpp"
    if path.suffix == ".gguf" and not path.is_dir():
        raise ModelError(f"there is no file {path}")
    if path.is_dir() or name.count("/") == 1:
        return "transformers"
    raise ModelError(
        f"{name} is neither a bundled model ({', '.join(bundled.models())}), nor {SMOLLM2} "
        f"or {SMOLLM2_DRAFT}, nor a directory, nor a GGUF file, nor on the hub, which is "
        "written owner/name, or hf.co/owner/name:Q4_K_M for a GGUF file"
    )


def _checkpoint(name: str, path: Path) -> str:
    """Return the directory or hub id. Raises ModelError for what is neither."""
    if path.is_dir():
        return str(path)
    if path.is_file() or name.count("/") != 1:
        raise ModelError(f"{name} is neither a directory nor a hub id, as owner/name")
    return name
