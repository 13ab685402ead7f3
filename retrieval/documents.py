"""Read a file of any supported format as a document.

The document depends on the file's content alone, not on its name. Its title is the format's own
(HTML title, document properties, front matter, e-mail subject), else the first heading, else the
first line.
"""

import email
import email.policy
import math
import re
from collections import Counter
from collections.abc import Callable, Iterator
from email.message import Message
from importlib import import_module
from pathlib import Path, PurePath
from typing import Any

from . import DocumentError, plain
from .blocks import Block, Document, Heading, Paragraph, laid_out, one_line
from .files import read_bytes
from .plain import Read, decoded

_ENVELOPE = re.compile(
    rb"^From .*\b(?:Mon|Tue|Wed|Thu|Fri|Sat|Sun)\b.*\d:\d\d.*\d{4}.*\r?\n", re.MULTILINE
)
_HEADERS = re.compile(rb"(?:[A-Za-z-]+: .*\n(?:[ \t].*\n)*){3}")
_QUOTED = re.compile(rb"^>(?=>*From )", re.MULTILINE)
_BASE64 = re.compile(r"(?:^[\w+/]{60,}\s?\n){3,}[\w+/=]*", re.ASCII | re.MULTILINE)


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
    unread = Counter[str]()
    blocks, title = _read(data, suffix, unread)
    text = laid_out(blocks)[0]
    if not text:
        scanned = " (scanned pages need OCR first)" if suffix.lower() == ".pdf" else ""
        raise DocumentError(f"holds no text{scanned}")
    headings = (block.text for block in blocks if isinstance(block, Heading))
    names = map(one_line, (title, *headings, text.partition("\n")[0]))
    counted = (f"{number} {what}{'s' * (number > 1)}" for what, number in unread.items() if number)
    return Document(blocks, next(filter(None, names), ""), ", ".join(counted))


def _read(data: bytes, suffix: str, unread: Counter[str]) -> Read:
    """Return the blocks of a file and its own title."""
    if not suffix and _ENVELOPE.match(data):
        suffix = ".mbox"
    elif suffix.lower() not in _LOADERS and _HEADERS.match(data):
        suffix = ".eml"
    loader = _LOADERS.get(suffix.lower())
    if loader is None:
        raise DocumentError(f"unknown type {suffix or '(none)'}, known are {' '.join(SUFFIXES)}")
    kind, read = loader
    try:
        return read(data, unread)
    except (DocumentError, MemoryError):
        raise
    except ImportError as error:
        raise DocumentError(
            f"{kind} files need more libraries: pip install 'dragonrt[documents]'"
        ) from error
    except Exception as error:  # of any type; its message may quote the file
        raise DocumentError(_reason(data, kind, error)) from error


def _reason(data: bytes, kind: str, error: Exception) -> str:
    """Return in words why a file cannot be read."""
    if "password" in str(error) or any(mark in data for mark in _LOCKS):
        return "is encrypted: save a copy without a password"
    begin = data[:1024].lstrip().lower()
    for mark, what in _MARKS.items():
        if begin.startswith(mark):
            return f"is {what} and no {kind} file: save it as one"
    return f"is damaged or no {kind} file ({type(error).__name__})"


_LOCKS = "EncryptedPackage".encode("utf-16-le"), b"manifest:encryption-data"
_MARKS = {
    b"%pdf": "a PDF file",
    b"\xd0\xcf\x11\xe0": "an office file of before 2007",
    b"<!doctype html": "a web page",
    b"<html": "a web page",
    b"{\\rtf": "an RTF file",
    b"\x89png": "a picture",
    b"\xff\xd8\xff": "a picture",
}


def read_eml(data: bytes, unread: Counter[str]) -> Read:
    """Read one message; the title is its subject."""
    message = email.message_from_bytes(data, policy=email.policy.default)
    return [*_message(message, unread)], _header(message, "Subject")


def read_mhtml(data: bytes, unread: Counter[str]) -> Read:
    """Read a page that was saved with its pictures."""
    message = email.message_from_bytes(data, policy=email.policy.default)
    return [*_body(message, unread)], _header(message, "Subject")


