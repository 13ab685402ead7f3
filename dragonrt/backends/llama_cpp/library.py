"""Call llama.cpp by ctypes: the compiled library of an installed package, and its models.

`load_library` finds the library, a Library has its functions, and a LlamaModel is a loaded file.
Releases change the C structures, so only a context's first four options, which stay, are set.
"""

import ctypes
import os
import sys
import weakref
from ctypes import (
    POINTER,
    c_bool,
    c_char_p,
    c_float,
    c_int32,
    c_int64,
    c_size_t,
    c_uint8,
    c_uint32,
    c_uint64,
    c_void_p,
)
from functools import cache
from importlib.metadata import PackageNotFoundError, version
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dragonrt.errors import ModelError

TRIED = "xllamacpp 2026.10.11549 and llama-cpp-python 0.3.36"
"""The versions that the tests run with."""

LIBC = ctypes.CDLL("msvcrt" if sys.platform == "win32" else None)
_trim = getattr(LIBC, "malloc_trim", lambda _: 0)
"""Gives the system what is freed: glibc keeps it, though a context of another size needs more."""
_PACKAGES = {"llama-cpp-python": "llama_cpp", "xllamacpp": "xllamacpp"}
"""Distributions and their modules; the first is compiled for the machine that installs it."""
_FILES = ("lib/libllama.so", "lib/libllama.dylib", "lib/llama.dll", "xllamacpp*.so", "*.pyd")
_DEFAULTS = (512, 2048, 512, 1)  # of the first four words of a context's options


class Options(ctypes.Structure):
    """The C options to load a model or make a context. Those in `rest` keep their defaults."""

    _fields_ = (
        ("n_ctx", c_uint32),
        ("n_batch", c_uint32),
        ("n_ubatch", c_uint32),
        ("n_seq_max", c_uint32),
        ("rest", c_uint8 * 240),
    )


class Batch(ctypes.Structure):
    """The C structure of a forward's tokens: pointers to their ids, positions, sequences, flags."""

    _fields_ = (
        ("n_tokens", c_int32),
        ("token", c_void_p),
        ("embd", c_void_p),
        ("pos", c_void_p),
        ("n_seq_id", c_void_p),
        ("seq_id", c_void_p),
        ("logits", c_void_p),
    )


