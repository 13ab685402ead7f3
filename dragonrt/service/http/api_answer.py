"""AnswerResponse: queue a request for an answer, and send the answer in the form of its API."""

import asyncio
import json
import math
import secrets
import time
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Coroutine, Iterator, Sequence
from contextlib import aclosing, asynccontextmanager
from dataclasses import dataclass, field, replace
from itertools import count
from typing import Any, NamedTuple, NoReturn, TypeAlias
from urllib.parse import quote

from starlette.responses import JSONResponse, StreamingResponse
from starlette.types import Receive, Scope, Send

from dragonrt.errors import DragonError
from dragonrt.modes.dragon.settings import DragonSettings
from dragonrt.modes.mode import Finish
from dragonrt.node.connections.connector import Connector, NotConnectedError
from dragonrt.node.process.local_side import LongQuestionError
from dragonrt.node.process.programs import Device, LevelError
from dragonrt.service.answer import Answer, Piece, Source, code_json
from dragonrt.service.chat import Chat, Stream, code_of
from dragonrt.service.http.api_request import ApiError, ApiRequest, Json, invalid, warning
from dragonrt.service.http.guard import Admission
from dragonrt.service.http.metrics import DeviceMetrics
from dragonrt.service.view import sources_text, title, warnings
from dragonrt.timeouts import USUAL
from dragonrt.traces.counts import AnswerCounts
from dragonrt.traces.events import Disclosed, Record, SideReady, TokenDecided, TokenRanked
from dragonrt.traces.file import to_object
from dragonrt.wire.connection import Traffic

FIRST_S, PING_S = 0.25, 5.0
"""Seconds until a stream's first byte, and between others: proxies end silent connections."""
ELSEWHERE = ("question", "text", "tokens")
"""Parts of `--json` that an API's object has elsewhere, or not at all."""
STATUSES = {
    **dict.fromkeys(("context_length_exceeded", "unsupported_language", "unsupported_task"), 400),
    "not_connected": 503,
}
"""The status of an answer that failed with a code; that of others is 500."""
IMPOSSIBLE = -9999.0  # OpenAI's value for the logarithm of 0


def ranked(event: TokenRanked, decode: Callable[[list[int]], str]) -> Json:
    """Return a token and its alternatives as an entry of OpenAI's `logprobs`, `decode`d to text."""

    def one(token: int, p: float) -> Json:
        text = decode([token])
        logprob = math.log(min(p, 1.0)) if p > 0 else IMPOSSIBLE  # a sum of floats may exceed 1
        return {"token": text, "logprob": logprob, "bytes": list(text.encode())}

    top = [*map(one, event.tokens, event.probabilities)]
    return {**one(event.token, event.probability), "top_logprobs": top}


class Waiting(NamedTuple):
    """The event of a silent pause: a stream must send a byte now, or a proxy may disconnect it."""


class Begun(NamedTuple):
    """The event that an answer has left the queue; its first text or trace event follows."""


class Delta(NamedTuple):
    """New text of the answer, perhaps empty.

    `tokens` are entries of `logprobs` and `decoding` are trace events, both only if requested.
    """

    text: str
    tokens: Sequence[Json] = ()
    decoding: Sequence[Json] = ()


AnswerEvent: TypeAlias = Waiting | Begun | Delta | Answer | ApiError
"""An event of an answer; the last one is the Answer, or the error that ended it."""


@dataclass(slots=True)
class Reply:
    """What a client was sent so far: the `text`, and `tokens` as entries of OpenAI's `logprobs`."""

    model: str
    request: ApiRequest
    text: str = ""
    tokens: list[Json] = field(default_factory=list)
    id: str = field(default_factory=lambda: secrets.token_hex(12))
    created: int = field(default_factory=lambda: int(time.time()))  # a date, as in OpenAI's APIs
    numbers: "count[int]" = field(default_factory=count)

    def add(self, delta: Delta) -> None:
        self.text += delta.text
        self.tokens += delta.tokens


