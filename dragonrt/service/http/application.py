"""The HTTP service of a device: its routes, and the handlers that do not generate text."""

import asyncio
import signal
import time
from base64 import b64encode
from collections.abc import Awaitable, Callable, Iterable, Sequence
from dataclasses import asdict, replace
from functools import partial
from pathlib import Path
from typing import Annotated, Any, Literal

from msgspec import Meta, Struct
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.middleware.cors import CORSMiddleware
from starlette.requests import ClientDisconnect, Request
from starlette.responses import FileResponse, JSONResponse, Response
from starlette.routing import Mount, Route
from starlette.staticfiles import StaticFiles
from starlette.types import ASGIApp

from dragonrt import __version__
from dragonrt.errors import DragonError
from dragonrt.modes import entry_of
from dragonrt.node.process.composition import Loaded
from dragonrt.node.process.ending import on_signals
from dragonrt.node.process.library import Library
from dragonrt.node.process.programs import device
from dragonrt.service.http.api_answer import AnswerDesk, AnswerForm, AnswerResponse, Reply
from dragonrt.service.http.api_request import (
    ApiError,
    ApiRequest,
    Json,
    invalid,
    json_object,
    read,
    unsupported,
    warning,
    warning_lines,
)
from dragonrt.service.http.forms import FORMS, LATEST, OLLAMA_VERSION, date
from dragonrt.service.http.guard import Admission, ApiKeys, Guard
from dragonrt.service.http.http_settings import HttpSettings
from dragonrt.service.http.metrics import DeviceMetrics, health
from dragonrt.service.http.private_documents import PrivateDocuments
from dragonrt.service.http.web_server import HttpBounds, Places, bounded, listen_on, serving, url_of
from dragonrt.service.setup import DeviceSetup
from dragonrt.service.view import LEAVES
from dragonrt.traces.events import OnNotice
from dragonrt.wire.fields import MAX_CONVERSATION
from dragonrt.wire.messages import PROTOCOL_VERSION
from retrieval import Report

PAGE = Path(__file__).parent / "page"
OLLAMA = "/api/"
EMBEDDINGS = "/v1/embeddings", f"{OLLAMA}embed"
LARGEST_BODY = 2 * MAX_CONVERSATION
SHARE_OF_CONTEXT = 4
"""An answer takes at most 1/SHARE_OF_CONTEXT of the context: documents need room, too."""
LONGEST_NUMBER = 18
"""Digits of a place in a document."""
FOUND, MOST_FOUND = 4, 100
"""Passages that a search finds, usually and at most."""
WAITING, LEAST_WAITING = 4, 16
"""Requests that may wait, for each answer at a time and in all."""
AT_ONCE = 16
"""Texts between which a question's retrieval may run."""

MOST_TEXTS = 2048
"""Texts of one request for embeddings, as in OpenAI's API."""

Handler = Callable[[Request], Awaitable[Response]]
Text = Annotated[str, Meta(min_length=1)]


class EmbeddingsBody(Struct, kw_only=True):
    """The body of a request for embeddings of texts: `input` and options, as in OpenAI's API."""

    input: Text | Annotated[list[Text], Meta(min_length=1, max_length=MOST_TEXTS)]
    encoding_format: Literal["float", "base64"] | None = None
    dimensions: Annotated[int, Meta(ge=1, le=2**31 - 1)] | None = None


