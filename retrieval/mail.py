"""Readers of e-mail: single messages and mailboxes.

Each reader gives a text with the marks of `layout`, and the title if the file has one.
"""

import email
import email.policy
import mailbox
from email.message import EmailMessage
from pathlib import Path

from .html import marked_text
from .layout import heading

_SHOWN = ("From", "To", "Date")


def read_eml(path: Path) -> tuple[str, str]:
    """One message: its senders, its date and its text; the title is the subject."""
    message = email.message_from_bytes(path.read_bytes(), policy=email.policy.default)
    return _text(message), str(message["Subject"] or "")


def read_mbox(path: Path) -> tuple[str, str]:
    """All messages of a mailbox, each under its subject."""
    parts = []
    box = mailbox.mbox(path, create=False)
    try:
        for key in box.iterkeys():
            message = email.message_from_bytes(box.get_bytes(key), policy=email.policy.default)
            parts.append(heading(str(message["Subject"] or "(no subject)")) + _text(message))
    finally:
        box.close()
    return "".join(parts), ""


def _text(message: EmailMessage) -> str:
    lines = [f"{name}: {message[name]}" for name in _SHOWN if message[name]]
    body = message.get_body(("plain", "html"))
    text = body.get_content() if body is not None else ""
    if body is not None and body.get_content_subtype() == "html":
        text = marked_text(text)[0]
    return "\n".join(lines) + "\n\n" + text.strip()