class AnswerForm(NamedTuple):
    """How one API reads a request, writes the events of a stream, and writes a whole answer.

    `parse` takes the body and the defaults, and raises ApiError. `chunks` yields the text of one
    event of a stream with media type `kind`. `whole` returns the body if there is no stream.
    """

    parse: Callable[[Json, ApiRequest], ApiRequest]
    chunks: Callable[[Reply, AnswerEvent], Iterator[str]]
    whole: Callable[[Reply, Answer], Json]
    kind: str = "text/event-stream"


@dataclass(frozen=True, slots=True)
class AnswerDesk:
    """What all requests for answers share: the device, the queue for it, and the metrics."""

    device: Device
    admission: Admission
    metrics: DeviceMetrics


class AnswerResponse:
    """An ASGI response with an answer: as a stream of events, or whole.

    Errors before the first byte are HTTP errors, later ones events. If the client disconnects, the
    answer is stopped. Its place in the queue is freed at its end, even if the client reads on.
    """

    def __init__(self, desk: AnswerDesk, reply: Reply, form: AnswerForm) -> None:
        self._desk, self._reply, self._form = desk, reply, form
        self._request = reply.request
        self._ranked: list[Json] = []  # tokens whose text was not sent yet

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Respond. Raises ApiError before the first byte."""
        await _while_there(receive, self._respond(scope, receive, send))

    async def _respond(self, scope: Scope, receive: Receive, send: Send) -> None:
        headers, kind = warning(self._request.warnings), self._form.kind
        async with aclosing(_paced(self._events())) as events:
            if self._request.body.stream:
                headers |= {"X-Accel-Buffering": "no"}
                body = self._chunks(await anext(events), events)
                sent = StreamingResponse(body, headers=headers, media_type=kind)
                await sent.stream_response(send)
                return
            async for event in events:
                if isinstance(event, Answer):
                    whole = self._form.whole(self._reply, event)
        await JSONResponse(whole, headers=headers)(scope, receive, send)

    async def _chunks(
        self, first: AnswerEvent, others: AsyncIterator[AnswerEvent]
    ) -> AsyncIterator[str]:
        event, begun = first, False
        try:
            while True:
                begun = begun or isinstance(event, Begun)
                yield "".join(self._form.chunks(self._reply, event))
                event = await anext(others)
        except ApiError as error:
            if not begun:
                self._desk.metrics.count("refused", {error.status: 1})
            yield "".join(self._form.chunks(self._reply, error))
        except StopAsyncIteration:
            return

    async def _events(self) -> AsyncGenerator[AnswerEvent, None]:
        """Yield the events of an answer, after those before it in the queue. Raises ApiError."""
        trace, request = _LiveTrace(self._desk.device), self._request
        try:
            async with self._asked() as stream:
                async for news in stream.news():
                    delta = self._delta(news, trace)
                    if any(delta):
                        yield delta
                        self._reply.add(delta)
                answer = await stream
        except DragonError as error:
            raise api_error(error, request) from error
        notices = (each.text for each in answer.notices)
        closing = Delta(sources_text(answer.sources, [*notices, *warnings(answer)]))
        if closing.text and request.sources_in_text and self._complete(answer):
            yield closing
            self._reply.add(closing)
        yield answer

    def _complete(self, answer: Answer) -> bool:
        """Return whether it ended by itself: not at its length, or at a text of the client's."""
        text = self._desk.device.side.model.decode(answer.decoded.tokens)
        return not (too_long(answer) or any(stop in text for stop in self._request.stops))

    @asynccontextmanager
    async def _asked(self) -> AsyncIterator[Stream]:
        request, device = self._request, self._desk.device
        asked, level = request.question, request.body.disclose
        try:
            device = device if level is None else device.at(level)
        except LevelError as error:
            raise invalid("disclose", error.allowed) from None
        if request.background:
            device = without_others(device)
        chat = Chat(device, asked, request.seed, request.stops, asked.history)
        records = request.traced or asked.top_logprobs is not None
        leave = await self._desk.admission.enter(behind=request.background)
        stream = chat.stream(asked.prompt, records=records)
        stream.when_ended(self._desk.metrics.count_answer)
        stream.when_ended(lambda _: leave())
        try:
            yield stream
        finally:
            await stream.end()

    def _delta(self, news: Sequence[Piece | Record], trace: "_LiveTrace") -> Delta:
        """Return the new text, with its tokens and the events of decoding as far as wanted."""
        decode, text = self._desk.device.side.model.decode, ""
        tokens: list[Json] = []
        for each in news:
            match each:
                case Piece():
                    text += each.text
                    tokens, self._ranked = tokens + self._ranked, []
                case Record(event=TokenRanked() as event):
                    self._ranked.append(ranked(event, decode))
        return Delta(text, tokens, trace.events(news) if self._request.traced else ())


