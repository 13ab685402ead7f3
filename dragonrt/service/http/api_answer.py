"""One request for an answer, from its turn in the queue to the last byte."""

import asyncio
import json
from collections.abc import AsyncGenerator, AsyncIterator, Coroutine
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, replace
from typing import Any

from sse_starlette import EventSourceResponse, ServerSentEvent
from starlette.responses import JSONResponse
from starlette.types import Receive, Scope, Send

from dragonrt.errors import DragonError
from dragonrt.node.hosts import NotConnectedError
from dragonrt.node.local_side import LongQuestionError
from dragonrt.node.main import Device
from dragonrt.service.conversation import Conversation, Reply
from dragonrt.service.http.admission import Admission
from dragonrt.service.http.answer_form import AnswerForm, RankedToken, SseEvent
from dragonrt.service.http.api_errors import ApiError
from dragonrt.service.http.http_metrics import HttpMetrics
from dragonrt.service.http.live_trace import AnswerPiece, LiveTrace
from dragonrt.service.http.request_body import ApiRequest
from dragonrt.timeouts import USUAL
from dragonrt.traces.events import Record, TokenRanked

Events = list[SseEvent]
News = list[AnswerPiece | Record]


class ClientGoneError(Exception):
    """Nobody waits for the response any more."""


@dataclass(frozen=True, slots=True)
class AnswerDesk:
    """Where answers are asked for."""

    device: Device
    admission: Admission
    metrics: HttpMetrics


class AnswerResponse:
    """An ASGI response: errors before the first piece are HTTP errors, later ones are events.

    A client that goes away stops its answer, wherever that is.
    """

    def __init__(self, desk: AnswerDesk, request: ApiRequest, form: AnswerForm) -> None:
        self._desk = desk
        self._request = request
        self._form = form
        self._ranked: list[RankedToken] = []  # of which no text was sent yet

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        headers = self._request.warnings
        # A stream that is cut off is cancelled again and again: what has to end well ends here.
        async with AsyncExitStack() as stack:
            try:
                begun = await _while_there(receive, self._begun(stack))
            except ClientGoneError:
                return
            except ApiError as error:
                self._desk.metrics.refused(error.status)
                await error.response(scope, receive, send)
                return
            if isinstance(begun, dict):
                await JSONResponse(begun, headers=headers)(scope, receive, send)
                return
            stream = EventSourceResponse(_encoded(*begun), headers=headers, sep="\n")
            await stream(scope, receive, send)

    async def _begun(
        self, stack: AsyncExitStack
    ) -> tuple[Events, AsyncIterator[Events]] | dict[str, Any]:
        """Return the first events of a stream and those to come, or the whole answer's object."""
        await stack.enter_async_context(self._desk.admission.place())
        events = self._events(await stack.enter_async_context(self._asked()))
        stack.push_async_callback(events.aclose)
        first = await anext(events)
        if self._request.stream:
            return first, events
        async for _ in events:
            pass
        return self._form.whole(self._reply)

    async def _events(self, news: AsyncIterator[News]) -> AsyncGenerator[Events, None]:
        """Yield the events of each moment. Raises ApiError for a failure before the first ones."""
        form, begun, trace = self._form, False, LiveTrace(self._desk.device)
        try:
            async for each in news:
                events = [] if begun else [*form.begin()]
                begun = True
                if self._request.traced:
                    events += form.trace(trace.events(each))
                text, tokens = self._pieces(each)
                if text:
                    events += form.text(text, tokens)
                yield events
        except DragonError as error:
            failure = api_error(error, self._request)
            if not begun or not self._request.stream:
                raise failure from error
            yield [*form.failed(failure)]
            return
        yield [*([] if begun else form.begin()), *form.end(self._reply)]

    @asynccontextmanager
    async def _asked(self) -> AsyncIterator[AsyncIterator[News]]:
        """Ask, and yield what comes, some at a time; then the reply is there.

        What nobody has read yet is kept: at most an answer's tokens and what they cost. Reading
        raises DragonError if the answer fails. It is stopped if it is not over when this ends.
        """
        request, came = self._request, asyncio.Event()
        unread: News = []
        question, history = replace(request.question, history=()), list(request.question.history)
        stops = request.stops
        conversation = Conversation(self._desk.device, question, request.seed, stops, history)

        def hear(news: AnswerPiece | Record) -> None:
            unread.append(news)
            came.set()

        def over(asking: "asyncio.Task[Reply]") -> None:
            failed = asking.cancelled() or asking.exception() is not None
            self._desk.metrics.over(None if failed else asking.result())
            came.set()

        async def read() -> AsyncIterator[News]:
            while not asking.done() or unread:
                await came.wait()
                came.clear()
                news, unread[:] = unread[:], []
                if news:
                    yield news
            self._reply = asking.result()

        wants_records = request.traced or question.top_logprobs is not None
        asking = asyncio.create_task(
            conversation.ask(
                question.prompt,
                lambda text, decision: hear(AnswerPiece(text, decision)),
                on_record=hear if wants_records else lambda record: None,
            ),
            name="served answer",
        )
        asking.add_done_callback(over)
        try:
            yield read()
        finally:
            if not asking.done():
                await asyncio.sleep(0)  # a task that has not begun has nothing to stop
                conversation.stop()
            await asyncio.gather(asking, return_exceptions=True)

    def _pieces(self, news: News) -> tuple[str, list[RankedToken]]:
        """Return the text that came, and the tokens that it was made of."""
        decode, text = self._desk.device.side.model.decode, ""
        tokens: list[RankedToken] = []
        for each in news:
            if isinstance(each, AnswerPiece):
                text += each.text
                tokens, self._ranked = tokens + self._ranked, []
            elif isinstance(each.event, TokenRanked):
                self._ranked.append(RankedToken.of(each.event, decode))
        return text, tokens


