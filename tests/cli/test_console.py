"""What is said on stderr, as text and as JSON."""

import io
import json
import logging
import re
import socket
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from dragonrt.cli.console import JsonLines, SafeConsole, say_listening
from dragonrt.service.answer import Piece
from dragonrt.service.view import AnswerView
from dragonrt.traces.events import Noticed, NoticeKind

Run = Callable[..., Any]


@pytest.fixture(autouse=True)
def loggers() -> Iterator[None]:
    """The handlers as they were."""
    root, said = logging.getLogger(), logging.getLogger("dragonrt.cli")
    before = root.handlers[:]
    yield
    root.handlers[:] = before
    said.handlers.clear()


def test_with_json_all_that_is_said_is_an_object_per_line(run: Run) -> None:
    errors = run("device", "--key-file", "none", "--log-format", "json").errors
    entry = json.loads(errors)
    assert entry["level"] == "error"
    assert entry["message"].startswith("dragonrt: cannot read the key file none")
    assert entry["time"].endswith("+00:00")
    assert run("device", "--key-file", "none").line.startswith("cannot read")


@pytest.mark.parametrize("abstract", [False, True])
def test_systemd_hears_that_a_side_listens(
    abstract: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    name = tmp_path.name if abstract else str(tmp_path / "notify")
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as systemd:
        systemd.bind(f"\0{name}" if abstract else name)
        systemd.setblocking(False)
        say_listening("nobody waits for this")
        monkeypatch.setenv("NOTIFY_SOCKET", f"@{name}" if abstract else name)
        say_listening("it listens")
        assert systemd.recv(100) == b"READY=1"
        with pytest.raises(BlockingIOError):
            systemd.recv(100)


def test_an_entry_stays_on_its_line_with_its_traceback() -> None:
    try:
        raise ValueError("a\nb")
    except ValueError as error:
        info = (type(error), error, error.__traceback__)
    record = logging.LogRecord("x", logging.ERROR, "", 1, "two\nlines %s", ("ß",), info)
    line = JsonLines().format(record)
    assert "\n" not in line
    entry = json.loads(line)
    assert entry["message"] == "two\nlines ß"
    assert "ValueError" in entry["exception"]


@pytest.mark.parametrize("terminal", [False, True])
def test_no_answer_controls_the_terminal(terminal: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NO_COLOR", "1")
    console = SafeConsole(file=io.StringIO(), force_terminal=terminal, color_system="standard")
    harmful = "".join(map(chr, range(32))) + "\x7f\x9b2J\u202eabc\u2066"
    view = AnswerView(console)
    view.show(Piece(harmful, 0.5))
    view.show(Noticed(NoticeKind.ALONE, harmful))
    assert isinstance(console.file, io.StringIO)
    text = re.sub(r"\x1b\[[0-9;]*m", "", console.file.getvalue())  # rich's own styles
    assert all(each in "\n\t" or each.isprintable() for each in text)
    assert all(shown in text for shown in (r"\x1b", r"\x9b2J", r"\u202eabc", r"\u2066"))
