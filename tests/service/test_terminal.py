"""The chat in a terminal: signals and lines that come in the middle of an answer."""

import asyncio
import io
import json
import os
import signal
import sys
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest
from prompt_toolkit.application import create_app_session
from prompt_toolkit.data_structures import Size
from prompt_toolkit.input import create_pipe_input
from prompt_toolkit.output.vt100 import Vt100_Output
from rich.console import Console
from typing_extensions import override

from dragonrt import bundled
from dragonrt.modes.question import Question
from dragonrt.privacy.disclosure import FLOOR, Disclosure
from dragonrt.service import terminal
from dragonrt.service.chat import Chat
from dragonrt.timeouts import Timeouts

from .conftest import READS_ENGLISH, RecitingSide, reciting_device


def chat_of(answers: dict[str, str], **options: Any) -> tuple[Chat, RecitingSide]:
    device, side = reciting_device(answers, **options)
    return Chat(device, Question(max_tokens=40)), side


async def test_a_first_sigterm_lets_the_answer_finish(capsys: pytest.CaptureFixture[str]) -> None:
    talk, side = chat_of({"a?": "the whole answer\n"})
    side.on_prepare = lambda: os.kill(os.getpid(), signal.SIGTERM)
    with pytest.raises(SystemExit) as ended:
        await terminal.talk(talk, "a?", Console(), as_json=False)
    assert ended.value.code == 128 + signal.SIGTERM
    assert "the whole answer" in capsys.readouterr().out
    assert signal.getsignal(signal.SIGTERM) is signal.SIG_DFL


async def test_a_second_one_does_not(monkeypatch: pytest.MonkeyPatch) -> None:
    talk, side = chat_of({"a?": "the whole answer\n"})
    kill, killed = os.kill, []
    monkeypatch.setattr(os, "kill", lambda pid, number: killed.append((pid, number)))

    def twice() -> None:
        for _ in range(2):
            kill(os.getpid(), signal.SIGTERM)

    side.on_prepare = twice
    with pytest.raises(SystemExit):
        await terminal.talk(talk, "a?", Console(), as_json=True)
    assert killed == [(os.getpid(), signal.SIGTERM)]


async def test_an_answer_that_does_not_end_is_stopped() -> None:
    talk, side = chat_of({"a?": "abcdefgh"}, halt_at=5)
    side.timeouts = Timeouts(reach_s=0.0, answer_s=0.01)
    side.on_prepare = lambda: os.kill(os.getpid(), signal.SIGTERM)
    with pytest.raises(SystemExit):
        await terminal.talk(talk, "a?", Console(), as_json=True)


async def test_a_line_waits_for_the_end_of_an_answer(capsys: pytest.CaptureFixture[str]) -> None:
    lines = terminal.BetweenAnswers()
    say = lines.saying(print)
    talk, side = chat_of({"a?": "the whole answer"})
    side.on_prepare = lambda: say("index: 4 chunks")
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

    @override
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


async def test_a_line_stands_above_what_is_typed(monkeypatch: pytest.MonkeyPatch) -> None:
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


def at_a_terminal(yes: bool) -> Any:
    return SimpleNamespace(isatty=lambda: yes)


