"""Read a file of any supported format as a Document.

The document depends on the file's content and suffix alone. Its title is the format's own (HTML
title, document properties, front matter, e-mail subject), else the first heading or the first line.
"""

import email
import email.policy
import re
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import suppress
from email.message import Message
from importlib import import_module
from pathlib import Path, PurePath
from typing import Any

from . import DocumentError, plain
from .blocks import Block, Document, Heading, Paragraph, Title, Unread, laid_out, one_line
from .files import read_bytes
from .plain import decoded

_ENVELOPE = re.compile(
    rb"^From .*\b(?:Mon|Tue|Wed|Thu|Fri|Sat|Sun)\b.*\d:\d\d.*\d{4}.*\r?\n", re.MULTILINE
)
_HEADERS = re.compile(rb"(?:[A-Za-z-]+: .*\n(?:[ \t].*\n)*){3}")
_QUOTED = re.compile(rb"^>(?=>*From )", re.MULTILINE)
_BASE64 = re.compile(r"(?:^[\w+/]{60,}\s?\n){3,}[\w+/=]*", re.ASCII | re.MULTILINE)


def load(path: Path) -> Document:
    """Parse a trusted file in this process, without a Reader's limits. Raises DocumentError."""
    try:
        data = read_bytes(path, float("inf"))
    except OSError as error:
        raise DocumentError(f"cannot be read: {error.strerror or error}") from error
    return parse(data, path.suffix)


def parse(data: bytes, suffix: str) -> Document:
    """Return the Document in a file's bytes; `suffix`, one of `SUFFIXES` or "", is its format.

    Raises MemoryError, or DocumentError with a message that quotes neither name nor text.
    """
    blocks = _read(data, suffix)
    text = laid_out(blocks)[0]
    if not text:
        scanned = " (scanned pages need OCR first)" if suffix.lower() == ".pdf" else ""
        raise DocumentError(f"holds no text{scanned}")
    names = [each.text for kind in (Title, Heading) for each in blocks if isinstance(each, kind)]
    title = next(filter(None, map(one_line, [*names, text.partition("\n")[0]])), "")
    left = Counter(each.what for each in blocks if isinstance(each, Unread)).items()
    counted = (f"{n} {re.sub('(?= with)|$', 's' * (n > 1), what, count=1)}" for what, n in left)
    blocks = [each for each in blocks if not isinstance(each, Title | Unread)]
    return Document(blocks, title, ", ".join(counted))


def _read(data: bytes, suffix: str) -> list[Block]:
    if not suffix and _ENVELOPE.match(data):
        suffix = ".mbox"
    elif suffix.lower() not in _LOADERS and _HEADERS.match(data):
        suffix = ".eml"
    kind, reader = _LOADERS.get(suffix.lower(), ("", ""))
    if not reader:
        raise DocumentError(f"unknown type {suffix or '(none)'}, known are {' '.join(SUFFIXES)}")
    module, _, name = reader.partition(".")
    try:
        return [*getattr(import_module(f".{module}", __package__), name)(data)]
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


def read_eml(data: bytes) -> Iterator[Block]:
    """Yield the blocks of an e-mail, or of a web page saved as MHTML, titled by its subject."""
    message = email.message_from_bytes(data, policy=email.policy.default)
    yield Title(_header(message, "Subject"))
    yield from _message(message)


def read_mbox(data: bytes) -> Iterator[Block]:
    """Yield the blocks of all messages of a mailbox, each under its subject as a Heading."""
    for part in _ENVELOPE.split(data)[1:]:
        message = email.message_from_bytes(_QUOTED.sub(b"", part), policy=email.policy.default)
        yield Heading(_header(message, "Subject") or "(no subject)")
        try:
            yield from [*_message(message)]
        except MemoryError:
            raise
        except Exception:  # of any type, and of this message alone
            yield Unread("message")


def _header(message: Message, name: str) -> str:
    try:
        return str(message[name] or "")
    except Exception:  # the library's parsers fail in many ways
        return next((str(v) for key, v in message.raw_items() if key.lower() == name.lower()), "")


def _message(message: Message) -> Iterator[Block]:
    about = ((name, _header(message, name)) for name in ("From", "To", "Date"))
    yield Paragraph("\n".join(f"{name}: {text}" for name, text in about if text))
    yield from _body(message)


def _body(part: Any) -> Iterator[Block]:
    """Yield the text of a part of a message, and of what is attached to it."""
    kind, name = part.get_content_type(), part.get_filename() or ""
    if kind == "message/rfc822" and part.is_multipart():
        (inner,) = part.get_payload()
        yield Heading(_header(inner, "Subject") or "Forwarded message", 2)
        yield from _message(inner)
    elif part.is_multipart():
        parts = [*part.get_payload()]
        if kind == "multipart/alternative":
            parts.sort(key=lambda each: each.get_content_type() != "text/plain")
        for each in parts:
            yield from (found := [*_body(each)])
            if found and kind in ("multipart/alternative", "multipart/related"):
                break
    else:
        data, charset = part.get_payload(decode=True) or b"", part.get_content_charset()
        blocks = _leaf(data, kind, name, charset)
        yield from (block for block in blocks if not isinstance(block, Title))


def _leaf(data: bytes, kind: str, name: str, charset: str | None) -> Sequence[Block]:
    """Return the text of a part without parts, or its name if it is not read."""
    suffix = PurePath(name).suffix.lower()
    with suppress(DocumentError):
        if suffix and suffix in _LOADERS:
            return [Heading(name, 2), *_read(data, suffix)]
        if not name and kind == "text/html":
            return [*plain.read_html(data, charset)]
        if (not name and kind == "text/plain") or kind.startswith("multipart/"):
            text, encoded = _BASE64.subn("", decoded(data, charset))
            return [Paragraph(text)] * bool(text.strip()) + [Unread("attachment")] * encoded
    return [Unread("attachment"), Paragraph(f"Attachment: {name or kind}")]


# The kinds of files and their readers, whose modules may need more libraries.
_LOADERS = {
    **dict.fromkeys(("", ".txt", ".log"), ("text", "plain.read_text")),
    ".json": ("JSON", "plain.read_json"),
    ".org": ("org", "plain.read_org"),
    **dict.fromkeys((".md", ".markdown"), ("Markdown", "plain.read_markdown_file")),
    **dict.fromkeys((".html", ".htm"), ("HTML", "plain.read_html")),
    **dict.fromkeys((".mhtml", ".mht"), ("MHTML", "documents.read_eml")),
    **dict.fromkeys((".csv", ".tsv"), ("CSV", "plain.read_csv")),
    ".pdf": ("PDF", "pdf.read_pdf"),
    ".docx": ("Word", "office.read_docx"),
    ".odt": ("OpenDocument", "office.read_odt"),
    ".pptx": ("PowerPoint", "office.read_pptx"),
    ".xlsx": ("Excel", "office.read_xlsx"),
    ".epub": ("EPUB", "plain.read_epub"),
    ".eml": ("e-mail", "documents.read_eml"),
    ".mbox": ("mailbox", "documents.read_mbox"),
}
SUFFIXES = tuple(filter(None, _LOADERS))
"""Files without a suffix are read, too, if they are text."""