class _LiveTrace:
    """An answer's trace events with tokens' texts, then the links' state and all answers' bytes."""

    def __init__(self, device: Device) -> None:
        self._decode, self._links = device.side.model.decode, device.connectors.values()
        self._before = self._traffic()

    def events(self, news: Sequence[Piece | Record]) -> list[Json]:
        trips = [link.peer.round_trip_s for link in self._links if link.peer is not None]
        now = self._traffic()
        link = {
            "event": "link",
            "rtt": max(trips, default=None),
            "connected": len(trips),
            "bytes_sent": now.sent - self._before.sent,
            "bytes_received": now.received - self._before.received,
        }
        return [*map(self._event, news), link]

    def _event(self, news: Piece | Record) -> Json:
        match news:
            case Piece():
                return {"event": "piece", "text": news.text, "share": round(news.device_share, 4)}
            case Record(event=TokenDecided(token=token) | Disclosed(token=int(token))):
                return {**to_object(news), "text": self._decode([token])}
            case Record():
                return to_object(news)

    def _traffic(self) -> Traffic:
        return Traffic.total(link.traffic() for link in self._links)


async def _paced(events: AsyncGenerator[AnswerEvent, None]) -> AsyncGenerator[AnswerEvent, None]:
    """Yield Begun and the events, and Waiting after FIRST_S of silence, then every PING_S."""
    silent_s, begun = FIRST_S, False
    async with aclosing(events):
        while True:
            coming = asyncio.ensure_future(anext(events, None))
            try:
                while not (await asyncio.wait((coming,), timeout=silent_s))[0]:
                    silent_s = PING_S
                    yield Waiting()
            finally:
                coming.cancel()
                await asyncio.gather(coming, return_exceptions=True)
            if (event := coming.result()) is None:
                return
            if not begun:
                yield Begun()
            silent_s, begun = PING_S, True
            yield event


def without_others(device: Device) -> Device:
    """Return a copy of the device without its cloud, to make titles and tags for a chat page."""

    async def nobody() -> NoReturn:
        raise NotConnectedError("this is answered by the device alone")

    how = device.settings if isinstance(device.settings, DragonSettings) else DragonSettings()
    own = device.resources if how is device.settings else None
    alone = {"cloud": Connector(nobody, replace(USUAL, reach_s=0))}
    return Device(device.side, alone, replace(how, on_loss="alone"), own)


def api_error(error: DragonError, request: ApiRequest) -> ApiError:
    """Convert the error that ended an answer to an ApiError with status, code and faulty field."""
    if isinstance(error, ApiError):
        return error
    text, code = str(error), code_of(error)
    status = STATUSES.get(code, 500)
    if isinstance(error, LongQuestionError):
        text = (
            f"the question in {request.asked_in} takes {error.tokens} tokens, but there is room "
            f"for {error.room} after documents and answer: shorten it, or lower "
            f"{request.length or 'max_tokens'}"
        )
    param, retry_s = request.asked_in * (status == 400), USUAL.probe_s * (status == 503)
    return ApiError(status, text, code=code, param=param, retry_after_s=retry_s)


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