async def test_empty_lines_of_a_pipe_are_no_questions(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    talk, _ = chat_of({"a?": "yes\n", "b?": "no\n"})
    monkeypatch.setattr(sys, "stdin", io.StringIO("\n a? \n  \nb?"))
    await terminal.talk(talk, None, Console(), as_json=True)
    objects = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert [(each["question"], each["text"]) for each in objects] == [("a?", "yes"), ("b?", "no")]


async def test_a_part_is_printed_at_its_end(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    talk, side = chat_of({"What is it?": "Heron\n"})
    side.model = READS_ENGLISH
    asked = "What is it, and who bred it?\nWann ist der Tee fertig?\n"
    monkeypatch.setattr(sys, "stdin", io.StringIO(asked))
    await terminal.talk(talk, None, Console(), as_json=True)
    part, *errors = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert (part["part"], part["of"], part["text"]) == (1, 2, "Heron")
    assert [each["code"] for each in errors] == ["answer_failed", "unsupported_language"]
    assert all(each["error"] for each in errors)


async def test_the_last_object_of_several_parts_is_the_whole(
    capsys: pytest.CaptureFixture[str],
) -> None:
    talk, side = chat_of({"What is it?": "Heron\n", "Who bred it?": "Ada\n"})
    side.model = READS_ENGLISH
    asked = "What is it, and who bred it?"
    await terminal.talk(talk, asked, Console(), as_json=True)
    found = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert [(each["part"], each["of"]) for each in found] == [(1, 2), (2, 2), (0, 2)]
    first, second, whole = found
    assert (whole["question"], whole["text"]) == (asked, "Heron; Ada")
    assert [each["file"] for each in whole["sources"]] == ["notes.txt"]
    for name in ("tokens_sent", "evidence_of_tokens"):
        assert whole["ledger"][name] == first["ledger"][name] + second["ledger"][name]


async def test_without_a_terminal_a_preview_sends_nothing(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    talk, side = chat_of({"a?": "yes\n"})
    said = list[str]()
    monkeypatch.setattr(sys, "stdin", at_a_terminal(False))
    await terminal.talk(talk, "a?", Console(), as_json=False, show=said.append)
    assert any("a?" in line for line in said)
    assert capsys.readouterr().out == ""
    await terminal.talk(talk, "a?", Console(), as_json=True, show=said.append)
    shown = json.loads(capsys.readouterr().out)
    assert (shown["question"], shown["level"]) == ("a?", Disclosure.DRAFTS)
    assert side.questions == []


@pytest.mark.parametrize("no", ["n\r", "\x03", "\x04"], ids=["n", "Ctrl-C", "Ctrl-D"])
async def test_a_preview_can_lower_the_level(no: str, monkeypatch: pytest.MonkeyPatch) -> None:
    talk, side = chat_of({"a?": "yes\n", "b?": "no\n"})
    said = list[str]()
    screen = Vt100_Output(Screen(), lambda: Size(24, 80))
    monkeypatch.setattr(terminal, "create_output", lambda **how: screen)
    monkeypatch.setattr(sys, "stdin", at_a_terminal(True))
    with create_pipe_input() as keys, create_app_session(input=keys):
        keys.send_text(no)
        async with asyncio.timeout(30):
            await terminal.talk(talk, "a?", Console(), as_json=False, show=said.append)
        assert side.questions == []
        drafts = list(said)
        consent = terminal.Consent(talk, said.append, as_json=False)
        keys.send_text("all\ranswer\ry\r")
        async with asyncio.timeout(30):
            assert await consent.given("a?")
        again, lowered = said[len(drafts) : 2 * len(drafts)], said[2 * len(drafts) :]
        assert again == drafts, "what is no choice shows nothing anew"
        assert lowered
        assert lowered != drafts
        assert await consent.given("b?"), "of the chat"
    assert talk.device.settings.level is Disclosure.ANSWER
    await talk.ask("a?")
    assert side.questions[0].relevance_floor == FLOOR


async def test_parts_are_one_text_with_both_sources() -> None:
    talk, _ = chat_of({"What is it?": "Heron\n", "Who bred it?": "I don't know.\n"})
    asked, output = "What is it, and who bred it?", io.StringIO()
    await terminal.talk(talk, asked, Console(file=output, width=100), as_json=False)
    lines = output.getvalue().splitlines()
    first = lines.index("Heron; who bred it: I don't know.")
    assert [line.strip() for line in lines[first + 1 : first + 5]] == [
        "What is it?",
        "device 0.50  notes.txt",
        "“What is known.”",
        "Who bred it?",
    ]
    assert sum("left this side" in line for line in lines) == 1


async def test_small_talk_needs_no_consent() -> None:
    talk, side = chat_of({})
    side.model = replace(side.model, name=bundled.SMOLLM2)
    said: list[str] = []
    assert await terminal.Consent(talk, said.append, as_json=False).given("Hello")
    assert said == []