def api_error(error: DragonError, request: ApiRequest) -> ApiError:
    """Return what a client hears when an answer fails."""
    if isinstance(error, ApiError):
        return error
    if isinstance(error, LongQuestionError):
        length = request.length.field if request.length is not None else "max_tokens"
        return ApiError(
            400,
            f"the question in {request.asked_in} takes {error.tokens} tokens, but there is room "
            f"for {error.room} beside documents and answer: shorten it, or lower {length}",
            code="context_length_exceeded",
            param=request.asked_in,
        )
    if isinstance(error, NotConnectedError):
        return ApiError(503, str(error), code="not_connected", retry_after_s=USUAL.probe_s)
    return ApiError(500, str(error), code="answer_failed")


async def _encoded(first: Events, others: AsyncIterator[Events]) -> AsyncIterator[bytes]:
    """Yield server-sent events, those of a moment as one piece of the body."""
    yield _bytes(first)
    async for events in others:
        yield _bytes(events)


def _bytes(events: Events) -> bytes:
    data = [each.data if isinstance(each.data, str) else json.dumps(each.data) for each in events]
    named = zip(data, (each.name for each in events), strict=True)
    return b"".join(ServerSentEvent(text, event=name, sep="\n").encode() for text, name in named)


async def _while_there(receive: Receive, work: Coroutine[Any, Any, Any]) -> Any:
    """Return the result of `work`; cancel it with a ClientGoneError if the client goes first."""

    async def listen() -> None:
        while (await receive())["type"] != "http.disconnect":
            pass

    working, listening = asyncio.ensure_future(work), asyncio.ensure_future(listen())
    try:
        await asyncio.wait((working, listening), return_when=asyncio.FIRST_COMPLETED)
        if not working.done():
            raise ClientGoneError
        return await working
    finally:
        for task in (working, listening):
            task.cancel()
        await asyncio.gather(working, listening, return_exceptions=True)
