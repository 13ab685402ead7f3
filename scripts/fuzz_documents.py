"""Fuzz targets of documents: their names, kinds, sizes and contents; see `fuzz_targets`."""

import hashlib
import io
import json
import os
import re
import tempfile
import zipfile
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Final

import numpy as np

from retrieval import DocumentError, Embedder, Index
from retrieval.chunking import pieces
from retrieval.documents import SUFFIXES, parse
from retrieval.files import escaped
from retrieval.ingestion import excluded

FILES: Final = Path(__file__).parent.parent / "tests" / "retrieval" / "documents"
PACKED: Final = (
    "book.epub numbered.odt chart_python_docx.docx kiln_python_pptx.pptx comments_openpyxl.xlsx"
)
DRAWN: Final = re.compile(r"EPUB/a\.html|content\.xml|.*/(document|slide1|sheet1)\.xml")
"""What is drawn of an archive; other bytes of it would end at a wrong checksum."""
WORDS: Final = (1, 16, 64)
DIMENSION: Final = 16


def documents(data: bytes) -> None:
    """A file of any kind and content: what is in it is cut whole, or a DocumentError."""
    if len(data) < 2:
        return
    suffix, words = SUFFIXES[data[0] % len(SUFFIXES)], WORDS[data[1] % len(WORDS)]
    content = data[2:]
    if data[1] >= 128 and (packed := re.search(rf"\S+\{suffix}", PACKED)):
        whole = zipfile.ZipFile(FILES / packed[0])
        with zipfile.ZipFile(out := io.BytesIO(), "w") as archive:
            for name in whole.namelist():
                archive.writestr(name, content if DRAWN.fullmatch(name) else whole.read(name))
        content = out.getvalue()
    try:
        document = parse(content, suffix)
    except DocumentError:
        return
    text, end = document.text, 0
    found = [*pieces(document, words)]
    for piece, title, start, last, _ in found:
        assert piece == text[start:last]
        assert not text[end:start].strip()
        assert "\n" not in title
        end = last
    assert not text[end:].strip()
    json.dumps(found)


def file_names(data: bytes) -> None:
    """The name of a file: shown in printable characters, and no two alike; patterns of names."""
    raw, _, pattern = data.replace(b"/", b"").partition(b"\0")
    name = os.fsdecode(raw)
    text = escaped(name)
    assert text.isprintable()

    def meant(found: re.Match[str]) -> str:
        if found[1]:
            return chr(0xDC00 + int(found[1], 16))
        number = found[2] or found[3]
        return chr(int(number, 16)) if number else "\\"

    code = r"\\(?:x([0-9a-f]{2})|u([0-9a-f]{4})|U([0-9a-f]{8})|\\)"
    assert re.sub(code, meant, text) == name
    excluded([os.fsdecode(pattern)])(name)


def indexes(data: bytes) -> None:
    """Files come, change and go: what is listed is found, and what has gone is not."""
    files = [each.partition(b"\0") for each in data.split(b"\xff\0")][:4]
    with tempfile.TemporaryDirectory() as folder:
        where, below = Path(folder) / "index", Path(folder) / "documents"
        below.mkdir()
        made = [path for name, _, content in files if (path := _made(below, name, content))]
        _update(where, below)
        for path in made[::2]:
            with suppress(FileNotFoundError):
                path.unlink()
        for path in made[1::2]:
            if path.is_file() and not path.is_symlink():
                path.write_bytes(path.read_bytes()[::-1] + b" again")
        _update(where, below)


def _made(folder: Path, name: bytes, content: bytes) -> Path | None:
    """A file, pipe or link, as the first byte of its content says."""
    suffix = SUFFIXES[content[0] % 8] if content else ".txt"
    path = folder / os.fsdecode(name.replace(b"/", b"")[:100] + suffix.encode())
    try:
        if content[:1] == b"p":
            os.mkfifo(path)
        elif content[:1] == b"l":
            path.symlink_to(os.fsdecode(content[1:60].replace(b"\0", b"") or b"."))
        elif not path.exists():
            path.write_bytes(content[1:] * (1 + len(content) % 32))
    except OSError:  # its name is too long, or taken
        return None
    return path


def _update(where: Path, below: Path) -> None:
    report = Index.update(where, below, EMBEDDER, words=16, largest=20_000)
    index = Index.open(where)
    listed = index.files()
    found = [path for path in below.iterdir() if path.is_file() and path.stat().st_size]
    assert listed.keys() <= {escaped(path.name) for path in found}
    known = {*listed, *(name for name, _ in report.skipped), *report.ignored}
    assert {escaped(p.name) for p in below.iterdir() if not p.name.startswith(".")} <= known
    chunks = list(index.chunks())
    assert len(chunks) == report.chunks
    assert {each.source for each in chunks} <= set(listed)
    for each in chunks[:8]:
        hits = index.search(EMBEDDER.encode([each.text])[0], len(chunks))
        assert each.digest in {hit.chunk.digest for hit in hits}


def _vectors(texts: Sequence[str]) -> "np.ndarray[tuple[int, int], np.dtype[np.float32]]":
    digests = [hashlib.sha256(text.encode("utf-8", "surrogatepass")).digest() for text in texts]
    rows = [np.frombuffer(digest[:DIMENSION], np.uint8) for digest in digests]
    return np.array(rows, np.float32).reshape(len(texts), DIMENSION) + 1


EMBEDDER: Final = Embedder("fuzz", "fuzz", _vectors, _vectors)
