"""The terminal chat: questions in, streamed answers out, until the user leaves."""

import asyncio
import json
import os
import signal
import sys
from collections import deque
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from functools import partial
from typing import Any, TypeVar

from prompt_toolkit import PromptSession
from prompt_toolkit.application import create_app_session
from prompt_toolkit.output import create_output
from prompt_toolkit.patch_stdout import patch_stdout
from rich.console import Console
from rich.text import Text

from dragonrt.errors import DragonError
from dragonrt.modes import entry_of
from dragonrt.privacy.disclosure import Disclosure
from dragonrt.service.answer import Answer
from dragonrt.service.chat import Chat, News, code_of
from dragonrt.service.prompts import small_talk
from dragonrt.service.view import LEAVES, AnswerView

T = TypeVar("T")

Show = Callable[[str], None]
MOST_KEPT = 100
"""The most lines held back during an answer; older ones are dropped."""
GREETING = "Ask a question. Ctrl-C stops an answer, Ctrl-D leaves."
COLOURS = {
    True: "[cyan]Cyan[/] words come from your documents, [yellow]yellow[/] ones from the cloud's.",
    False: "[cyan]Cyan[/] words were drafted on this side, [yellow]yellow[/] ones on the other.",
}
"""What the colours mean, by whether the mode mixes the documents of both sides."""
UNSENT = "Nothing was sent: without a terminal nobody can be asked."


class BetweenAnswers:
    """A queue that holds lines for the user, such as index reports, while an answer is printed."""

    def __init__(self) -> None:
        self._answering = False
        self._kept: deque[Callable[[], None]] = deque(maxlen=MOST_KEPT)

    def saying(self, say: Callable[[T], None]) -> Callable[[T], None]:
        """Return a function that calls `say`, but delays calls during an answer until its end."""

        def later(what: T) -> None:
            if self._answering:
                self._kept.append(partial(say, what))
            else:
                say(what)

        return later

    @contextmanager
    def answering(self) -> Iterator[None]:
        self._answering = True
        try:
            yield
        finally:
            self._answering = False
            while self._kept:
                self._kept.popleft()()


class Consent:
    """The user's consent to send questions, asked for before a chat's first question.

    `show` prints a line. Without a terminal nobody can be asked, and nothing is ever sent.
    """

    def __init__(self, chat: Chat, show: Show, *, as_json: bool) -> None:
        self._chat = chat
        self._show = show
        self._as_json = as_json
        self._given = False

    async def given(self, question: str) -> bool:
        """Ask the user whether `question` may be sent to the clouds; return the answer.

        The user may first choose another disclosure level. After a yes nothing is asked again.
        """
        device = self._chat.device
        if self._given or small_talk(question, device.side.model.name):
            return True
        level, levels = device.settings.level, [each.level for each in device.levels]
        others = [each for each in levels if each is not None]
        while True:
            if self._as_json:
                _print({"question": question, "level": level, "leaves": LEAVES[level]})
            else:
                at = f", level {level}" if level else ""
                self._show(f"Sent to {', '.join(device.connectors)}{at}: {LEAVES[level]}.")
                self._show(f"The question: {question}")
            if not sys.stdin.isatty():
                self._show(UNSENT)
                return False
            answer = await _choice(["y", "n", *others])
            if answer in ("y", "n"):
                break
            level = Disclosure(answer)
        if answer == "y":
            self._given = True
            if level is not None:
                self._chat.device = device.at(level)
        return self._given


async def _choice(choices: Sequence[str]) -> str:
    """Return what the user chooses; "n" for Ctrl-C and Ctrl-D."""
    ask = _prompt(f"Send it? {', '.join(choices)}: ")
    try:
        while (found := (await ask()).lower()) not in choices:
            pass
    except (KeyboardInterrupt, EOFError):
        return "n"
    return found


def _prompt(text: str) -> Callable[[], Awaitable[str]]:
    """Return what reads a line from the user; other output appears above it."""
    terminal = create_output(always_prefer_tty=True)
    session: PromptSession[str] = PromptSession(output=terminal)

    async def read() -> str:
        with create_app_session(output=terminal), patch_stdout(raw=True):
            return (await session.prompt_async(text, handle_sigint=False)).strip()

    return read