def sse(data: Json | str, name: str = "") -> str:
    """Format a server-sent event: `data`, as JSON unless it is a str, and its name unless ""."""
    text = data if isinstance(data, str) else json.dumps(data)
    return f"event: {name}\ndata: {text}\n\n" if name else f"data: {text}\n\n"


def annotations(answer: Answer, cite: Callable[[int, int, Json], Json]) -> list[Json]:
    """Return an API's annotations of an answer: its citations, and numbers that no document has.

    `cite(start, end, source)` makes a citation in the API's form, from a range of characters and
    a source as JSON. It is called for each mark and, with the range of the part that used it, for
    each source without a mark. A number or code that no document has gets its own annotation.
    """
    cited: list[Json] = []
    for part in answer.parts:
        marks = [(m.start, m.end, Source.of(m.side, m.source)) for m in part.marked]
        marked = [source for *_, source in marks]
        whole = [(0, len(part.text), each) for each in part.sources if each not in marked]
        for start, end, source in (*marks, *whole):
            url = f"dragonrt:{source.side}/{quote(source.file)}"
            about = {**source.to_object(), "title": title(source) or source.file, "url": url}
            cited.append(cite(part.start + start, part.start + end, about))
    missing = [{"type": "dragonrt.not_found", **code_json(code)} for code in answer.not_found]
    return [*cited, *missing]


def too_long(answer: Answer) -> bool:
    """Return whether the answer was cut because it reached its limit of tokens."""
    return answer.decoded.finish is Finish.LENGTH


def usage(answer: Answer, asked: str, written: str) -> dict[str, int]:
    """Return an API's token counts by name; `asked` is its word for input, `written` for output."""
    given, tokens = _prompt(answer)[0], len(answer.decoded.tokens)
    return {f"{asked}_tokens": given, f"{written}_tokens": tokens, "total_tokens": given + tokens}


def report(reply: Reply, answer: Answer) -> Json:
    """Return a response's fields `timings`, in llama.cpp's form, and `dragonrt`, from --json.

    `timings` counts only the device's drafts. `dragonrt` has no texts, but `reply`'s warnings.
    """
    given, prompt_s = _prompt(answer)
    counts = AnswerCounts.of(answer.decoded.records)
    total_s = (counts.last_s or 0.0) - (counts.opened_s or 0.0)
    numbers = answer.statistics
    timings = {
        **_rate("prompt", given, prompt_s),
        **_rate("predicted", len(answer.decoded.tokens), max(0.0, total_s - prompt_s)),
        "draft_n": numbers.get("drafted", counts.compared["device"]),
        "draft_n_accepted": numbers.get("accepted", counts.accepted["device"]),
    }
    own = {key: part for key, part in answer.to_object().items() if key not in ELSEWHERE}
    return {"timings": timings, "dragonrt": {**own, "warnings": reply.request.warnings}}


def _rate(what: str, tokens: int, seconds: float) -> Json:
    return {
        f"{what}_n": tokens,
        f"{what}_ms": round(1000 * seconds, 3),
        f"{what}_per_token_ms": round(1000 * seconds / tokens, 3) if tokens else 0.0,
        f"{what}_per_second": round(tokens / seconds, 3) if seconds else 0.0,
    }


def _prompt(answer: Answer) -> tuple[int, float]:
    """Return the tokens of the conversation, and the seconds to prefill it, of all parts."""
    events = (record.event for record in answer.decoded.records)
    ready = [event for event in events if isinstance(event, SideReady)]
    return sum(e.prompt_tokens for e in ready), sum(e.load + e.prefill for e in ready)
