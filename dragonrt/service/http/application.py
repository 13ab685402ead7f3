"""The routes of the service, and what they answer that is no answer."""

import asyncio
import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

from prometheus_client import CONTENT_TYPE_LATEST
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect, Request
from starlette.responses import FileResponse, JSONResponse, Response
from starlette.routing import Mount, Route
from starlette.staticfiles import StaticFiles
from starlette.types import ASGIApp

from dragonrt import __version__
from dragonrt.modes.registry import entry_of
from dragonrt.node.main import Device
from dragonrt.service.http.admission import Admission
from dragonrt.service.http.answer_form import AnswerForm
from dragonrt.service.http.api_answer import AnswerDesk, AnswerResponse
from dragonrt.service.http.api_errors import ApiError, invalid
from dragonrt.service.http.chat_completions import ChatCompletion, Completion
from dragonrt.service.http.embeddings_api import embedder_name, embeddings
from dragonrt.service.http.guard import Guard
from dragonrt.service.http.http_metrics import HttpMetrics
from dragonrt.service.http.http_settings import ApiKeys
from dragonrt.service.http.private_documents import PrivateDocuments
from dragonrt.service.http.request_body import TEXT, Defaults, RequestBody, bounded
from dragonrt.service.http.responses_api import ApiResponse
from dragonrt.wire.limits import MAX_CONVERSATION
from dragonrt.wire.messages import PROTOCOL_VERSION

PAGE = Path(__file__).parent / "page"
LARGEST_BODY = 2 * MAX_CONVERSATION

Handler = Callable[[Request], Awaitable[Response]]

APIS: dict[str, type[AnswerForm]] = {
    "/v1/chat/completions": ChatCompletion,
    "/v1/completions": Completion,
    "/v1/responses": ApiResponse,
}
"""How each API asks for an answer and tells it: all else of an answer is the same."""


