"""One request for an answer, from its place in the queue to the last byte."""

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Coroutine, Sequence
from contextlib import aclosing, asynccontextmanager
from dataclasses import dataclass
from typing import Any

from starlette.responses import JSONResponse, StreamingResponse
from starlette.types import Receive, Scope, Send

from dragonrt.errors import DragonError
from dragonrt.node.connections.connector import NotConnectedError
from dragonrt.node.process.local_side import LongQuestionError
from dragonrt.node.process.programs import Device, LevelError
from dragonrt.service.answer import Piece
from dragonrt.service.chat import Chat, Stream, code_of
from dragonrt.service.http.admission import Admission
from dragonrt.service.http.answer_form import AnswerForm, RankedToken, SseEvent
from dragonrt.service.http.api_errors import ApiError, invalid
from dragonrt.service.http.api_request import ApiRequest
from dragonrt.service.http.metrics import DeviceMetrics
from dragonrt.service.http.request_body import Json
from dragonrt.service.languages import OtherLanguageError
from dragonrt.service.tasks import TaskError
from dragonrt.timeouts import USUAL
from dragonrt.traces.events import Disclosed, Record, TokenDecided, TokenRanked
from dragonrt.traces.file import to_object

PING_S = 15.0
"""Seconds after which a silent stream sends a comment: proxies close idle connections."""


@dataclass(frozen=True, slots=True)
class AnswerDesk:
    """The shared state of requests for answers."""

    device: Device
    admission: Admission
    metrics: DeviceMetrics

    def chat(self, request: ApiRequest) -> Chat:
        """Return the chat of a request. Raises ApiError for a level not allowed."""
        try:
            device = self.device if request.level is None else self.device.at(request.level)
        except LevelError as error:
            raise invalid("disclose", error.allowed) from None
        asked = request.question
        return Chat(device, asked, request.seed, request.stops, asked.history)


