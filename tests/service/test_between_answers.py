"""Lines that come at any time, beside a person who types and an answer that is shown."""

import asyncio
import io
import sys

import pytest
from prompt_toolkit.application import create_app_session
from prompt_toolkit.data_structures import Size
from prompt_toolkit.input import create_pipe_input
from prompt_toolkit.output.vt100 import Vt100_Output
from rich.console import Console

from dragonrt.modes.question import Question
from dragonrt.service import terminal
from dragonrt.service.conversation import Conversation

from .conftest import reciting_device


async def test_a_line_in_the_middle_of_an_answer_waits_for_its_end(
    capsys: pytest.CaptureFixture[str],
) -> None:
    lines = terminal.BetweenAnswers()
    say = lines.saying(print)
    device, side = reciting_device({"a?": "the whole answer"})
    side.on_prepare = lambda: say("index: 4 chunks")
    talk = Conversation(device, Question(max_tokens=40))
    await terminal.talk(talk, "a?", Console(), as_json=False, lines=lines)
    shown = capsys.readouterr().out
    assert "\nthe whole answer\n" in shown
    assert shown.endswith("\nindex: 4 chunks\n")
    say("at once")
    assert capsys.readouterr().out == "at once\n"


def test_only_the_newest_lines_wait(capsys: pytest.CaptureFixture[str]) -> None:
    lines = terminal.BetweenAnswers()
    with lines.answering():
        for number in range(1000):
            lines.saying(print)(number)
    assert capsys.readouterr().out.split() == [
        str(n) for n in range(1000 - terminal.MOST_KEPT, 1000)
    ]


class Screen(io.StringIO):
    """A terminal that tells when it shows a text."""

    def __init__(self) -> None:
        super().__init__()
        self._awaited: dict[str, asyncio.Event] = {}

    def write(self, text: str) -> int:
        written = super().write(text)
        for awaited, event in self._awaited.items():
            if awaited in self.getvalue():
                event.set()
        return written

    async def shows(self, text: str) -> None:
        event = self._awaited.setdefault(text, asyncio.Event())
        self.write("")
        async with asyncio.timeout(30):
            await event.wait()


async def test_a_line_at_the_prompt_stands_above_what_is_typed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    shown, before = Screen(), sys.stderr
    screen = Vt100_Output(shown, lambda: Size(24, 80))
    monkeypatch.setattr(terminal, "create_output", lambda **how: screen)
    with create_pipe_input() as keys, create_app_session(input=keys):
        questions = terminal.typed_questions()
        typed = asyncio.ensure_future(anext(questions))
        keys.send_text("When does")
        await shown.shows("When does")
        Console(stderr=True).print("index: 4 chunks")
        await shown.shows("index: 4 chunks")
        keys.send_text(" it leave?\r")
        assert await typed == "When does it leave?"
        keys.send_text("\x04")
        assert [question async for question in questions] == []
    assert "> When does" in shown.getvalue().partition("index: 4 chunks")[2]
    assert sys.stderr is before
