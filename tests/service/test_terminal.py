"""What a signal does to an answer that is under way."""

import os
import signal

import pytest
from rich.console import Console

from dragonrt.modes.question import Question
from dragonrt.service import terminal
from dragonrt.service.conversation import Conversation
from dragonrt.timeouts import Timeouts

from .conftest import reciting_device


async def test_a_first_sigterm_lets_the_answer_finish(capsys: pytest.CaptureFixture[str]) -> None:
    device, side = reciting_device({"a?": "the whole answer\n"})
    side.on_prepare = lambda: os.kill(os.getpid(), signal.SIGTERM)
    talk = Conversation(device, Question(max_tokens=40))
    with pytest.raises(SystemExit) as ended:
        await terminal.talk(talk, "a?", Console(), as_json=False)
    assert ended.value.code == 128 + signal.SIGTERM
    assert "the whole answer" in capsys.readouterr().out
    assert signal.getsignal(signal.SIGTERM) is signal.SIG_DFL


async def test_a_second_one_does_not(monkeypatch: pytest.MonkeyPatch) -> None:
    device, side = reciting_device({"a?": "the whole answer\n"})
    kill, killed = os.kill, []
    monkeypatch.setattr(os, "kill", lambda pid, number: killed.append((pid, number)))

    def twice() -> None:
        for _ in range(2):
            kill(os.getpid(), signal.SIGTERM)

    side.on_prepare = twice
    talk = Conversation(device, Question(max_tokens=40))
    with pytest.raises(SystemExit):
        await terminal.talk(talk, "a?", Console(), as_json=True)
    assert killed == [(os.getpid(), signal.SIGTERM)]


async def test_an_answer_that_does_not_end_is_stopped() -> None:
    device, side = reciting_device({"a?": "abcdefgh"}, halt_at=5)
    side.timeouts = Timeouts(reach_s=0.0, answer_s=0.01)
    side.on_prepare = lambda: os.kill(os.getpid(), signal.SIGTERM)
    talk = Conversation(device, Question(max_tokens=40))
    with pytest.raises(SystemExit):
        await terminal.talk(talk, "a?", Console(), as_json=True)
