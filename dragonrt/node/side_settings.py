"""What a process answers with, as its user chooses it; nothing heavy is imported for it."""

from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from dragonrt.bundled import DEFAULT_MODEL
from dragonrt.errors import DragonError
from dragonrt.settings import setting
from dragonrt.side import KvType, Precision, Side, TorchDevice

Search = Literal["hybrid", "dense", "words"]
Parser = Literal["pdfium", "docling"]


@dataclass(frozen=True, slots=True)
class SideSettings:
    """What a process answers with.

    `documents` are indexed (only what changed costs anything), but for what `exclude` names and
    files above `largest_file`; without them `index` is opened as it is, or the `store`
    (postgresql://...) that has the index in its place. With none of them the side answers without
    documents. `watch` indexes what changes while the side runs. `share_sources` lets the cloud name
    the titles and files it used; `rebuild` makes the index anew.
    """

    side: Side
    model: str = setting(
        DEFAULT_MODEL,
        "Language model: name, GGUF file, directory or hub id.",
        limit=4096,
        letter="m",
        daily=True,
    )
    on: TorchDevice = setting("auto", "The model runs on auto, cpu, cuda or mps.", daily=True)
    dtype: Precision = setting(
        "auto", "Its numbers: auto, float32, bfloat16, float16, int8 or int4."
    )
    adapter: str | None = setting(
        None, "Directory of a LoRA of the model's; none: not even the bundled one.", limit=4096
    )
    threads: int | None = setting(
        None, "Threads of the model on a CPU; otherwise this side's share of the cores.", low=1
    )
    prompt: Path | None = setting(
        None, "The words around document and question: a TOML file (docs/pairs.md)."
    )
    documents: tuple[Path, ...] = setting(
        (), "Documents; at each start what changed is indexed.", letter="d", daily=True
    )
    exclude: tuple[str, ...] = setting(
        (), "Files or directories to leave out, as in .gitignore: *.log, drafts/; may be repeated."
    )
    largest_file: str = setting("5MB", "Files of more, or of more text, are named and skipped.")
    follow_links: bool = setting(
        False, "Also read files outside the documents that links point to."
    )
    index: Path | None = setting(
        None, "Where the index is; each directory of documents has its own."
    )
    store: str | None = setting(
        None, "PostgreSQL that has the index instead, for many machines.", limit=4096
    )
    embedder: str = setting("default", "Embedding model: default, directory or hub id.", limit=4096)
    reranker: str | None = setting(
        None, "Cross-encoder that ranks again: directory or hub id.", limit=4096
    )
    chunk_words: int = setting(128, "Words per chunk.", low=1)
    parser: Parser = setting(
        "pdfium", "What reads PDF: pdfium, or docling (layout, tables, scanned pages; slow)."
    )
    search: Search = setting(
        "hybrid", "How documents are chosen: by meaning (dense), by words, or both (hybrid)."
    )
    kv_cache: str = setting(
        "20GB", "Most disk for documents' KV; the rest is computed when a question needs it."
    )
    kv_type: KvType = setting(
        "model", "Stored KV is of the model's type (model), or rounded to 8 bits (int8): smaller."
    )
    kv_memory: str | None = setting(
        None,
        "Most memory for the KV of all answers under way, such as 4GB; otherwise a quarter of the "
        "machine's. Who asks beyond it is told that this side is busy.",
    )
    trace: Path | None = setting(
        None,
        "Write every event to this file, about 1 kB a token, more where --codec sends more; "
        "`dragonrt trace` and `simulate --replay` read it.",
    )
    watch: bool = setting(False, "Index documents again as they change, while the side answers.")
    share_sources: bool = setting(True, "Tell devices which files were used.")
    rebuild: bool = setting(False, "Make the index anew.")

    def __post_init__(self) -> None:
        if self.watch and not self.documents:
            raise DragonError("--watch needs to know what to watch: name it with --documents")

    @property
    def has_documents(self) -> bool:
        """Whether it has anything to answer from."""
        return bool(self.documents or self.index or self.store)
