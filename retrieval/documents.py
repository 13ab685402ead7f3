"""Reading a file as a document: plain text and a title, whatever its format.

Both depend on the file's content alone, never on its name, so that a renamed file is still the
same document. The title is the format's own (HTML title, PDF and Word properties, front matter),
else the first heading, else the first line.
"""

import re
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from markdown_it import MarkdownIt

from .errors import DocumentError
from .html import html_text

_TITLE_LENGTH = 80


@dataclass(frozen=True, slots=True)
class Document:
    """A file's text, with "\\n" between lines, and its title (empty only if the text is)."""

    text: str
    title: str


def load(path: Path) -> Document:
    """Read a file of one of the `SUFFIXES`.

    Raises:
        DocumentError: the file is unreadable, damaged, empty, of another kind, or needs a library
            that is not installed; the message is a reason, without the file's name.
    """
    loader = _LOADERS.get(path.suffix.lower())
    if loader is None:
        raise DocumentError(
            f"unknown type {path.suffix or '(none)'}, known are {' '.join(SUFFIXES)}"
        )
    try:
        text, title = loader(path)
    except OSError as error:
        raise DocumentError(f"cannot be read: {error.strerror or error}") from error
    text = text.replace("\r\n", "\n").replace("\r", "\n").replace("\0", "").strip()
    if not text:
        raise DocumentError("holds no text (scanned pages need OCR first)")
    return Document(text, _one_line(title) or _one_line(text.split("\n", 1)[0]))


def _load_text(path: Path) -> tuple[str, str]:
    return _decoded(path.read_bytes()), ""


def _load_html(path: Path) -> tuple[str, str]:
    data = path.read_bytes()
    declared = re.search(rb"<meta[^>]+charset=[\"']?([\w-]+)", data[:2048], re.IGNORECASE)
    return html_text(_decoded(data, declared[1].decode("ascii") if declared else None))


def _decoded(data: bytes, declared: str | None = None) -> str:
    if data.startswith((b"\xff\xfe", b"\xfe\xff")):
        encodings = ["utf-16"]
    elif b"\0" in data:
        raise DocumentError("is not text")
    else:
        encodings = ["utf-8-sig", *([declared] if declared else []), "cp1252"]
    for encoding in encodings:
        try:
            return data.decode(encoding)
        except (UnicodeDecodeError, LookupError):
            continue
    raise DocumentError("is not text in a known encoding")


_FRONT_MATTER = re.compile(r"\A---\n(.*?)\n---(?:\n|\Z)", re.DOTALL)
_FRONT_TITLE = re.compile(r"^title:\s*(.+?)\s*$", re.MULTILINE)
# The breaks of lines are the author's: addresses and times stand in lines of their own.
_MARKDOWN = MarkdownIt("commonmark", {"breaks": True}).enable("table")


def _load_markdown(path: Path) -> tuple[str, str]:
    source = _decoded(path.read_bytes()).replace("\r\n", "\n")
    named = ""
    if front := _FRONT_MATTER.match(source):
        source = source[front.end() :]
        if found := _FRONT_TITLE.search(front[1]):
            named = found[1].strip("\"'")
    text, heading = html_text(_MARKDOWN.render(source))
    return text, named or heading


def _load_pdf(path: Path) -> tuple[str, str]:
    try:
        import pypdfium2
    except ImportError as error:
        raise _missing_extra("PDF") from error
    try:
        with pypdfium2.PdfDocument(path) as pdf:
            pages = []
            for index in range(len(pdf)):
                page = pdf[index]
                pages.append(page.get_textpage().get_text_range())
                page.close()
            title = str(pdf.get_metadata_dict().get("Title", ""))
    except (pypdfium2.PdfiumError, ValueError) as error:
        raise DocumentError(f"is not a readable PDF: {_one_line(str(error))}") from error
    # PDFium marks a hyphen that only divides a word at a line's end.
    return re.sub("[\x02\ufffe](?:\r?\n)?", "", "\n\n".join(pages)), title


def _load_docx(path: Path) -> tuple[str, str]:
    try:
        import docx
        from docx.table import Table
    except ImportError as error:
        raise _missing_extra("Word") from error
    try:
        document = docx.Document(str(path))
        blocks = []
        heading = ""
        for block in document.iter_inner_content():
            if isinstance(block, Table):
                rows = [[cell.text for cell in row.cells] for row in block.rows]
                blocks.append("\n".join("\t".join(cells) for cells in rows))
            else:
                blocks.append(block.text)
                style = block.style.name if block.style else None
                if not heading and style and style.startswith(("Heading", "Title")):
                    heading = block.text
        title = document.core_properties.title
    except OSError:
        raise
    except Exception as error:  # a damaged archive raises errors of zipfile, lxml and python-docx
        raise DocumentError(f"is not a readable Word file: {_one_line(str(error))}") from error
    return "\n\n".join(block for block in blocks if block.strip()), title or heading


def _missing_extra(kind: str) -> DocumentError:
    return DocumentError(f"{kind} files need more libraries: pip install 'dragonrt[documents]'")


def _one_line(text: str) -> str:
    line = " ".join(text.split())
    if len(line) <= _TITLE_LENGTH:
        return line
    return line[:_TITLE_LENGTH].rsplit(" ", 1)[0] + "…"


_LOADERS: dict[str, Callable[[Path], tuple[str, str]]] = {
    ".txt": _load_text,
    ".md": _load_markdown,
    ".markdown": _load_markdown,
    ".html": _load_html,
    ".htm": _load_html,
    ".pdf": _load_pdf,
    ".docx": _load_docx,
}
SUFFIXES = tuple(_LOADERS)
"""The kinds of files that `load` reads."""
