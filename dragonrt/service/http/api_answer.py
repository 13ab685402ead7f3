"""One request for an answer, from its turn in the queue to the last byte."""

import asyncio
import json
from collections.abc import AsyncGenerator, AsyncIterator, Coroutine, Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass, replace
from typing import Any

from sse_starlette import EventSourceResponse, ServerSentEvent
from starlette.responses import JSONResponse
from starlette.types import Receive, Scope, Send

from dragonrt.errors import DragonError
from dragonrt.node.main import Device
from dragonrt.service.conversation import Conversation
from dragonrt.service.http.admission import Admission
from dragonrt.service.http.answer_form import AnswerForm, RankedToken, SseEvent, api_error
from dragonrt.service.http.api_errors import ApiError
from dragonrt.service.http.http_metrics import HttpMetrics
from dragonrt.service.http.live_trace import LiveTrace
from dragonrt.service.http.request_body import ApiRequest
from dragonrt.service.http.served_answer import AnswerPiece, ServedAnswer
from dragonrt.traces.events import Record, TokenRanked

Events = list[SseEvent]


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
        async with AsyncExitStack() as stack:
            try:
                events = await _while_there(receive, self._begun(stack))
            except ClientGoneError:
                return
            except ApiError as error:
                self._desk.metrics.refused(error.status)
                refusal = JSONResponse(error.to_json(), error.status, error.headers)
                await refusal(scope, receive, send)
                return
            if isinstance(events, dict):
                whole = JSONResponse(events, headers=self._request.warnings)
                await whole(scope, receive, send)
                return
            stream = EventSourceResponse(
                (_encoded(each) async for each in events),
                headers=self._request.warnings,
                sep="\n",
            )
            await stream(scope, receive, send)

    async def _begun(self, stack: AsyncExitStack) -> dict[str, Any] | AsyncIterator[Events]:
        """The whole answer, or once its first piece is there, the events that tell it."""
        request = self._request
        await stack.enter_async_context(self._desk.admission.place())
        conversation = Conversation(
            self._desk.device,
            replace(request.question, history=()),
            request.seed,
            request.stops,
            list(request.question.history),
        )
        answer = await stack.enter_async_context(
            ServedAnswer(
                conversation,
                request.question.prompt,
                on_over=self._desk.metrics.over,
                traced=request.traced or request.question.top_logprobs is not None,
            )
        )
        events = self._events(answer)
        stack.push_async_callback(events.aclose)
        first = await anext(events)
        if request.stream:
            return _chained(first, events)
        async for _ in events:
            pass
        if answer.reply is None:
            raise ApiError(500, "the answer ended without a reply", code="answer_failed")
        return self._form.whole(answer.reply)

    async def _events(self, answer: ServedAnswer) -> AsyncGenerator[Events, None]:
        """Events that are sent together: they are of the same moment.

        Raises ApiError for an answer that fails before anything was said of it.
        """
        form, begun, trace = self._form, False, LiveTrace(self._desk.device)
        try:
            async for news in answer.news():
                events = [] if begun else [*form.begin()]
                begun = True
                if self._request.traced:
                    events += form.trace(trace.events(news))
                text, tokens = self._pieces(news)
                if text:
                    events += form.text(text, tokens)
                yield events
        except DragonError as error:
            failure = api_error(error, self._request)
            if not begun or not self._request.stream:
                raise failure from error
            yield [*form.failed(failure)]
            return
        if answer.reply is not None:
            yield [*([] if begun else form.begin()), *form.end(answer.reply)]

    def _pieces(self, news: Sequence[AnswerPiece | Record]) -> tuple[str, list[RankedToken]]:
        """The text that came, and the tokens that it was made of."""
        decode, text = self._desk.device.side.model.decode, ""
        tokens: list[RankedToken] = []
        for each in news:
            if isinstance(each, AnswerPiece):
                text += each.text
                tokens, self._ranked = tokens + self._ranked, []
            elif isinstance(each.event, TokenRanked):
                self._ranked.append(RankedToken.of(each.event, decode))
        return text, tokens


async def _chained(first: Events, others: AsyncIterator[Events]) -> AsyncIterator[Events]:
    yield first
    async for each in others:
        yield each


def _encoded(events: Events) -> bytes:
    """Server-sent events as the bytes of one piece of the body."""
    return b"".join(
        ServerSentEvent(
            each.data if isinstance(each.data, str) else json.dumps(each.data),
            event=each.name,
            sep="\n",
        ).encode()
        for each in events
    )


async def _while_there(receive: Receive, work: Coroutine[Any, Any, Any]) -> Any:
    """What `work` comes to; it is cancelled with a ClientGoneError if the client goes first."""

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
