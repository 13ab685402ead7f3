"""What all APIs say of an answer, and how an answer takes the form of one of them."""

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Protocol
from urllib.parse import quote

from dragonrt.errors import DragonError
from dragonrt.node.connector import NotConnectedError
from dragonrt.node.local_side import LongQuestionError
from dragonrt.service.conversation import Reply, cited_json, code_json
from dragonrt.service.http.api_errors import ApiError
from dragonrt.service.http.request_body import ApiRequest
from dragonrt.service.http.sources_text import sources_text
from dragonrt.service.view import title, warnings
from dragonrt.side import Side
from dragonrt.timeouts import USUAL
from dragonrt.traces.counts import AnswerCounts
from dragonrt.traces.events import SideReady, TokenRanked
from dragonrt.wire.messages import Source

SAID_ELSEWHERE = ("question", "text", "tokens", "carried")
"""Of what `--json` says, what an API's object has in a place of its own, or nowhere."""
IMPOSSIBLE = -9999.0
"""What OpenAI's API says for the logarithm of 0."""


@dataclass(frozen=True, slots=True)
class SseEvent:
    """One server-sent event; `name` only where the API gives it one."""

    data: dict[str, Any] | str
    name: str | None = None


@dataclass(frozen=True, slots=True)
class RankedToken:
    """A token of the answer as text, its log-probability, and the likeliest tokens with theirs."""

    text: str
    logprob: float
    top: tuple[tuple[str, float], ...]

    @classmethod
    def of(cls, event: TokenRanked, decode: Callable[[list[int]], str]) -> "RankedToken":
        pairs = zip(event.tokens, event.probabilities, strict=True)
        top = tuple((decode([token]), _log(p)) for token, p in pairs)
        return cls(decode([event.token]), _log(event.probability), top)

    def to_json(self) -> dict[str, Any]:
        """As chat completions and responses have it."""
        top = [_logprob(*each) for each in self.top]
        return {**_logprob(self.text, self.logprob), "top_logprobs": top}


def _logprob(text: str, logprob: float) -> dict[str, Any]:
    return {"token": text, "logprob": logprob, "bytes": list(text.encode())}


def _log(p: float) -> float:
    return math.log(p) if p > 0 else IMPOSSIBLE


class AnswerForm(Protocol):
    """One answer in the words of one API: pure, from what happens to what is sent.

    The whole object is told after `end`, whether or not anybody read the events. `tokens` are those
    of which a piece of text was made, where the request asked for their probabilities.
    """

    def begin(self) -> Iterable[SseEvent]: ...

    def text(self, piece: str, tokens: Sequence[RankedToken] = ()) -> Iterable[SseEvent]: ...

    def trace(self, events: Sequence[dict[str, Any]]) -> Iterable[SseEvent]: ...

    def end(self, reply: Reply) -> Iterable[SseEvent]: ...

    def failed(self, error: ApiError) -> Iterable[SseEvent]: ...

    def whole(self, reply: Reply) -> dict[str, Any]: ...


def api_error(error: DragonError, request: ApiRequest) -> ApiError:
    """What a client hears when an answer fails."""
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


def closing_text(reply: Reply) -> str:
    """What is put behind the answer for clients that drop annotations."""
    return sources_text(reply.sources, [*reply.answer.notices, *warnings(reply)])


def usage(reply: Reply) -> tuple[int, int]:
    """Tokens of the conversation as this side read it, without its documents, and of the answer."""
    ready = _ready(reply)
    return 0 if ready is None else ready.prompt_tokens, len(reply.answer.tokens)


def report(reply: Reply) -> dict[str, Any]:
    """What is known here and has no place in either API, under the key `dragonrt`."""
    return {key: part for key, part in reply.to_json().items() if key not in SAID_ELSEWHERE}


def timings(reply: Reply) -> dict[str, Any]:
    """Return what the answer took, under the names of llama.cpp's server.

    Of drafts those of the device: in mode dragon both sides draft every token.
    """
    ready, told = _ready(reply), AnswerCounts.of(reply.answer.records)
    prompt_s = 0.0 if ready is None else ready.load + ready.prefill
    total_s = (told.last_s or 0.0) - (told.opened_s or 0.0)
    prompt, predicted = usage(reply)
    numbers = reply.statistics()
    counts = told.counts
    return {
        **_rate("prompt", prompt, prompt_s),
        **_rate("predicted", predicted, max(0.0, total_s - prompt_s)),
        "draft_n": numbers.get("drafted", counts.compared["device"]),
        "draft_n_accepted": numbers.get("accepted", counts.accepted["device"]),
    }


def _rate(what: str, tokens: int, seconds: float) -> dict[str, Any]:
    return {
        f"{what}_n": tokens,
        f"{what}_ms": round(1000 * seconds, 3),
        f"{what}_per_token_ms": round(1000 * seconds / tokens, 3) if tokens else 0.0,
        f"{what}_per_second": round(tokens / seconds, 3) if seconds else 0.0,
    }


def _ready(reply: Reply) -> SideReady | None:
    events = (record.event for record in reply.answer.records)
    return next((event for event in events if isinstance(event, SideReady)), None)


def citation(side: Side, source: Source) -> dict[str, Any]:
    """Return what an annotation says of a document, whatever its API calls it."""
    return {
        **cited_json(side, source),
        "title": title(source) or source.name,
        "url": f"dragonrt:{side}/{quote(source.name)}",
    }


def not_found(reply: Reply) -> list[dict[str, Any]]:
    """Return an annotation, of an own type, for each code that stands in no document."""
    return [{"type": "dragonrt.not_found", **code_json(code)} for code in reply.not_found]