_FLOATS = POINTER(c_float)
_FUNCTIONS: dict[str, tuple[Any, tuple[Any, ...]]] = {
    "llama_log_set": (None, (c_void_p, c_void_p)),
    "llama_backend_init": (None, ()),
    "llama_print_system_info": (c_char_p, ()),
    "llama_supports_gpu_offload": (c_bool, ()),
    "llama_model_default_params": (Options, ()),
    "llama_context_default_params": (Options, ()),
    "llama_model_load_from_file": (c_void_p, (c_char_p, Options)),
    "llama_model_free": (None, (c_void_p,)),
    "llama_model_get_vocab": (c_void_p, (c_void_p,)),
    "llama_model_n_embd": (c_int32, (c_void_p,)),
    "llama_model_n_ctx_train": (c_int32, (c_void_p,)),
    "llama_model_rope_type": (c_int32, (c_void_p,)),
    "llama_model_n_params": (c_uint64, (c_void_p,)),
    "llama_model_desc": (c_int32, (c_void_p, c_char_p, c_size_t)),
    "llama_model_meta_val_str": (c_int32, (c_void_p, c_char_p, c_char_p, c_size_t)),
    "llama_model_has_encoder": (c_bool, (c_void_p,)),
    "llama_model_is_recurrent": (c_bool, (c_void_p,)),
    "llama_model_is_hybrid": (c_bool, (c_void_p,)),
    "llama_vocab_n_tokens": (c_int32, (c_void_p,)),
    "llama_vocab_type": (c_int32, (c_void_p,)),
    "llama_vocab_bos": (c_int32, (c_void_p,)),
    "llama_vocab_get_add_bos": (c_bool, (c_void_p,)),
    "llama_vocab_get_text": (c_char_p, (c_void_p, c_int32)),
    "llama_vocab_get_attr": (c_int32, (c_void_p, c_int32)),
    "llama_vocab_is_eog": (c_bool, (c_void_p, c_int32)),
    "llama_tokenize": (c_int32, (c_void_p, c_char_p, c_int32, c_void_p, c_int32, c_bool, c_bool)),
    "llama_detokenize": (c_int32, (c_void_p, c_void_p, c_int32, c_char_p, c_int32, c_bool, c_bool)),
    "llama_init_from_model": (c_void_p, (c_void_p, Options)),
    "llama_free": (None, (c_void_p,)),
    "llama_set_n_threads": (None, (c_void_p, c_int32, c_int32)),
    "llama_set_embeddings": (None, (c_void_p, c_bool)),
    "llama_set_abort_callback": (None, (c_void_p, c_void_p, c_void_p)),
    "llama_decode": (c_int32, (c_void_p, Batch)),
    "llama_get_logits": (_FLOATS, (c_void_p,)),
    "llama_get_embeddings": (_FLOATS, (c_void_p,)),
    "llama_get_embeddings_seq": (_FLOATS, (c_void_p, c_int32)),
    "llama_pooling_type": (c_int32, (c_void_p,)),
    "llama_get_memory": (c_void_p, (c_void_p,)),
    "llama_memory_clear": (None, (c_void_p, c_bool)),
    "llama_memory_seq_rm": (c_bool, (c_void_p, c_int32, c_int32, c_int32)),
    "llama_memory_seq_add": (None, (c_void_p, c_int32, c_int32, c_int32, c_int32)),
    "llama_state_seq_get_size": (c_size_t, (c_void_p, c_int32)),
    "llama_state_seq_get_data": (c_size_t, (c_void_p, c_void_p, c_size_t, c_int32)),
    "llama_state_seq_set_data": (c_size_t, (c_void_p, c_void_p, c_size_t, c_int32)),
    "llama_adapter_lora_init": (c_void_p, (c_void_p, c_char_p)),
    "llama_set_adapters_lora": (c_int32, (c_void_p, POINTER(c_void_p), c_size_t, _FLOATS)),
    "ggml_quantize_chunk": (
        c_size_t,
        (c_int32, c_void_p, c_void_p, c_int64, c_int64, c_int64, c_void_p),
    ),
}
_quiet = ctypes.CFUNCTYPE(None, c_int32, c_char_p, c_void_p)(lambda *_: None)


class Library:
    """The C functions of llama.cpp as methods, without the prefix `llama_`; `ggml_` stays.

    Attributes:
        path: the library's file.
        name: the package that has the library, with its version; without one, the file's path.
    """

    def __init__(self, path: Path, name: str) -> None:
        """Load the library. Raises ModelError if it is none, or of an unknown version."""
        self.path, self.name = path, name
        # By default threads that wait for each other spin: on busy cores a forward then takes three
        # times as long, and as long again on quiet ones if they never spin. The runtime of OpenMP
        # reads it when it is loaded.
        os.environ.setdefault("GOMP_SPINCOUNT", "1000")
        try:
            self._library = ctypes.CDLL(os.fspath(path))
            for function, (result, arguments) in _FUNCTIONS.items():
                found = getattr(self._library, function)
                found.restype, found.argtypes = result, arguments
                setattr(self, function.removeprefix("llama_"), found)
        except (OSError, AttributeError) as error:
            raise ModelError(
                f"{path} cannot be used as llama.cpp ({error}): install one of {TRIED}"
            ) from None
        self.log_set(ctypes.cast(_quiet, c_void_p), None)
        self.backend_init()
        options = self.context_default_params()
        found = (options.n_ctx, options.n_batch, options.n_ubatch, options.n_seq_max)
        if found != _DEFAULTS:
            raise ModelError(f"{name} has other options than are known: install one of {TRIED}")

    def __getattr__(self, name: str) -> Any:
        raise AttributeError(f"llama.cpp has no function {name} here")

    @property
    def instructions(self) -> str:
        """Return the instruction sets and accelerators of this build, separated by spaces."""
        found = str(self.print_system_info().decode())
        return " ".join(part.split()[-3] for part in found.split("|") if part.endswith("= 1 "))


