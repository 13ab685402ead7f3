"""What HTTP costs: the same answers of one device in a terminal and over HTTP, by turns.

The terminal is a conversation whose pieces are printed, to nowhere; the client of HTTP is a process
of its own on one connection. The cloud is a second process.
"""

import asyncio
import io
import json
import sys
import time
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any

from rich.console import Console
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from dragonrt import bundled
from dragonrt.modes.question import Question
from dragonrt.modes.settings import DragonSettings
from dragonrt.node.main import Device
from dragonrt.service.http.admission import Admission
from dragonrt.service.http.application import HttpService
from dragonrt.service.http.bounded_http import HttpBounds, Places
from dragonrt.service.http.http_metrics import HttpMetrics
from dragonrt.service.http.private_documents import PrivateDocuments
from dragonrt.service.http.request_body import Defaults
from dragonrt.service.http.web_server import listen_on, serving
from dragonrt.service.view import AnswerView
from dragonrt.traces.events import TokenDecided
from scripts.bench.report import Series, bench_table, print_report
from scripts.papers.arena import RealArena
from scripts.papers.model_sides import run
from scripts.papers.sample_sides import LoadedSide, sample_pair

NOTE = (
    "To the first text and to the end of an answer, from the question. The difference is the "
    "median over pairs of the same answer, asked both ways by turns; the processor's time is "
    "the device process's whole, its model included."
)
MODULE = "scripts.bench.http_client"


@dataclass(frozen=True, slots=True)
class Answered:
    """One answer. Times are milliseconds; those of the processor are the device process's."""

    first_ms: float
    whole_ms: float
    first_cpu_ms: float
    cpu_ms: float
    text: str
    tokens: int = 0


def bench_serve(*, output: Console, messages: Console, repeats: int = 10, seed: int = 1) -> None:
    """Times of the sample questions' answers in a terminal and over HTTP."""
    with messages.status("starting the cloud"), sample_pair() as (device, port):
        question = Question(seed=seed)
        pairs = run(_measure(device, port, question, repeats), virtual=False)
    result = serve_result(pairs)
    table = bench_table("", "terminal", "HTTP", "difference")
    for name, what in (
        ("first", "first text"),
        ("whole", "whole answer"),
        ("first_cpu", "first text, processor"),
        ("cpu", "whole answer, processor"),
    ):
        cells = [result[f"{name}_ms"][way]["median"] for way in ("terminal", "http")]
        extra = result[f"{name}_ms"]["difference"]["median"]
        table.add_row(what, *(f"{each:.1f} ms" for each in cells), f"{extra:+.2f} ms")
    rates = [result["tokens_per_s"][way] for way in ("terminal", "http")]
    table.add_row("tokens/s", *(f"{each:.1f}" for each in rates), f"{result['ratio']:.3f}x")
    print_report(output, "serve", table, [result], seed=seed, note=NOTE)


def serve_result(pairs: Sequence[tuple[Answered, Answered]]) -> dict[str, Any]:
    """Terminal and HTTP beside each other, and the differences of each pair."""
    result: dict[str, Any] = {"answers": len(pairs)}
    for name in ("first_ms", "whole_ms", "first_cpu_ms", "cpu_ms"):
        found = [(getattr(one, name), getattr(other, name)) for one, other in pairs]
        result[name] = {
            "terminal": Series(tuple(one for one, _ in found)).to_json(),
            "http": Series(tuple(other for _, other in found)).to_json(),
            "difference": Series(tuple(other - one for one, other in found)).to_json(),
        }
    tokens = sum(one.tokens for one, _ in pairs)
    seconds = [sum(each.whole_ms for each in way) / 1000 for way in zip(*pairs, strict=True)]
    rates = [tokens / each for each in seconds]
    result["tokens_per_s"] = {"terminal": round(rates[0], 2), "http": round(rates[1], 2)}
    result["ratio"] = round(rates[1] / rates[0], 4)
    result["same_texts"] = all(one.text == other.text for one, other in pairs)
    return result


