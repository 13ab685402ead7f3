"""The settings of a side. This module has no heavy imports."""

from collections.abc import Iterable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated, Literal

from msgspec import Meta

from dragonrt.backends.resources import usual_threads
from dragonrt.bundled import DEFAULT_MODEL
from dragonrt.errors import DragonError
from dragonrt.link.stream import is_loopback
from dragonrt.settings import LongText, PathText, Positive, Text, setting
from dragonrt.side import Precision, Side, TorchDevice

Search = Literal["hybrid", "dense", "words"]


@dataclass(frozen=True, slots=True)
class SideSettings:
    """The settings of a process that answers.

    `documents` are indexed into the directory `index`, or into the PostgreSQL database `store`.
    Without documents, an existing index or store is used; without all three, the side has none.
    """

    side: Side
    model: PathText = setting(
        DEFAULT_MODEL,
        "Language model: a name, GGUF file, directory, hub id or hf.co/OWNER/NAME:QUANT.",
        letter="m",
        daily=True,
    )
    on: TorchDevice = setting("auto", "Device for the model: auto, cpu, cuda or mps.", daily=True)
    engine: Text = setting(
        "auto",
        "Engine that runs the model: llama.cpp, transformers, vllm, or auto (llama.cpp for a file, "
        "transformers for a directory or hub id).",
    )
    engine_option: Annotated[tuple[LongText, ...], Meta(max_length=256)] = setting(
        (), "Argument of the engine, such as tensor_parallel_size=2. May be repeated."
    )
    dtype: Precision = setting(
        "auto", "Number type of weights, unless GGUF: auto, float32, bfloat16 or float16."
    )
    adapter: PathText | None = setting(
        None, "LoRA adapter: a directory or a GGUF file. Default: smollm2's own; none: no adapter."
    )
    threads: Positive | None = setting(
        None,
        "CPU threads of the model. Default: the number of cores, at most 8, or half of it if the "
        "cloud and its device run on this machine.",
    )
    llama_library: Path | None = setting(
        None, "llama.cpp's library (libllama), in place of an installed package's.", rare=True
    )
    prompt: Path | None = setting(None, "Prompt template, a TOML file. Default: the model's.")
    documents: Annotated[tuple[Path, ...], Meta(max_length=128)] = setting(
        (), "Directory or file to index. May be repeated.", letter="d", daily=True
    )
    exclude: Annotated[tuple[LongText, ...], Meta(max_length=128)] = setting(
        (), "Files to skip, as in .gitignore: *.log or drafts/. May be repeated."
    )
    largest_file: Text = setting("5MB", "Most bytes, or characters of text, of a file.", rare=True)
    index: Path | None = setting(
        None, "Directory of the index. Default: one for each set of documents."
    )
    store: PathText | None = setting(
        None, "URL of a PostgreSQL database for the index. Default: local files."
    )
    embedder: PathText = setting(
        "default", "Embedding model: default (bundled), a GGUF file, directory or hub id."
    )
    chunk_words: Positive = setting(128, "Words per chunk.", rare=True)
    search: Search = setting("hybrid", "Retrieval by dense embeddings, words, or hybrid (both).")
    kv_cache: Text | None = setting(
        None,
        "Disk space for stored KV, such as 20GB. Further KV is computed for each question. "
        "Default: 2GB, at most a tenth of the free disk.",
    )
    kv_memory: Text | None = setting(
        None,
        "Memory for the KV of all running answers, such as 4GB. Further clients wait. Default: a "
        "quarter of the machine's memory.",
    )
    trace: Path | None = setting(
        None, "File to write every event to, about 1 kB per token, for `dragonrt trace`."
    )
    watch: bool = setting(False, "Index changed documents while the side runs.")
    share_sources: bool = setting(True, "Send names and sentences of sources to devices (default).")
    rebuild: bool = setting(False, "Rebuild the index from all documents.")

    def __post_init__(self) -> None:
        if self.watch and not self.documents:
            raise DragonError("--watch needs documents: name them with --documents")

    def with_peers_at(self, hosts: Iterable[str]) -> "SideSettings":
        """Return a copy with half the CPU `threads` (if unset) if a peer's host is this machine."""
        if self.threads is not None or not any(map(is_loopback, hosts)):
            return self
        return replace(self, threads=usual_threads(sides=2))

    @property
    def has_documents(self) -> bool:
        return bool(self.documents or self.index or self.store)