async def serve_device(
    setup: DeviceSetup,
    loaded: Loaded,
    http: HttpSettings,
    stops: tuple[str, ...],
    on_notice: OnNotice,
    on_ready: Callable[[str], None],
) -> None:
    """Serve a device over HTTP until SIGINT or SIGTERM; call `on_ready` with the URL at the start.

    The question and seed of `setup`, and `stops`, are the defaults of requests. After a signal,
    running answers may finish, for up to 30 s or until a second signal. Raises DragonError.
    """
    keys = None if http.api_keys is None else ApiKeys.read(http.api_keys)
    context, how, model, library = http.context(), setup.how, loaded.model, loaded.library
    most, why_not = max(1, model.context_length // SHARE_OF_CONTEXT), how.no_probabilities_because
    defaults = ApiRequest(setup.question, setup.seed, stops, http.sources_in_text, most, why_not)
    waiting = max(LEAST_WAITING, WAITING * http.answers_at_once)
    admission = Admission(http.answers_at_once, waiting)
    metrics = DeviceMetrics(0 if library is None else library.skipped)
    places = Places(HttpBounds().for_queue(http.answers_at_once + waiting))
    documents = PrivateDocuments(setup.side.documents, http.uploads)

    def report(update: Report | DragonError) -> None:
        for each in (documents.report, metrics.report, loaded.on_report):
            each(update)

    stopped = asyncio.Event()
    served = replace(loaded, on_report=report, listeners=(metrics.take,))
    with listen_on(http.http_host, http.http_port, http.http_bridge) as listening:
        async with device(served, setup.others, how, on_notice) as connected:
            metrics.watch_device(connected, admission, places)
            service = HttpService(AnswerDesk(connected, admission, metrics), documents, defaults)
            app = service.application(keys, http.allow_origin, http.allow_host)
            async with serving(app, listening, context, places) as server:

                def stop() -> None:
                    admission.close(at_once=stopped.is_set())
                    stopped.set()

                on_signals((signal.SIGINT, signal.SIGTERM), stop, stop)
                on_ready(url_of(http.http_host, listening, "https" if context else "http"))
                await stopped.wait()
                if not await admission.drained():
                    server.stop()  # twice: at once


class HttpService:
    """The HTTP routes of one device and their handlers; `application` returns the ASGI app."""

    def __init__(self, desk: AnswerDesk, documents: PrivateDocuments, defaults: ApiRequest) -> None:
        self._desk, self._device, self._side = desk, desk.device, desk.device.side
        self._documents, self._defaults = documents, defaults
        self._model = self._side.model.name
        self._began = int(time.time())  # a date, as clients of this API expect

    def application(
        self, keys: ApiKeys | None, origins: Sequence[str] = (), hosts: Sequence[str] = ()
    ) -> ASGIApp:
        routes = [
            *(Route(path, self._asks(form), methods=["POST"]) for path, form in FORMS.items()),
            *(Route(path, self._embeddings, methods=["POST"]) for path in EMBEDDINGS),
            Route("/v1/search", self._search),
            Route("/v1/models", _told(lambda: _listed(self._about_models().values()))),
            *(Route(f"{OLLAMA}{each}", _told(self._tags)) for each in ("tags", "ps")),
            Route(f"{OLLAMA}version", _told(lambda: {"version": OLLAMA_VERSION})),
            Route(f"{OLLAMA}show", self._show, methods=["POST"]),
            Route("/v1/models/{model:path}", self._one_model),
            Route("/health", health),
            Route("/ready", self._ready),
            Route("/version", _told(self._version)),
            Route("/metrics", self._desk.metrics.page),
            Route("/documents", self._listing),
            Route("/documents/{name}", self._change, methods=["PUT", "DELETE"]),
            Route("/documents/{name:path}", self._text),
            Route("/", self._page),
            Mount("/page", StaticFiles(directory=PAGE)),
        ]
        handlers: Any = {
            ApiError: self._rejected,
            HTTPException: self._wrong_route,
            ClientDisconnect: self._left,
        }
        app = Guard(Starlette(routes=routes, exception_handlers=handlers), keys, origins, hosts)
        return CORSMiddleware(
            app,
            allow_origins=origins,
            allow_methods=("GET", "POST"),
            allow_headers=("*",),
            allow_private_network=True,  # that is what a permitted page asks
            expose_headers=("Warning", "Retry-After"),
        )

    def _asks(self, form: AnswerForm) -> Handler:
        async def ask(request: Request) -> Response:
            body = await _body(request, self._model)
            asked, usual = form.parse(body, self._defaults), self._defaults.question.max_tokens
            asked = await asyncio.to_thread(asked.fitted, usual, self._side.model)
            answer: Any = AnswerResponse(self._desk, Reply(self._model, asked), form)
            return answer  # type: ignore[no-any-return]  # any ASGI callable is a response

        return ask

    async def _embeddings(self, request: Request) -> Response:
        """Return a vector for each text, embedded like a document; too long a text is cut."""
        embedder, encode = self._library.embedder, self._side.model.encode
        given, ignored = read(await _body(request, embedder.title), EmbeddingsBody)
        texts = [given.input] if isinstance(given.input, str) else given.input
        data: list[Json] = []
        async with self._desk.admission.place():
            for first in range(0, len(texts), AT_ONCE):
                part = partial(embedder.encode, texts[first : first + AT_ONCE])
                for vector in await self._side.librarian.call(part):
                    if given.dimensions not in (None, vector.size):
                        here = f"this embedder has {vector.size}"
                        raise unsupported("dimensions", here, str(given.dimensions))
                    packed = b64encode(vector.astype("<f4").tobytes()).decode()
                    values = packed if given.encoding_format == "base64" else vector.tolist()
                    data.append({"object": "embedding", "index": len(data), "embedding": values})
            tokens = await asyncio.to_thread(lambda: sum(len(encode(text)) for text in texts))
        usage = {"prompt_tokens": tokens, "total_tokens": tokens}
        found = {**_listed(data), "model": embedder.title, "usage": usage}
        if request.url.path.startswith(OLLAMA):
            vectors = [each["embedding"] for each in data]
            found = {"model": embedder.title, "embeddings": vectors, "prompt_eval_count": tokens}
        return JSONResponse(found, headers=warning(warning_lines(ignored)))

    @property
    def _library(self) -> Library:
        if self._side.library is None:
            about = "without documents there is nothing to search: give --documents"
            raise ApiError(404, about, code="no_documents")
        return self._side.library

    async def _search(self, request: Request) -> Response:
        """Return the passages of own documents that may answer a query; no model reads them."""
        query, limit = (request.query_params.get(each, "") for each in ("query", "limit"))
        if not query or not (limit or "1").isdecimal() or len(limit) > LONGEST_NUMBER:
            raise invalid("query", "what to search for, as in /v1/search?query=ferry&limit=4")
        most = min(int(limit or FOUND), MOST_FOUND)
        find = partial(self._library.find, query, most, None, "")
        async with self._desk.admission.place():
            hits = await self._side.librarian.call(find)
        found = [{**asdict(hit.chunk), "relevance": round(hit.score, 4)} for hit in hits]
        return JSONResponse(_listed(found))

    def _tags(self) -> Json:
        named = dict.fromkeys(("name", "model"), self._model + LATEST)
        about = {"modified_at": date(self._began), "size": 0, "digest": "", "details": {}}
        return {"models": [named | about]}

    async def _show(self, request: Request) -> Response:
        await _body(request, self._model)
        length = self._side.model.context_length
        about = {"general.architecture": "dragonrt", "dragonrt.context_length": length}
        kept = dict.fromkeys(("modelfile", "template", "parameters"), "")
        can = {"details": {}, "model_info": about, "capabilities": ["completion"]}
        return JSONResponse({**kept, **can, "modified_at": date(self._began)})

    async def _one_model(self, request: Request) -> Response:
        models, name = self._about_models(), request.path_params["model"]
        _check_model(name, models)
        return JSONResponse(models[name])

    def _about_models(self) -> dict[str, dict[str, Any]]:
        """Return the model that answers, and the embedder of the documents if there are any."""
        about = {"object": "model", "created": self._began, "owned_by": "dragonrt"}
        model, library = self._side.model, self._side.library
        reads = {"languages": model.prompt.template.languages}
        found = {self._model: {**about, "context_length": model.context_length, **reads}}
        if library is not None:
            found[library.embedder.title] = {**about, "languages": library.embedder.languages}
        return {name: {"id": name, **each} for name, each in found.items()}

    async def _ready(self, request: Request) -> Response:
        """Return whether an answer can begin now, and the index follows uploads if allowed."""
        connected = {name: each.connected for name, each in self._device.connectors.items()}
        alone = self._device.settings.goes_alone
        about: dict[str, Any] = {
            "ready": not self._desk.admission.closing and (alone or any(connected.values())),
            "connected": connected,
        }
        if (following := self._side.following) is not None:
            problem = following.stopped or following.failed
            about["documents"] = {"problem": problem or None, "restarts": following.restarts}
            about["ready"] &= not (problem and self._documents.changeable)
        return JSONResponse(about, 200 if about["ready"] else 503)

    def _version(self) -> Json:
        mode = entry_of(self._device.settings).name
        versions = {"dragonrt": __version__, "protocol": PROTOCOL_VERSION}
        levels = {each.level or "": LEAVES[each.level] for each in self._device.levels}
        return {**versions, "model": self._model, "mode": mode, "levels": levels}

    async def _listing(self, request: Request) -> Response:
        return JSONResponse(await self._documents.listing(self._side))

    async def _text(self, request: Request) -> Response:
        start = request.query_params.get("start", "0")
        if not start.isdecimal() or len(start) > LONGEST_NUMBER:
            raise invalid("start", "a character of the document, such as 0")
        name = request.path_params["name"]
        return JSONResponse(await self._documents.text(self._side, name, int(start)))

    async def _change(self, request: Request) -> Response:
        there, name, put = self._documents, request.path_params["name"], request.method == "PUT"
        change = there.add(self._side, name, request) if put else there.delete(self._side, name)
        result = await change
        return JSONResponse(result, 202 if "reason" in result else 200)

    async def _page(self, request: Request) -> Response:
        return FileResponse(PAGE / "index.html", headers={"Cache-Control": "no-cache"})

    async def _rejected(self, request: Request, error: ApiError) -> Response:
        self._desk.metrics.count("refused", {error.status: 1})
        if request.url.path.startswith(OLLAMA):
            return JSONResponse({"error": str(error)}, error.status, error.headers)
        return error.response

    async def _wrong_route(self, request: Request, error: HTTPException) -> Response:
        what = f"{request.method} {request.url.path}"
        wrong = ApiError(error.status_code, f"{what}: {error.detail}", code="unknown_url")
        wrong.headers.update(error.headers or {})
        return await self._rejected(request, wrong)

    async def _left(self, request: Request, error: Exception) -> Response:
        return Response(status_code=499)  # the client has disconnected


def _told(about: Callable[[], Json]) -> Handler:
    """Return the handler that responds with an object."""

    async def tell(request: Request) -> Response:
        return JSONResponse(about())

    return tell


def _listed(data: Iterable[Json]) -> Json:
    return {"object": "list", "data": [*data]}


def _check_model(name: Any, known: Iterable[str]) -> None:
    here = next(iter(known))
    if not isinstance(name, str):
        raise invalid("model", f"the name of a model, such as {here}")
    if name.removesuffix(LATEST) not in known:
        about = f"there is no model {name!r} here: this device has {here}"
        raise ApiError(404, about, code="model_not_found", param="model")


async def _body(request: Request, model: str) -> Json:
    """Return a JSON body of at most LARGEST_BODY bytes, which names the model or none.

    Only JSON is accepted: the form of another site cannot send it.
    """
    kind = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    if kind != "application/json":
        raise ApiError(415, "send JSON: Content-Type: application/json", code="not_json")
    body = json_object(b"".join([piece async for piece in bounded(request, LARGEST_BODY)]))
    _check_model(body.get("model", model), [model])
    return body
