"""Readers of text files: plain, Markdown, HTML, CSV, e-mail.

Each takes a file's content, and returns its text with the marks of `layout`, and its title.
"""

import csv
import email
import email.policy
import re
from email.message import EmailMessage

from markdown_it import MarkdownIt
from selectolax.lexbor import LexborHTMLParser

from . import DocumentError
from .layout import HEADING, TABLE, TABLE_END, heading, one_line, table

_FRONT_MATTER = re.compile(r"\A---\n(.*?)\n---(?:\n|\Z)", re.DOTALL)
_ENVELOPE = re.compile(rb"^From .*\n", re.MULTILINE)
_FRONT_TITLE = re.compile(r"^title:\s*(.+?)\s*$", re.MULTILINE)
csv.field_size_limit(2**31 - 1)  # a long cell is a text like any other
# Line breaks are kept: addresses and times are separate lines.
_MARKDOWN = MarkdownIt("commonmark", {"breaks": True}).enable("table")

_DROPPED = ["script", "style", "noscript", "template", "svg", "nav"]
_PARAGRAPHS = (
    "address, article, aside, blockquote, body, div, dl, figure, footer, form, header, hr, main, "
    "ol, p, pre, section, ul"
)
_LINES = "br, dd, dt, li, option, tr"
_CELLS = "td, th"

# Unicode's own separators mark the breaks, and a space of its own those of code, until all other
# white space has been folded.
_LINE, _PARAGRAPH, _SPACE = "\u2028", "\u2029", "\u2007"
_BREAKS = [
    (_PARAGRAPHS, _PARAGRAPH, _PARAGRAPH),
    *((f"h{level}", f"{_PARAGRAPH}{HEADING}{level}", _PARAGRAPH) for level in range(1, 7)),
    ("table", f"{_PARAGRAPH}{TABLE}", f"{TABLE_END}{_PARAGRAPH}"),
    (_LINES, _LINE, ""),
    (_CELLS, " ", " "),
]


def read_text(data: bytes) -> tuple[str, str]:
    """Return the text unchanged."""
    return decoded(data), ""


def read_markdown(data: bytes) -> tuple[str, str]:
    """Read CommonMark with tables; the title is that of the front matter."""
    source = decoded(data).replace("\r\n", "\n")
    title = ""
    if front := _FRONT_MATTER.match(source):
        source = source[front.end() :]
        if named := _FRONT_TITLE.search(front[1]):
            title = named[1].strip("\"'")
    return markdown_text(source), title


def markdown_text(source: str) -> str:
    """Return the text of Markdown with the marks of `layout`."""
    return marked_text(_MARKDOWN.render(source))[0]


def read_html(data: bytes) -> tuple[str, str]:
    """Read a page in the encoding that it declares."""
    declared = re.search(rb"<meta[^>]+charset=[\"']?([\w-]+)", data[:2048], re.IGNORECASE)
    return marked_text(decoded(data, declared[1].decode("ascii") if declared else None))


def read_csv(data: bytes) -> tuple[str, str]:
    """Read one table, separated by the most frequent separator."""
    text = decoded(data)
    separator = max(",;\t|", key=text.count)
    return table(csv.reader(text.splitlines(), delimiter=separator)), ""


def read_eml(data: bytes) -> tuple[str, str]:
    """Read one message: senders, date and text; the title is the subject."""
    message = email.message_from_bytes(data, policy=email.policy.default)
    return _message_text(message), str(message["Subject"] or "")


def read_mbox(data: bytes) -> tuple[str, str]:
    """Read all messages of a mailbox, each under its subject."""
    text = ""
    for part in _ENVELOPE.split(data)[1:]:
        message = email.message_from_bytes(part, policy=email.policy.default)
        text += heading(str(message["Subject"] or "(no subject)")) + _message_text(message)
    return text, ""


def _message_text(message: EmailMessage) -> str:
    lines = [f"{name}: {message[name]}" for name in ("From", "To", "Date") if message[name]]
    body = message.get_body(("plain", "html"))
    text = body.get_content() if body is not None else ""
    if body is not None and body.get_content_subtype() == "html":
        text = marked_text(text)[0]
    return "\n".join(lines) + "\n\n" + text.strip()


def decoded(data: bytes, declared: str | None = None) -> str:
    """Decode UTF-16 with its mark, UTF-8, `declared` or cp1252; else raise DocumentError."""
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


def marked_text(page: str) -> tuple[str, str]:
    """Return the text of a page with the marks of `layout`, and its title element's text.

    Scripts, styles and navigation are left out. Blocks become paragraphs; table cells are separated
    by a space. A broken page is parsed as in a browser.
    """
    tree = LexborHTMLParser(page)
    tree.strip_tags(_DROPPED)
    if tree.body is None:
        return "", ""
    title = tree.css_first("title")
    for selector, before, after in _BREAKS:
        for node in tree.css(selector):
            node.insert_before(before)
            node.insert_after(after)
    for code in tree.css("pre"):
        code.replace_with(code.text().replace("\n", _LINE).replace(" ", _SPACE))
    return _folded(tree.body.text()), one_line(title.text()) if title else ""


def _folded(text: str) -> str:
    text = re.sub(rf"[^\S{_LINE}{_PARAGRAPH}{_SPACE}]+", " ", text)
    text = re.sub(rf" ?{_LINE} ?", "\n", text).replace(_SPACE, " ")
    text = re.sub(rf"[\n {_PARAGRAPH}]*({_PARAGRAPH}|\n\n)\n*[ {_PARAGRAPH}]*", "\n\n", text)
    return re.sub(rf"(?<={TABLE})\s+|\s+(?={TABLE_END})", "", text).strip()
