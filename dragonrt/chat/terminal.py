"""The terminal chat: questions in, streamed answers out, until the user leaves."""

import asyncio
import json
import signal
import sys
from collections.abc import AsyncIterator, Iterator
from contextlib import contextmanager

from prompt_toolkit import PromptSession
from prompt_toolkit.patch_stdout import patch_stdout
from rich.console import Console

from dragonrt.chat.conversation import Conversation
from dragonrt.chat.view import AnswerView
from dragonrt.errors import DragonError

PROMPT = "> "
GREETING = (
    "Ask a question. Ctrl-C stops an answer, Ctrl-D leaves. [cyan]Cyan[/] words come from "
    "your documents, [yellow]yellow[/] ones from the cloud's."
)


async def ask_once(conversation: Conversation, question: str, console: Console) -> None:
    """One question, streamed; Ctrl-C ends it with what there is."""
    view = AnswerView(console)
    with _interrupt_stops(conversation):
        reply = await conversation.ask(question, view.piece, view.notice)
    view.end(reply)


async def ask_once_json(conversation: Conversation, question: str) -> None:
    """One question, its answer as one JSON object on one line."""
    with _interrupt_stops(conversation):
        reply = await conversation.ask(question)
    print(json.dumps(reply.to_json(), ensure_ascii=False), flush=True)


async def chat(conversation: Conversation, console: Console, *, as_json: bool) -> None:
    """Questions from the terminal, or line by line from a pipe, until there are no more."""
    if not as_json and sys.stdin.isatty():
        console.print(GREETING)
    async for question in _questions():
        try:
            if as_json:
                await ask_once_json(conversation, question)
            else:
                await ask_once(conversation, question, console)
        except DragonError as error:
            if as_json:
                print(json.dumps({"question": question, "error": str(error)}), flush=True)
            else:
                console.print(f"[red]{error}[/]")


async def _questions() -> AsyncIterator[str]:
    if not sys.stdin.isatty():
        while line := await asyncio.to_thread(sys.stdin.readline):
            if line.strip():
                yield line.strip()
        return
    session: PromptSession[str] = PromptSession()
    while True:
        try:
            with patch_stdout():
                line = await session.prompt_async(PROMPT)
        except KeyboardInterrupt:
            continue
        except EOFError:
            return
        if line.strip():
            yield line.strip()


@contextmanager
def _interrupt_stops(conversation: Conversation) -> Iterator[None]:
    """While an answer is under way Ctrl-C stops the answer, not the program."""
    loop = asyncio.get_running_loop()
    try:
        loop.add_signal_handler(signal.SIGINT, conversation.stop)
    except NotImplementedError:  # Windows: Ctrl-C ends the program
        yield
        return
    try:
        yield
    finally:
        loop.remove_signal_handler(signal.SIGINT)
