"""Sources at the end of an answer's text, for clients that drop what they do not know."""

import re
from collections.abc import Sequence

from dragonrt.service.view import title
from dragonrt.side import Side
from dragonrt.wire.messages import Source

HEADING = "Sources:"
NOTE = "Note: "
_FILES = rf"{HEADING}(?:\n- (?:device|cloud): [^\n]*)+"
_NOTES = rf"{NOTE}[^\n]*(?:\n{NOTE}[^\n]*)*"
_BEHIND = re.compile(rf"\n\n(?:{_FILES}(?:\n{_NOTES})?|{_NOTES})\Z")


def sources_text(sources: Sequence[tuple[Side, Source]], notices: Sequence[str]) -> str:
    """Return what follows an answer's text: a line for each document, and for each notice."""
    notes = [f"{NOTE}{notice}" for notice in notices]
    lines = [HEADING] if sources else []
    for side, source in sources:
        heading = title(source)
        quoted = f": “{source.sentence}”" if source.sentence else ""
        lines.append(f"- {side}: {source.name}{f' ({heading})' if heading else ''}{quoted}")
    return "\n\n" + "\n".join([*lines, *notes]) if lines or notes else ""


def without_sources(text: str) -> str:
    """An earlier answer as it was given: no model should go on from a list of files."""
    return _BEHIND.sub("", text)
