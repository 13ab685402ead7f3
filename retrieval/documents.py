"""Read a file of any supported format as a document.

The document depends on the file's content alone, not on its name. Its title is the format's own
(HTML title, document properties, front matter, e-mail subject), else the first heading, else the
first line.
"""

import math
from collections.abc import Callable
from pathlib import Path

from . import DocumentError, office, plain
from .files import read_bytes
from .layout import Document, laid_out

Loader = Callable[[bytes], tuple[str, str]]


def load(path: Path) -> Document:
    """Read a trusted file in this process, without limits. Raises DocumentError."""
    try:
        data = read_bytes(path, math.inf)
    except OSError as error:
        raise DocumentError(f"cannot be read: {error.strerror or error}") from error
    return parse(data, path.suffix)


def parse(data: bytes, suffix: str) -> Document:
    """Read the content of a file of one of the `SUFFIXES`.

    Raises MemoryError, or DocumentError with a message that quotes neither name nor text.
    """
    loader = _LOADERS.get(suffix.lower())
    if loader is None:
        raise DocumentError(f"unknown type {suffix or '(none)'}, known are {' '.join(SUFFIXES)}")
    kind, read = loader
    try:
        document = laid_out(*read(data))
    except (DocumentError, MemoryError):
        raise
    except ImportError as error:
        raise DocumentError(
            f"{kind} files need more libraries: pip install 'dragonrt[documents]'"
        ) from error
    except Exception as error:  # of any type; its message may quote the file
        raise DocumentError(f"is not a readable {kind} file: {type(error).__name__}") from error
    if not document.text.strip():
        scanned = " (scanned pages need OCR first)" if kind == "PDF" else ""
        raise DocumentError(f"holds no text{scanned}")
    return document


_LOADERS: dict[str, tuple[str, Loader]] = {
    **dict.fromkeys(("", ".txt", ".json", ".log", ".org"), ("text", plain.read_text)),
    ".md": ("Markdown", plain.read_markdown),
    ".markdown": ("Markdown", plain.read_markdown),
    ".html": ("HTML", plain.read_html),
    ".htm": ("HTML", plain.read_html),
    ".csv": ("CSV", plain.read_csv),
    ".pdf": ("PDF", office.read_pdf),
    ".docx": ("Word", office.read_docx),
    ".odt": ("OpenDocument", office.read_odt),
    ".pptx": ("PowerPoint", office.read_pptx),
    ".xlsx": ("Excel", office.read_xlsx),
    ".epub": ("EPUB", office.read_epub),
    ".eml": ("e-mail", plain.read_eml),
    ".mbox": ("mailbox", plain.read_mbox),
}
SUFFIXES = tuple(filter(None, _LOADERS))
"""Files without a suffix are read, too, if they are text."""
