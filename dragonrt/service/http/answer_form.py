"""What both APIs say of an answer, and how an answer takes the form of one of them."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Protocol
from urllib.parse import quote

from dragonrt.errors import DragonError
from dragonrt.runtime.local_side import LongQuestionError
from dragonrt.service.conversation import Reply, cited_json, code_json
from dragonrt.service.http.api_errors import ApiError
from dragonrt.service.http.sources_text import sources_text
from dragonrt.service.view import title, warnings
from dragonrt.side import Side
from dragonrt.traces.events import SideReady
from dragonrt.wire.messages import Source

SAID_ELSEWHERE = ("question", "text", "tokens", "carried")
"""Of what `--json` says, what an API's object has in a place of its own, or nowhere."""


@dataclass(frozen=True, slots=True)
class SseEvent:
    """One server-sent event; `name` only where the API gives it one."""

    data: dict[str, Any] | str
    name: str | None = None


class AnswerForm(Protocol):
    """One answer in the words of one API: pure, from what happens to what is sent.

    The whole object is told after `end`, whether or not anybody read the events.
    """

    def begin(self) -> Iterable[SseEvent]: ...

    def text(self, piece: str) -> Iterable[SseEvent]: ...

    def trace(self, events: Sequence[dict[str, Any]]) -> Iterable[SseEvent]: ...

    def end(self, reply: Reply) -> Iterable[SseEvent]: ...

    def failed(self, error: ApiError) -> Iterable[SseEvent]: ...

    def whole(self, reply: Reply) -> dict[str, Any]: ...


def api_error(error: DragonError) -> ApiError:
    """What a client hears when an answer fails."""
    if isinstance(error, ApiError):
        return error
    if isinstance(error, LongQuestionError):
        return ApiError(400, str(error), code="context_length_exceeded", param="messages")
    return ApiError(500, str(error), code="answer_failed")


def closing_text(reply: Reply) -> str:
    """What is put behind the answer for clients that drop annotations."""
    return sources_text(reply.sources, [*reply.answer.notices, *warnings(reply)])


def usage(reply: Reply) -> tuple[int, int]:
    """Tokens of the conversation as this side read it, without its documents, and of the answer."""
    events = (record.event for record in reply.answer.records)
    prompt = next((event.prompt_tokens for event in events if isinstance(event, SideReady)), 0)
    return prompt, len(reply.answer.tokens)


def report(reply: Reply) -> dict[str, Any]:
    """What is known here and has no place in either API, under the key `dragonrt`."""
    return {key: part for key, part in reply.to_json().items() if key not in SAID_ELSEWHERE}


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