def read_mbox(data: bytes, unread: Counter[str]) -> Read:
    """Read all messages of a mailbox, each under its subject."""
    blocks = list[Block]()
    for part in _ENVELOPE.split(data)[1:]:
        message = email.message_from_bytes(_QUOTED.sub(b"", part), policy=email.policy.default)
        blocks.append(Heading(_header(message, "Subject") or "(no subject)"))
        try:
            blocks += [*_message(message, unread)]
        except MemoryError:
            raise
        except Exception:  # of any type, and of this message alone
            unread["message"] += 1
    return blocks, ""


def _header(message: Message, name: str) -> str:
    try:
        return str(message[name] or "")
    except Exception:  # the library's parsers fail in many ways
        return next((str(v) for key, v in message.raw_items() if key.lower() == name.lower()), "")


def _message(message: Message, unread: Counter[str]) -> Iterator[Block]:
    lines = [
        f"{name}: {text}" for name in ("From", "To", "Date") if (text := _header(message, name))
    ]
    if lines:
        yield Paragraph("\n".join(lines))
    yield from _body(message, unread)


def _body(part: Any, unread: Counter[str]) -> Iterator[Block]:
    """Yield the text of a part of a message, and of what is attached to it."""
    kind, name = part.get_content_type(), part.get_filename() or ""
    if kind == "message/rfc822" and part.is_multipart():
        (inner,) = part.get_payload()
        yield Heading(_header(inner, "Subject") or "Forwarded message", 2)
        yield from _message(inner, unread)
    elif part.is_multipart():
        parts = [*part.get_payload()]
        if kind == "multipart/alternative":
            parts.sort(key=lambda each: each.get_content_type() != "text/plain")
        found = ([*_body(each, unread)] for each in parts)
        if kind in ("multipart/alternative", "multipart/related"):
            yield from next(filter(None, found), [])
        else:
            yield from (block for blocks in found for block in blocks)
    else:
        yield from _leaf(part.get_payload(decode=True) or b"", kind, name, part, unread)


def _leaf(
    data: bytes, kind: str, name: str, part: Message, unread: Counter[str]
) -> Iterator[Block]:
    """Yield the text of a part without parts, or its name if it is not read."""
    suffix, charset = PurePath(name).suffix.lower(), part.get_content_charset()
    try:
        if suffix and suffix in _LOADERS:
            yield from [Heading(name, 2), *_read(data, suffix, unread)[0]]
        elif not name and kind == "text/html":
            yield from plain.read_html(data, unread, charset)[0]
        elif (not name and kind == "text/plain") or kind.startswith("multipart/"):
            text = decoded(data, charset)
            unread["attachment"] += len(_BASE64.findall(text))
            if text := _BASE64.sub("", text).strip():
                yield Paragraph(text)
        else:
            raise DocumentError("is of no known kind")
    except DocumentError:
        unread["attachment"] += 1
        yield Paragraph(f"Attachment: {name or kind}")


Loader = Callable[[bytes, Counter[str]], Read]


def _by_library(module: str, name: str) -> Loader:
    """Return a reader whose module, which needs more libraries, is imported at first use."""

    def read(data: bytes, unread: Counter[str]) -> Read:
        reader: Loader = getattr(import_module(f".{module}", __package__), name)
        return reader(data, unread)

    return read


_LOADERS: dict[str, tuple[str, Loader]] = {
    **dict.fromkeys(("", ".txt", ".log"), ("text", plain.read_text)),
    ".json": ("JSON", plain.read_json),
    ".org": ("org", plain.read_org),
    **dict.fromkeys((".md", ".markdown"), ("Markdown", plain.read_markdown_file)),
    **dict.fromkeys((".html", ".htm"), ("HTML", plain.read_html)),
    **dict.fromkeys((".mhtml", ".mht"), ("MHTML", read_mhtml)),
    **dict.fromkeys((".csv", ".tsv"), ("CSV", plain.read_csv)),
    ".pdf": ("PDF", _by_library("pdf", "read_pdf")),
    ".docx": ("Word", _by_library("office", "read_docx")),
    ".odt": ("OpenDocument", _by_library("office", "read_odt")),
    ".pptx": ("PowerPoint", _by_library("office", "read_pptx")),
    ".xlsx": ("Excel", _by_library("office", "read_xlsx")),
    ".epub": ("EPUB", plain.read_epub),
    ".eml": ("e-mail", read_eml),
    ".mbox": ("mailbox", read_mbox),
}
SUFFIXES = tuple(filter(None, _LOADERS))
"""Files without a suffix are read, too, if they are text."""