class LlamaModel:
    """The weights and metadata of a GGUF file, freed when nothing refers to this object.

    Attributes:
        pointer: llama.cpp's pointer to the model.
        vocab: llama.cpp's pointer to its vocabulary.
        has_planes: whether positions have several numbers (M-RoPE, of models that see pictures).
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
        rope: int = library.model_rope_type(self.pointer)
        self.has_planes = rope > 0 and rope & 8 != 0  # LLAMA_ROPE_TYPE_MROPE, and those like it

    def check_decoder(self) -> None:
        """Raise ModelError if this is no decoder, or has a recurrent state and cannot roll back."""
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
        """Return the number type of most weights, as llama.cpp names it, such as Q8_0."""
        text = ctypes.create_string_buffer(256)
        self.library.model_desc(self.pointer, text, len(text))
        *_, form = text.value.decode().split(" ", 2)
        return form.split(" ")[0]

    def metadata(self, key: str) -> str:
        """Return the value of a metadata key of the file as text; empty if there is none."""
        size = self.library.model_meta_val_str(self.pointer, key.encode(), None, 0)
        if size < 0:
            return ""
        text = ctypes.create_string_buffer(size + 1)
        self.library.model_meta_val_str(self.pointer, key.encode(), text, size + 1)
        return text.value.decode("utf-8", "replace")

    def tokens(self, text: str, *, framed: bool) -> NDArray[np.int32]:
        """Return the token ids of a text, int32 [tokens].

        If `framed`, the model's begin and end tokens are added, and names of special tokens in the
        text are plain text. Otherwise these names become the special tokens.
        """
        data = text.encode("utf-8", "replace")
        found = np.empty(len(data) + 8, np.int32)
        given = (self.vocab, data, len(data), found.ctypes.data, found.size)
        count = self.library.tokenize(*given, framed, not framed)
        if count < 0:
            raise ModelError(f"llama.cpp cannot split a text of {len(data)} bytes into tokens")
        return found[:count]

    def load_adapter(self, path: Path) -> int:
        """Load a LoRA's file; return llama.cpp's pointer to it. ModelError if of another model."""
        found: int = self.library.adapter_lora_init(self.pointer, os.fsencode(path))
        if not found:
            raise ModelError(f"{path} is no adapter of {self.path}, or is damaged")
        return found

    def free(self, context: int) -> None:
        """Free a context of this model; `context` is llama.cpp's pointer to it.

        A Context registers this method as its finalizer, which also keeps the model until then.
        """
        self.library.free(context)
        _trim(0)


@cache
def load_library(path: Path | None = None) -> Library:
    """Load llama.cpp from the file `path`, else from llama-cpp-python, else from xllamacpp.

    Raises ModelError if none is installed, or the file is no llama.cpp.
    """
    if path is not None:
        place = path.expanduser()
        about = place.stat() if place.is_file() else None
        # It may be built again in place, with other bits.
        made = "" if about is None else f" of {about.st_size} bytes, {about.st_mtime_ns}"
        return Library(place, f"{path}{made}")
    for distribution, module in _PACKAGES.items():
        if (file := installed(module)) is not None:
            return Library(file, _titled(distribution))
    raise ModelError(
        "no llama.cpp is installed, which runs GGUF files: pip install xllamacpp; without a wheel "
        f"for this {sys.platform}, pip install llama-cpp-python"
    )


def installed(module: str) -> Path | None:
    """Return the llama.cpp library file of the Python package `module`; None if it has none."""
    spec = find_spec(module)
    for folder in (spec.submodule_search_locations or ()) if spec else ():
        for pattern in _FILES:
            if found := sorted(Path(folder).glob(pattern)):
                return found[0]
    return None


def _titled(distribution: str) -> str:
    try:
        return f"{distribution} {version(distribution)}"
    except PackageNotFoundError:
        return distribution