async def talk(
    chat: Chat,
    question: str | None,
    console: Console,
    *,
    as_json: bool,
    lines: BetweenAnswers | None = None,
    show: Show | None = None,
) -> None:
    """Print the answer to `question` or, if it is None, to each line that a user types.

    With `as_json`, print a JSON object for each part of a question, and one for several together.
    `lines` are held back during an answer. If `show` is given, it prints what would be sent, and
    the user must agree: see Consent. Raises DragonError if the answer to `question` fails.
    """
    lines = lines or BetweenAnswers()
    consent = None if show is None else Consent(chat, show, as_json=as_json)
    with suppress(NotImplementedError):  # Windows
        asyncio.get_running_loop().remove_signal_handler(signal.SIGTERM)

    async def answer(question: str) -> None:
        if consent is not None and not await consent.given(question):
            return
        with lines.answering(), _terminates_after_the_answer(chat):
            if as_json:
                whole = await chat.ask(question, on_news=_print_part)
                if whole.answered:
                    _print(whole.to_object())
                return
            view = AnswerView(console)
            try:
                view.end(await chat.ask(question, on_news=view.show))
            except BaseException:  # the next output begins a new line, even after an error
                view.end_line()
                raise

    async def try_to_answer(question: str) -> None:
        try:
            await answer(question)
        except DragonError as error:
            if as_json:
                _print({"question": question, "error": str(error), "code": code_of(error)})
            else:
                console.print(Text(str(error), style="red"), soft_wrap=True)

    ctrl_c_stops = partial(_on_signal, signal.SIGINT, chat.stop)
    if question is not None:
        with ctrl_c_stops():
            await answer(question)
    elif not sys.stdin.isatty():
        async for each in _piped_questions():
            with ctrl_c_stops():
                await try_to_answer(each)
    else:
        if not as_json:
            console.print(GREETING)
            console.print(COLOURS[entry_of(chat.device.settings).unread is None])
        with ctrl_c_stops():  # also between answers: a late Ctrl-C ends nothing
            async for each in typed_questions():
                await try_to_answer(each)


def _print(entry: dict[str, Any]) -> None:
    print(json.dumps(entry, ensure_ascii=False), flush=True)


def _print_part(news: News) -> None:
    if isinstance(news, Answer):
        _print(news.to_object())


async def _piped_questions() -> AsyncIterator[str]:
    while line := await asyncio.to_thread(sys.stdin.readline):
        if line.strip():
            yield line.strip()


async def typed_questions() -> AsyncIterator[str]:
    """Yield the lines that a user types at the prompt, until Ctrl-D."""
    ask = _prompt("> ")
    while True:
        try:
            if line := await ask():
                yield line
        except KeyboardInterrupt:  # Ctrl-C at the prompt drops the line
            continue
        except EOFError:
            return


@contextmanager
def _terminates_after_the_answer(chat: Chat) -> Iterator[None]:
    """Make SIGTERM wait for the answer, within the side's timeouts; a second one does not wait."""
    loop = asyncio.get_running_loop()
    limits: list[asyncio.TimerHandle] = []

    def terminate() -> None:
        if limits:
            loop.remove_signal_handler(signal.SIGTERM)
            os.kill(os.getpid(), signal.SIGTERM)
        else:
            timeouts = chat.device.side.timeouts
            limits.append(loop.call_later(timeouts.answer_s, chat.stop))

    try:
        with _on_signal(signal.SIGTERM, terminate):
            yield
    finally:
        for limit in limits:
            limit.cancel()
    if limits:
        raise SystemExit(128 + signal.SIGTERM)


@contextmanager
def _on_signal(number: signal.Signals, act: Callable[[], None]) -> Iterator[None]:
    loop = asyncio.get_running_loop()
    try:
        loop.add_signal_handler(number, act)
    except NotImplementedError:  # Windows: it ends the program
        yield
        return
    try:
        yield
    finally:
        loop.remove_signal_handler(number)
