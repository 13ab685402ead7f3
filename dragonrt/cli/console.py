"""Print on consoles: results on `output` (stdout), all else on `messages` (stderr)."""

import json
import logging
import os
import re
import socket
import traceback
from collections.abc import Iterable
from contextlib import suppress
from datetime import UTC, datetime
from typing import Any

from rich.console import Console, ConsoleOptions, RenderableType
from rich.segment import Segment
from typing_extensions import override

CONTROLS = re.compile("[\0-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069]")
"""C0 but newline and tab, DEL, C1, and what reverses the direction of a text."""


class SafeConsole(Console):
    """A console that prints control characters, such as an answer's, escaped: `\\x1b` for ESC."""

    @override
    def render(
        self, renderable: RenderableType, options: ConsoleOptions | None = None
    ) -> Iterable[Segment]:
        for text, style, control in super().render(renderable, options):
            if not control:
                text = CONTROLS.sub(lambda found: ascii(found[0])[1:-1], text)
            yield Segment(text, style, control)


output = SafeConsole(highlight=False)
messages = SafeConsole(stderr=True, highlight=False)

LEVELS = {None: logging.INFO, "yellow": logging.WARNING, "red": logging.ERROR}

_lines = logging.getLogger("dragonrt.cli")


def say(line: str, style: str | None = None) -> None:
    """Print a line on stderr in a style of rich; if the log is JSON, log the line instead."""
    if _lines.handlers:
        _lines.log(LEVELS[style], line)
    else:
        messages.print(line, style=style, markup=False, soft_wrap=True)


def say_listening(line: str) -> None:
    """Print that this side listens, and notify systemd if it started the side (`sd_notify(3)`)."""
    say(line)
    if place := os.environ.get("NOTIFY_SOCKET", ""):
        with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as notify, suppress(OSError):
            notify.connect(f"\0{place[1:]}" if place.startswith("@") else place)
            notify.send(b"READY=1")


class Lines(logging.Formatter):
    """A formatter of log entries, without the messages of exceptions: they may quote a document."""

    @override
    def formatException(self, ei: Any) -> str:
        kind, _, frames = ei
        return f"{''.join(traceback.format_tb(frames))}{kind.__name__}"


class JsonLines(Lines):
    """A formatter of log entries as JSON on one line: time (UTC), level, logger, message."""

    @override
    def format(self, record: logging.LogRecord) -> str:
        entry = {
            "time": datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds"),
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": record.getMessage(),
        }
        if record.exc_info:
            entry["exception"] = self.formatException(record.exc_info)
        return json.dumps(entry, ensure_ascii=False)


def log_to_stderr(level: int, *, as_json: bool) -> None:
    """Send the log to stderr, as text or as JSON lines; the latter include the lines of `say`.

    `level` is the lowest that this program logs. Libraries, which log texts, log warnings only.
    """
    handler = logging.StreamHandler()
    handler.setFormatter(JsonLines() if as_json else Lines("%(levelname)s %(name)s: %(message)s"))
    logging.basicConfig(level=logging.WARNING, handlers=[handler])
    logging.getLogger("dragonrt").setLevel(level)
    _lines.handlers = [handler] if as_json else []
    _lines.propagate = False
    _lines.setLevel(logging.INFO)