class HttpService:
    """What the routes do with one device."""

    def __init__(
        self,
        device: Device,
        documents: PrivateDocuments,
        defaults: Defaults,
        admission: Admission,
        metrics: HttpMetrics,
    ) -> None:
        self._device, self._model = device, device.side.model.name
        self._documents, self._defaults = documents, defaults
        self._desk = AnswerDesk(device, admission, metrics)
        self._began = int(time.time())  # a date, as clients of this API expect

    def application(self, keys: ApiKeys | None) -> ASGIApp:
        """The whole service, guarded."""
        routes = [
            *(Route(path, self._asks(form), methods=["POST"]) for path, form in APIS.items()),
            Route("/v1/embeddings", self._embeddings, methods=["POST"]),
            Route("/v1/models", self._models),
            Route("/v1/models/{model:path}", self._one_model),
            Route("/health", self._health),
            Route("/ready", self._ready),
            Route("/version", self._version),
            Route("/metrics", self._numbers),
            Route("/documents", self._listing),
            Route("/documents/{name}", self._change, methods=["PUT", "DELETE"]),
            Route("/", self._page),
            Mount("/page", StaticFiles(directory=PAGE)),
        ]
        app = Starlette(
            routes=routes,
            exception_handlers={
                ApiError: self._refused,
                HTTPException: self._wrong_route,
                ClientDisconnect: self._left,
            },
        )
        return Guard(app, keys)

    def _asks(self, form: type[AnswerForm]) -> Handler:
        async def ask(request: Request) -> Response:
            body = RequestBody.parse(await _body(request))
            _check_model(body.take("model", TEXT), [self._model])
            asked = form.parse(body, self._defaults)
            asked = await self._defaults.fitted(asked, self._device.side.model)
            answer: Any = AnswerResponse(self._desk, asked, form(self._model, asked))
            return answer  # type: ignore[no-any-return]  # any ASGI callable is a response

        return ask

    async def _embeddings(self, request: Request) -> Response:
        body, side = RequestBody.parse(await _body(request)), self._device.side
        if side.library is None:
            raise ApiError(
                404, "without documents there is no embedder: give --documents", code="no_embedder"
            )
        embedder = side.library.embedder
        _check_model(body.take("model", TEXT), [name := embedder_name(embedder)])
        async with self._desk.admission.place():
            return await embeddings(body, name, embedder, side)

    async def _models(self, request: Request) -> Response:
        return JSONResponse({"object": "list", "data": list(self._about_models().values())})

    async def _one_model(self, request: Request) -> Response:
        models, name = self._about_models(), request.path_params["model"]
        _check_model(name, list(models))
        return JSONResponse(models[name])

    def _about_models(self) -> dict[str, dict[str, Any]]:
        """The model that answers, and the embedder of the documents if there are any."""
        side = self._device.side
        about = {"object": "model", "created": self._began, "owned_by": "dragonrt"}
        found = {self._model: {**about, "context_length": side.model.context_length}}
        if side.library is not None:
            found[embedder_name(side.library.embedder)] = about
        return {name: {"id": name, **model} for name, model in found.items()}

    async def _health(self, request: Request) -> Response:
        return JSONResponse({"status": "ok"})

    async def _ready(self, request: Request) -> Response:
        """Whether an answer could begin now: with the other sides lost, where it may go alone.

        Not where files can be uploaded and nothing would index them.
        """
        connected = {name: each.connected for name, each in self._device.connectors.items()}
        alone = self._device.settings.goes_alone
        about: dict[str, Any] = {
            "ready": not self._desk.admission.closing and (alone or any(connected.values())),
            "connected": connected,
        }
        if (following := self._device.side.following) is not None:
            problem = following.stopped or following.failed
            about["documents"] = {"problem": problem or None, "restarts": following.restarts}
            about["ready"] &= not (problem and self._documents.changeable)
        return JSONResponse(about, 200 if about["ready"] else 503)

    async def _version(self, request: Request) -> Response:
        mode = entry_of(self._device.settings).name
        versions = {"dragonrt": __version__, "protocol": PROTOCOL_VERSION}
        return JSONResponse({**versions, "model": self._model, "mode": mode})

    async def _numbers(self, request: Request) -> Response:
        page = await asyncio.to_thread(self._desk.metrics.page)
        return Response(page, headers={"Content-Type": CONTENT_TYPE_LATEST})

    async def _listing(self, request: Request) -> Response:
        return JSONResponse(await self._documents.listing(self._device.side))

    async def _change(self, request: Request) -> Response:
        name, side = request.path_params["name"], self._device.side
        if request.method == "PUT":
            said = await self._documents.add(side, name, request.stream())
        else:
            said = await self._documents.delete(side, name)
        return JSONResponse(said, 202 if "reason" in said else 200)

    async def _page(self, request: Request) -> Response:
        return FileResponse(PAGE / "index.html", headers={"Cache-Control": "no-cache"})

    async def _refused(self, request: Request, error: Exception) -> Response:
        assert isinstance(error, ApiError)
        self._desk.metrics.refused(error.status)
        return error.response

    async def _wrong_route(self, request: Request, error: Exception) -> Response:
        assert isinstance(error, HTTPException)
        what = f"{request.method} {request.url.path}"
        refusal = ApiError(error.status_code, f"{what}: {error.detail}", code="unknown_url")
        return JSONResponse(refusal.to_json(), refusal.status, error.headers)

    async def _left(self, request: Request, error: Exception) -> Response:
        return Response(status_code=499)  # nobody reads it


def _check_model(name: str | None, known: list[str]) -> None:
    """Raise ApiError unless that is a model of this device."""
    if name is None:
        raise invalid("model", f"the name of a model, such as {known[0]}")
    if name not in known:
        raise ApiError(
            404,
            f"there is no model {name!r} here: this device has {known[0]}",
            code="model_not_found",
            param="model",
        )


async def _body(request: Request) -> bytes:
    """The bytes of a JSON body, of which no more than is allowed are ever kept.

    Only JSON: what a form of another site could send is refused.
    """
    kind = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    if kind != "application/json":
        raise ApiError(415, "send JSON: Content-Type: application/json", code="not_json")
    return b"".join([piece async for piece in bounded(request.stream(), LARGEST_BODY)])