async def _measure(
    device: LoadedSide, port: int, question: Question, repeats: int
) -> list[tuple[Answered, Answered]]:
    """Pairs of the same answer, who is first changing, after a round that warms everything up."""
    prompts = [each.text for each in bundled.questions()]
    pairs: list[tuple[Answered, Answered]] = []
    async with device.connected(port) as arena, _served(device, arena, question) as client:
        for number in range(repeats + 1):
            for prompt in prompts:
                if number % 2:
                    there = await client.ask(prompt)
                    here = await _in_terminal(arena, question, prompt)
                else:
                    here = await _in_terminal(arena, question, prompt)
                    there = await client.ask(prompt)
                pairs.append((here, there))
    return pairs[len(prompts) :]


async def _in_terminal(arena: RealArena, question: Question, prompt: str) -> Answered:
    view = AnswerView(Console(file=io.StringIO(), force_terminal=True, width=80))
    firsts: list[tuple[float, float]] = []

    def piece(text: str, decision: TokenDecided) -> None:
        view.piece(text, decision)
        if not firsts:
            firsts.append((time.perf_counter(), time.process_time()))

    conversation = arena.conversation(question, DragonSettings())
    cpu_s, began_s = time.process_time(), time.perf_counter()
    reply = await conversation.ask(prompt, piece)
    end_s, end_cpu_s = time.perf_counter(), time.process_time()
    first_s, first_cpu_s = firsts[0] if firsts else (end_s, end_cpu_s)
    return Answered(
        1000 * (first_s - began_s),
        1000 * (end_s - began_s),
        1000 * (first_cpu_s - cpu_s),
        1000 * (end_cpu_s - cpu_s),
        reply.text,
        len(reply.answer.tokens),
    )


class _FirstBody:
    """ASGI middleware that notes the process's time when an answer's first bytes are sent."""

    def __init__(self, app: ASGIApp) -> None:
        self.cpu_s = 0.0
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        sent = False

        async def noting(message: Message) -> None:
            nonlocal sent
            await send(message)
            if message["type"] == "http.response.body" and not sent:
                sent, self.cpu_s = True, time.process_time()

        await self._app(scope, receive, noting)


@dataclass(frozen=True, slots=True)
class _Client:
    """The process that asks over HTTP."""

    process: asyncio.subprocess.Process
    model: str
    service: _FirstBody

    async def ask(self, prompt: str) -> Answered:
        body = {
            "model": self.model,
            "messages": [{"role": "user", "content": prompt}],
            "stream": True,
            "sources_in_text": False,
        }
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        cpu_s = time.process_time()
        self.process.stdin.write(json.dumps(body).encode() + b"\n")
        said = json.loads(await self.process.stdout.readline())
        spent_s = time.process_time() - cpu_s
        first_s = said["whole_s"] if said["first_s"] is None else said["first_s"]
        return Answered(
            1000 * first_s,
            1000 * said["whole_s"],
            1000 * (self.service.cpu_s - cpu_s),
            1000 * spent_s,
            said["text"].rstrip(),
        )


@asynccontextmanager
async def _served(
    loaded: LoadedSide, arena: RealArena, question: Question
) -> AsyncIterator[_Client]:
    """The arena's device over HTTP, and who asks it."""
    settings = DragonSettings()
    device = Device(arena.side, arena.connectors, settings, arena.resources(settings))
    defaults = Defaults(question, question.seed, (), False, question.max_tokens)
    documents = PrivateDocuments(loaded.settings, None)
    service = HttpService(device, documents, defaults, Admission(16, 16), HttpMetrics())
    pipe = asyncio.subprocess.PIPE
    with listen_on("127.0.0.1", 0) as listening:
        noting = _FirstBody(service.application(None))
        async with serving(noting, listening, None, Places(HttpBounds())):
            port = str(listening.getsockname()[1])
            process = await asyncio.create_subprocess_exec(
                *(sys.executable, "-m", MODULE, port), stdin=pipe, stdout=pipe
            )
            try:
                yield _Client(process, loaded.model.name, noting)
            finally:
                assert process.stdin is not None
                process.stdin.close()
                await process.wait()
