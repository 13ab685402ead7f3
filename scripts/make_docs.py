"""Writes the pages of docs/ that say what the code says: `python -m scripts.make_docs`.

A test makes them again and compares.
"""

import inspect
import json
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import MISSING
from enum import Enum
from pathlib import Path
from typing import Any, Literal, get_args, get_origin, get_type_hints

from msgspec import NODEFAULT, structs

from dragonrt.modes import MODES
from dragonrt.modes.question import Question
from dragonrt.service.http.api_request import IDLE, UNKEPT
from dragonrt.service.http.forms import ChatBody, OllamaBody, ResponseBody
from dragonrt.settings import entries, hints, must
from dragonrt.traces import events, file
from dragonrt.wire import connection, encoding, sessions
from dragonrt.wire.fields import MAX_LINE, Fields
from dragonrt.wire.messages import (
    CONNECTION_MESSAGES,
    PROTOCOL_VERSION,
    SESSION_MESSAGES,
    Attribution,
    Message,
    Source,
)
from dragonrt.wire.reasons import Reason
from scripts.bench import pages as results

DOCS = Path(__file__).parents[1] / "docs"
MADE = "<!-- Made by scripts/make_docs.py from the code; change that, and run it again. -->"


def wire_page() -> str:
    """docs/wire.md: frames, states, and every message with its fields."""
    return _page(
        f"# The wire: protocol version {PROTOCOL_VERSION}",
        "What two processes say to each other over TCP or TLS. Both run the same code; `device` "
        "and `cloud` are roles. No integer is negative.",
        "## Frames",
        _text(encoding),
        _table(
            ("limit", "value"),
            (
                ("bytes of a frame's body, before and after decompression", encoding.MAX_BODY),
                ("the same during the handshake", connection.HANDSHAKE_LIMIT),
                ("bytes from which on compression is tried", encoding.COMPRESS_ABOVE + 1),
                ("bytes of a text for people; the rest is cut off", MAX_LINE),
                ("entries of an array", encoding.LONGEST_ARRAY),
                ("sessions of one connection", connection.DEFAULT_MAX_SESSIONS),
                ("closed sessions whose late messages are ignored", sessions.REMEMBERED_CLOSED),
            ),
        ),
        "## The connection",
        _text(connection),
        "What may be received in each state, and the state that follows:",
        _transitions(connection.State, connection.RECEIVE),
        "## Sessions",
        _text(sessions),
        _states(sessions.SessionState),
        "What may be received in each state, and the state that follows:",
        _transitions(sessions.SessionState, sessions.RECEIVE),
        "The same may be sent, with `asked` and `invited` exchanged.",
        "## Messages of the connection",
        *(_part(kind) for kind in CONNECTION_MESSAGES),
        "## Messages of a session",
        *(_part(kind) for kind in sorted(SESSION_MESSAGES, key=lambda kind: kind.TYPE)),
        "## What an Open carries",
        "Settings as names with values. `dragonrt device --help-all` says what they set.",
        "### The question",
        _text(Question),
        _settings(Question),
        *(
            f"### Settings of mode `{name}`\n\n{_text(mode.settings)}\n\n{_settings(mode.settings)}"
            for name, mode in MODES.items()
        ),
        "## Parts of messages",
        *(_part(kind) for kind in (Attribution, Source)),
        "## Reasons",
        _text(Reason),
        _states(Reason),
    )


def traces_page() -> str:
    """docs/traces.md: the file, and every event with its fields."""
    decided = events.TokenDecided(3, 421, True, False, "other", 0.0125, 0.75)
    line = file.to_object(events.Record(12.5, "device", 1, decided))
    return _page(
        f"# Traces: schema {file.SCHEMA}",
        "What `--trace FILE` writes and `dragonrt trace FILE` reads.",
        _text(events),
        "## Files",
        _text(file),
        f"```json\n{json.dumps(line)}\n```",
        "## Records",
        _text(events.Record),
        _fields(events.Record),
        "## Events",
        *(
            f"### `{kind.__struct_config__.tag}`\n\n{_text(kind)}\n\n{_fields(kind)}"
            for kind in events.EVENTS
        ),
        "## Kinds of notices",
        _text(events.NoticeKind),
        _states(events.NoticeKind),
        "## Settings in `open`",
        "Those of the question and of the mode; a question's own words are never among them.",
        _table(
            ("", "settings"),
            (
                ("every mode", _code(each.name for each in entries(Question) if each.about.traced)),
                *(
                    (f"`{name}`", _code(each.name for each in entries(mode.settings)))
                    for name, mode in MODES.items()
                ),
            ),
        ),
    )


