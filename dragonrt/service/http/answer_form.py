"""The common part of an answer in all APIs, and the interface of an API's form."""

import json
import math
import secrets
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import ClassVar, NamedTuple
from urllib.parse import quote

from typing_extensions import override

from dragonrt.modes.mode import Finish
from dragonrt.service.answer import Answer, Source, code_json
from dragonrt.service.http.api_errors import ApiError
from dragonrt.service.http.api_request import ApiRequest
from dragonrt.service.http.request_body import Json
from dragonrt.service.view import sources_text, title, warnings
from dragonrt.traces.counts import AnswerCounts
from dragonrt.traces.events import SideReady, TokenRanked

ELSEWHERE = ("question", "text", "tokens")
"""Parts of `--json` that an API's object has elsewhere, or not at all."""
IMPOSSIBLE = -9999.0
"""OpenAI's value for the logarithm of 0."""


class SseEvent(NamedTuple):
    """One server-sent event; `name` only if the API has one."""

    data: Json | str
    name: str = ""

    @override
    def __str__(self) -> str:
        data = self.data if isinstance(self.data, str) else json.dumps(self.data)
        return f"event: {self.name}\ndata: {data}\n\n" if self.name else f"data: {data}\n\n"


@dataclass(frozen=True, slots=True)
class RankedToken:
    """A token of the answer as text, its log-probability, and the likeliest tokens with theirs."""

    text: str
    logprob: float
    top: tuple[tuple[str, float], ...]

    @classmethod
    def of(cls, event: TokenRanked, decode: Callable[[list[int]], str]) -> "RankedToken":
        """Return a token of the trace."""
        pairs = zip(event.tokens, event.probabilities, strict=True)
        top = tuple((decode([token]), _log(p)) for token, p in pairs)
        return cls(decode([event.token]), _log(event.probability), top)

    def to_json(self) -> Json:
        """Return it as in chat completions and responses."""
        own, *top = (
            {"token": text, "logprob": logprob, "bytes": list(text.encode())}
            for text, logprob in ((self.text, self.logprob), *self.top)
        )
        return {**own, "top_logprobs": top}


def _log(p: float) -> float:
    return math.log(min(p, 1.0)) if p > 0 else IMPOSSIBLE  # a sum of floats may exceed 1


class AnswerForm:
    """One answer in the format of one API: turns what happens into server-sent events, without I/O.

    `written` is the text so far, `tokens` its tokens if the request wants their probabilities.
    """

    PREFIX: ClassVar[str]
    """The prefix of the ids of its answers."""

    def __init__(self, model: str, request: ApiRequest) -> None:
        self.model = model
        self.request = request
        self.id = f"{self.PREFIX}{secrets.token_hex(12)}"
        self.created = int(time.time())  # a date, as OpenAI's APIs have it
        self.written = ""
        self.tokens: list[RankedToken] = []

    @staticmethod
    def parse(body: Json, defaults: ApiRequest) -> ApiRequest:
        """Return the request in a body. Raises ApiError for unsupported features."""
        raise NotImplementedError

    def begin(self) -> Iterable[SseEvent]:
        """Return the events before the first text."""
        return ()

    def delta(self, piece: str, tokens: Sequence[RankedToken]) -> Iterable[SseEvent]:
        """Return the events of a piece of the text, which is not in `written` yet."""
        raise NotImplementedError

    def trace(self, events: Sequence[Json]) -> Iterable[SseEvent]:
        """Return the events of the decoding, as in a trace."""
        return ()

    def finish(self, answer: Answer) -> Iterable[SseEvent]:
        """Return the events after the last text."""
        raise NotImplementedError

    def failed(self, error: ApiError) -> Iterable[SseEvent]:
        """Return the events of an answer that fails after its first event."""
        raise NotImplementedError

    def whole(self, answer: Answer) -> Json:
        """Return the response object of an unstreamed answer; call after all its events."""
        raise NotImplementedError

    def cite(self, start: int, end: int, source: Json) -> Json:
        """Return the annotation of a document, for those characters of the text."""
        raise NotImplementedError

    def annotations(self, answer: Answer) -> list[Json]:
        """Return an annotation for each mark, and for each code that no document has.

        A document without a mark has one that covers the whole answer to its part of the question.
        """
        cited: list[Json] = []
        for part in answer.parts:
            marks = [(m.start, m.end, Source.of(m.side, m.source)) for m in part.marked]
            marked = [source for *_, source in marks]
            whole = [(0, len(part.text), each) for each in part.sources if each not in marked]
            for start, end, source in (*marks, *whole):
                cited.append(self.cite(part.start + start, part.start + end, _about(source)))
        missing = [{"type": "dragonrt.not_found", **code_json(code)} for code in answer.not_found]
        return [*cited, *missing]

    def text(self, piece: str, tokens: Sequence[RankedToken] = ()) -> list[SseEvent]:
        """Append a piece of the text and return its events."""
        events = [*self.delta(piece, tokens)]
        self.written += piece
        self.tokens += tokens
        return events

    def end(self, answer: Answer) -> list[SseEvent]:
        """Return the last events, after the sources as text if the request wants them."""
        notices = (each.text for each in answer.notices)
        closing = sources_text(answer.sources, [*notices, *warnings(answer)])
        events = self.text(closing) if closing and self.request.sources_in_text else []
        return [*events, *self.finish(answer)]


def too_long(answer: Answer) -> bool:
    """Return whether the answer ended at the limit of its length."""
    return answer.decoded.finish is Finish.LENGTH


def usage(answer: Answer, asked: str, written: str) -> dict[str, int]:
    """Return the token counts of the conversation, without documents, and the answer, as named."""
    given, tokens = _prompt(answer)[0], len(answer.decoded.tokens)
    return {asked: given, written: tokens, "total_tokens": given + tokens}


def report(answer: Answer) -> Json:
    """Return the data that no API has a place for, and times named as in llama.cpp's server.

    The drafts are the device's: in mode dragon both sides draft every token.
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
    return {"timings": timings, "dragonrt": own}


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


def _about(source: Source) -> Json:
    """Return the fields of a document's annotation in every API."""
    url = f"dragonrt:{source.side}/{quote(source.file)}"
    return {**source.to_object(), "title": title(source) or source.file, "url": url}
