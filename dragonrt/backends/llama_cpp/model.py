"""A model in a GGUF file, loaded by llama.cpp."""

import ctypes
import os
import weakref
from pathlib import Path

from dragonrt.backends.llama_cpp.library import Library
from dragonrt.errors import ModelError


class LlamaModel:
    """The weights and metadata of a file, freed when nothing refers to them.

    Attributes:
        pointer: of llama.cpp.
        vocab: llama.cpp's pointer to its vocabulary.
    """

    def __init__(self, library: Library, path: Path) -> None:
        """Load a file. Raises ModelError if llama.cpp cannot."""
        self.library, self.path = library, path
        self.pointer: int = library.model_load_from_file(
            os.fsencode(path), library.model_default_params()
        )
        if not self.pointer:
            raise ModelError(
                f"{path} cannot be loaded by {library.name}: it is damaged, no GGUF file, or of an "
                "architecture that this version does not know"
            )
        weakref.finalize(self, library.model_free, self.pointer).atexit = False
        self.vocab: int = library.model_get_vocab(self.pointer)
        self.vocabulary: int = library.vocab_n_tokens(self.vocab)
        self.hidden_size: int = library.model_n_embd(self.pointer)
        # Cells outside of a window are not saved, so a row that came from a state and is rolled
        # back would lack some: such a model reads no more than its window.
        window = self.metadata(f"{self.metadata('general.architecture')}.attention.sliding_window")
        self.has_windows = bool(int(window or 0))
        longest: int = library.model_n_ctx_train(self.pointer)
        self.context_length = min(longest, int(window)) if self.has_windows else longest
        self.parameters: int = library.model_n_params(self.pointer)

    def check_decoder(self) -> None:
        """Raise ModelError unless it is a decoder whose sequences can be cut."""
        kind = self.metadata("general.architecture")
        is_causal = self.metadata(f"{kind}.attention.causal") != "false"
        if self.library.model_has_encoder(self.pointer) or not is_causal:
            raise ModelError(f"{self.path} has an encoder; a decoder-only language model is needed")
        for kind in ("recurrent", "hybrid"):
            if getattr(self.library, f"model_is_{kind}")(self.pointer):
                raise ModelError(
                    f"{self.path} keeps a recurrent state, which cannot be cut back to an earlier "
                    "token: use a model with attention only"
                )

    @property
    def dtype(self) -> str:
        """Return the type of most weights, as llama.cpp names it."""
        text = ctypes.create_string_buffer(256)
        self.library.model_desc(self.pointer, text, len(text))
        *_, form = text.value.decode().split(" ", 2)
        return form.split(" ")[0]

    def metadata(self, key: str) -> str:
        """Return a value of the file as text; empty if there is none."""
        size = self.library.model_meta_val_str(self.pointer, key.encode(), None, 0)
        if size < 0:
            return ""
        text = ctypes.create_string_buffer(size + 1)
        self.library.model_meta_val_str(self.pointer, key.encode(), text, size + 1)
        return text.value.decode("utf-8", "replace")

    def load_adapter(self, path: Path) -> int:
        """Return llama.cpp's pointer to a LoRA. Raises ModelError if it is no adapter of it."""
        found: int = self.library.adapter_lora_init(self.pointer, os.fsencode(path))
        if not found:
            raise ModelError(f"{path} is no adapter of {self.path}, or is damaged")
        return found
