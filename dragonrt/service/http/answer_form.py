"""An answer in the form of an API: the events that it consists of, and what all forms share."""

import itertools
import json
import math
import secrets
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple, TypeAlias
from urllib.parse import quote

from dragonrt.modes.mode import Finish
from dragonrt.service.answer import Answer, Source, code_json
from dragonrt.service.http.api_request import ApiRequest
from dragonrt.service.http.request_body import ApiError, Json
from dragonrt.service.view import title
from dragonrt.traces.counts import AnswerCounts
from dragonrt.traces.events import SideReady, TokenRanked

ELSEWHERE = ("question", "text", "tokens")
"""Parts of `--json` that an API's object has elsewhere, or not at all."""
IMPOSSIBLE = -9999.0
"""OpenAI's value for the logarithm of 0."""


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


class Begun(NamedTuple):
    """The answer begins: no failure is an HTTP error any more."""


class Delta(NamedTuple):
    """A piece of the text, perhaps empty, and what the request wants of the moment.

    That is the piece's tokens with their probabilities, and the events of decoding as in a trace.
    """

    text: str
    tokens: Sequence[RankedToken] = ()
    decoding: Sequence[Json] = ()


AnswerEvent: TypeAlias = Begun | Delta | Answer | ApiError
"""An event of an answer; the last one is the Answer, or the error that ended it."""


@dataclass(slots=True)
class Reply:
    """One answer in the making: `text` and `tokens` are what it has before the event at hand."""

    model: str
    request: ApiRequest
    text: str = ""
    tokens: list[RankedToken] = field(default_factory=list)
    id: str = field(default_factory=lambda: secrets.token_hex(12))
    created: int = field(default_factory=lambda: int(time.time()))  # a date, as in OpenAI's APIs
    numbers: "itertools.count[int]" = field(default_factory=itertools.count)

    def add(self, delta: Delta) -> None:
        """Append a piece to what there is."""
        self.text += delta.text
        self.tokens += delta.tokens


class AnswerForm(NamedTuple):
    """The form of an API: how a request is parsed, a stream is written, and a whole answer.

    `parse` raises ApiError for unsupported features. `chunks` are pieces of the response's body.
    """

    parse: Callable[[Json, ApiRequest], ApiRequest]
    chunks: Callable[[Reply, AnswerEvent], Iterator[str]]
    whole: Callable[[Reply, Answer], Json]


def sse(data: Json | str, name: str = "") -> str:
    """Return a server-sent event; it has a name only if the API has names."""
    text = data if isinstance(data, str) else json.dumps(data)
    return f"event: {name}\ndata: {text}\n\n" if name else f"data: {text}\n\n"


def annotations(answer: Answer, cite: Callable[[int, int, Json], Json]) -> list[Json]:
    """Return an annotation for each mark, and for each code that no document has.

    `cite` makes that of a document, for characters of the text. A document without a mark has one
    that covers the whole answer to its part of the question.
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
