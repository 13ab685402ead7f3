"""The service on loopback, in front of a scripted device, and clients of it."""

import asyncio
import ssl
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx2
import pytest
from openai import AsyncOpenAI

from dragonrt.modes.dragon.settings import DragonSettings
from dragonrt.modes.question import Question
from dragonrt.service.http.api_answer import AnswerDesk
from dragonrt.service.http.api_request import ApiRequest
from dragonrt.service.http.application import HttpService
from dragonrt.service.http.guard import Admission, ApiKeys
from dragonrt.service.http.metrics import DeviceMetrics
from dragonrt.service.http.private_documents import PrivateDocuments
from dragonrt.service.http.web_server import HttpBounds, Places, WebServer, listen_on, serving
from tests.service.conftest import RecitingSide, reciting_device

USUAL, ALONE = HttpBounds(), DragonSettings()


@dataclass(frozen=True, slots=True)
class Form:
    """An API: its fields of a question, and where its answers and streams have the text."""

    path: str
    asks: Callable[[str], dict[str, Any]]
    asked_in: str
    text: Callable[[Any], str]
    piece: Callable[[Any], str | None]


FORMS = {
    "chat": Form(
        "chat/completions",
        lambda asked: {"messages": [{"role": "user", "content": asked}]},
        "messages[0].content",
        lambda whole: whole["choices"][0]["message"]["content"],
        lambda event: event["choices"][0]["delta"].get("content") if event["choices"] else None,
    ),
    "response": Form(
        "responses",
        lambda asked: {"input": asked},
        "input",
        lambda whole: whole["output"][0]["content"][0]["text"],
        lambda event: event["delta"] if event["type"] == "response.output_text.delta" else None,
    ),
}
EVERY_FORM = pytest.mark.parametrize("form", FORMS.values(), ids=FORMS)
BOUND_S = 20.0
"""What a test waits for comes at once, or never."""


@dataclass(frozen=True, slots=True)
class Served:
    """A service that runs, and what is behind it."""

    url: str
    http: httpx2.AsyncClient
    server: WebServer
    admission: Admission
    places: Places
    side: RecitingSide

    @property
    def port(self) -> int:
        return int(self.url.rpartition(":")[2])

    def openai(self, key: str = "none") -> AsyncOpenAI:
        """The official client."""
        return AsyncOpenAI(base_url=f"{self.url}/v1", api_key=key, max_retries=0)

    async def ask(self, form: Form, asked: str, **fields: Any) -> httpx2.Response:
        body = {"model": "bytes", "sources_in_text": False, **form.asks(asked), **fields}
        return await self.http.post(f"/v1/{form.path}", json=body)

    async def chat(self, content: str, **fields: Any) -> httpx2.Response:
        return await self.http.post("/v1/chat/completions", json=chat_body(content, **fields))


def chat_body(content: str, **fields: Any) -> dict[str, Any]:
    messages = [{"role": "user", "content": content}]
    return {"model": "bytes", "messages": messages, "sources_in_text": False, **fields}


async def until(true: Callable[[], bool]) -> None:
    """Give the loop its turns until it is so."""
    async with asyncio.timeout(BOUND_S):
        while not true():  # noqa: ASYNC110 (what a server does is no event of ours)
            await asyncio.sleep(0.001)


@asynccontextmanager
async def served(
    answers: dict[str, str],
    *,
    halt_at: int | None = None,
    at_once: int = 16,
    waiting: int = 16,
    keys: ApiKeys | None = None,
    tls: ssl.SSLContext | None = None,
    trusted: ssl.SSLContext | bool = True,
    bounds: HttpBounds = USUAL,
    how: DragonSettings = ALONE,
    uploads: Path | None = None,
    origins: tuple[str, ...] = (),
    hosts: tuple[str, ...] = (),
) -> AsyncIterator[Served]:
    """The service in front of a device that knows these answers and has no cloud."""
    device, side = reciting_device(answers, halt_at=halt_at)
    device.settings = how
    defaults = ApiRequest(Question(max_tokens=60), None, (), True, 200)
    admission, metrics = Admission(at_once, waiting), DeviceMetrics()
    side.sinks = (metrics.take,)
    documents = PrivateDocuments((), uploads)
    service = HttpService(AnswerDesk(device, admission, metrics), documents, defaults)
    places = Places(bounds)
    metrics.watch_device(device, admission, places)
    with listen_on("127.0.0.1", 0) as listening:
        url = f"{'https' if tls else 'http'}://127.0.0.1:{listening.getsockname()[1]}"
        app = service.application(keys, origins, hosts)
        async with serving(app, listening, tls, places) as server:
            async with httpx2.AsyncClient(base_url=url, timeout=BOUND_S, verify=trusted) as http:
                yield Served(url, http, server, admission, places, side)
            server.stop()