class AnswerResponse:
    """An ASGI response: errors before the first piece are HTTP errors, later ones are events.

    The answer stops if its client disconnects.
    """

    def __init__(self, desk: AnswerDesk, request: ApiRequest, form: AnswerForm) -> None:
        self._desk = desk
        self._request = request
        self._form = form
        self._ranked: list[RankedToken] = []  # tokens whose text was not sent yet

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer the request; a failure before the first piece is an HTTP error."""
        try:
            await _while_there(receive, self._respond(scope, receive, send))
        except ApiError as error:
            self._desk.metrics.refuse(error.status)
            await error.response(scope, receive, send)

    async def _respond(self, scope: Scope, receive: Receive, send: Send) -> None:
        headers = self._request.warnings
        async with (
            self._desk.admission.place(),
            self._asked() as stream,
            aclosing(self._events(stream)) as events,
        ):
            if self._request.stream:
                headers |= {"X-Accel-Buffering": "no"}
                body = _encoded(await anext(events), events)
                sent = StreamingResponse(body, headers=headers, media_type="text/event-stream")
                await sent.stream_response(send)
                return
            async for _ in events:
                pass
            whole = self._form.whole(await stream)
            await JSONResponse(whole, headers=headers)(scope, receive, send)

    async def _events(self, stream: Stream) -> AsyncGenerator[list[SseEvent], None]:
        """Yield the events of each moment. Raises ApiError for a failure before the first ones."""
        form, begun, trace = self._form, False, _LiveTrace(self._desk.device)
        try:
            async for each in stream.news(PING_S):
                if not each and not begun:
                    continue
                events = [] if begun else [*form.begin()]
                begun = True
                if self._request.traced:
                    events += form.trace(trace.events(each))
                text, tokens = self._pieces(each)
                if text:
                    events += form.text(text, tokens)
                if events or not each:
                    yield events
        except DragonError as error:
            failure = api_error(error, self._request)
            if not begun or not self._request.stream:
                raise failure from error
            yield [*form.failed(failure)]
            return
        yield [*([] if begun else form.begin()), *form.end(await stream)]

    @asynccontextmanager
    async def _asked(self) -> AsyncIterator[Stream]:
        """Start the answer; it is ended if the context ends first."""
        question, traced = self._request.question, self._request.traced
        records = traced or question.top_logprobs is not None
        stream = self._desk.chat(self._request).stream(question.prompt, records=records)
        stream.when_ended(self._desk.metrics.over)
        try:
            yield stream
        finally:
            await stream.end()

    def _pieces(self, news: Sequence[Piece | Record]) -> tuple[str, list[RankedToken]]:
        """Return the new text, and its tokens if their probabilities are wanted."""
        decode, text = self._desk.device.side.model.decode, ""
        tokens: list[RankedToken] = []
        for each in news:
            match each:
                case Piece():
                    text += each.text
                    tokens, self._ranked = tokens + self._ranked, []
                case Record(event=TokenRanked() as event):
                    self._ranked.append(RankedToken.of(event, decode))
        return text, tokens


class _LiveTrace:
    """The events of an answer as in a trace file, each token with its text, then the link's state.

    Bytes are those of the device's connections since the start, of all answers under way.
    """

    def __init__(self, device: Device) -> None:
        self._device = device
        self._before = self._traffic()

    def events(self, news: Sequence[Piece | Record]) -> list[Json]:
        peers = [connector.peer for connector in self._device.connectors.values()]
        trips = [peer.round_trip_s for peer in peers if peer is not None]
        sent, received = self._traffic()
        link = {
            "event": "link",
            "rtt": max(trips, default=None),
            "connected": len(trips),
            "bytes_sent": sent - self._before[0],
            "bytes_received": received - self._before[1],
        }
        return [*map(self._event, news), link]

    def _event(self, news: Piece | Record) -> Json:
        match news:
            case Piece():
                return {"event": "piece", "text": news.text, "share": round(news.device_share, 4)}
            case Record(event=TokenDecided(token=token) | Disclosed(token=int(token))):
                return {**to_object(news), "text": self._device.side.model.decode([token])}
            case Record():
                return to_object(news)

    def _traffic(self) -> tuple[int, int]:
        each = [connector.traffic() for connector in self._device.connectors.values()]
        return sum(now.sent for now in each), sum(now.received for now in each)


def api_error(error: DragonError, request: ApiRequest) -> ApiError:
    """Return the HTTP error of an answer that failed."""
    if isinstance(error, ApiError):
        return error
    code = code_of(error)
    if isinstance(error, LongQuestionError):
        return ApiError(
            400,
            f"the question in {request.asked_in} takes {error.tokens} tokens, but there is room "
            f"for {error.room} beside documents and answer: shorten it, or lower "
            f"{request.length.field if request.length else 'max_tokens'}",
            code=code,
            param=request.asked_in,
        )
    if isinstance(error, OtherLanguageError | TaskError):
        return ApiError(400, str(error), code=code, param=request.asked_in)
    if isinstance(error, NotConnectedError):
        return ApiError(503, str(error), code=code, retry_after_s=USUAL.probe_s)
    return ApiError(500, str(error), code=code)


async def _encoded(
    first: list[SseEvent], others: AsyncIterator[list[SseEvent]]
) -> AsyncIterator[str]:
    """Yield server-sent events; those of one moment are one piece of the body."""
    yield "".join(map(str, first))
    async for events in others:
        yield "".join(map(str, events)) or ": ping\n\n"


async def _while_there(receive: Receive, work: Coroutine[Any, Any, None]) -> None:
    """Run the work; cancel it if the client disconnects first."""

    async def listen() -> None:
        while (await receive())["type"] != "http.disconnect":
            pass

    working, listening = asyncio.create_task(work), asyncio.create_task(listen())
    try:
        await asyncio.wait((working, listening), return_when=asyncio.FIRST_COMPLETED)
        if working.done():
            await working
    finally:
        for task in (working, listening):
            task.cancel()
        await asyncio.gather(working, listening, return_exceptions=True)