def serve_page() -> str:
    """docs/serve.md, with the table of the fields of requests."""
    fields: dict[str, list[str]] = {}
    for body in (ChatBody, ResponseBody, OllamaBody):
        for name, hint in get_type_hints(body, include_extras=True).items():
            if name not in fields.setdefault(hint.__metadata__[-1], []):
                fields[hint.__metadata__[-1]].append(name)
    for name, (text, _) in UNKEPT.items():
        fields.setdefault(f"a warning: {text}", []).append(name)
    fields["accepted without effect"] = sorted(IDLE)
    table = _table(("field", "what it does"), ((_code(of), text) for text, of in fields.items()))
    before, head, rest = (DOCS / "serve.md").read_text("utf-8").partition(FIELDS)
    return f"{before}{head}\n\n{table}\n\n{rest[rest.index(BEHIND) :]}"


FIELDS, BEHIND = MADE.replace("Made", "Fields, made"), "All other"


def _code(names: Iterable[str]) -> str:
    return ", ".join(f"`{name}`" for name in names)


PAGES: Mapping[str, Callable[[], str]] = {
    "wire.md": wire_page,
    "traces.md": traces_page,
    "serve.md": serve_page,
}
"""What each file in docs/ is made by."""


def _page(title: str, *parts: str) -> str:
    return "\n\n".join((title, MADE, *parts)) + "\n"


def _part(kind: Any) -> str:
    number = f"{kind.TYPE} " if hasattr(kind, "TYPE") else ""
    return f"### {number}{kind.__name__}\n\n{_text(kind)}\n\n{_fields(kind)}"


def _text(documented: Any) -> str:
    return inspect.getdoc(documented) or ""


def _table(heading: Sequence[str], rows: Iterable[Sequence[Any]]) -> str:
    def line(cells: Iterable[Any]) -> str:
        shown = (f"{cell:,}" if isinstance(cell, int) else str(cell) for cell in cells)
        return "|" + "|".join(cell.replace("|", "\\|") for cell in shown) + "|"

    return "\n".join((line(heading), "|" + "---|" * len(heading), *map(line, rows)))


def _transitions(states: type[Enum], table: Mapping[Any, Mapping[type[Message], Enum]]) -> str:
    """A row for each message that may come in some state, a column for each state."""
    kinds = sorted({kind for row in table.values() for kind in row}, key=lambda kind: kind.TYPE)
    return _table(
        ("", *(f"in `{state.value}`" for state in states)),
        (
            (
                kind.__name__,
                *(f"→ `{table[s][kind].value}`" if kind in table[s] else "" for s in states),
            )
            for kind in kinds
        ),
    )


def _states(states: type[Enum]) -> str:
    """The members of an enumeration, with the comments behind them in the source."""
    said = re.findall(r'= "(\w+)"(?:  # (.*))?$', inspect.getsource(states), re.MULTILINE)
    return _table(("", "meaning"), ((f"`{value}`", comment) for value, comment in said))


def _fields(kind: Any) -> str:
    """The fields of a class, of a message's with their bounds."""
    plain, own = get_type_hints(kind), structs.fields(kind)
    if not issubclass(kind, Fields):
        rows = ((f"`{e.name}`", _type(plain[e.name]), _default(e.default)) for e in own)
        return _table(("field", "type", "default"), rows)
    bounded = (_row(e.name, hints(kind)[e.name], e.default) for e in own)
    return _table(("field", "type", "default"), bounded)


def _row(name: str, within: Any, default: Any) -> tuple[str, ...]:
    return f"`{name}`", _readable(must(within)), _default(default)


def _settings(kind: type) -> str:
    """What travels of a class of settings."""
    rows = (_row(e.name, e.within, e.default) for e in entries(kind) if e.about.travels)
    return _table(("field", "type", "default"), rows)


def _type(hint: Any) -> str:
    if hint == events.AnyEvent:
        return "one of those below"
    if get_origin(hint) is Literal:
        return " or ".join(f"`{value!r}`" for value in get_args(hint))
    shown = re.sub(r"\b(?:\w+\.)+(?=\w)", "", inspect.formatannotation(hint))
    shown = re.sub(r"^Optional\[(.*)\]$", r"\1 | None", shown)
    return f"`{shown}`"


def _default(value: Any) -> str:
    if value in (MISSING, NODEFAULT):
        return ""
    return f"`{(value.value if isinstance(value, Enum) else value)!r}`"


def _readable(must: str) -> str:
    for exponent in (31, 32, 63, 64):
        must = must.replace(f"from 0 to {2**exponent - 1}", f"below 2^{exponent}")
        must = must.replace(str(2**exponent - 1), f"2^{exponent} - 1")
    return re.sub(r"\ban? (?=integer|number|tuple)", "", must)


def main() -> None:
    """Write all pages, those of results from what is kept of each run."""
    for name, page in PAGES.items():
        (DOCS / name).write_text(page(), encoding="utf-8")
    results.write()


if __name__ == "__main__":
    main()
