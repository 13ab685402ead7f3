"""`POST /v1/responses`: OpenAI's newer API, whose stream is typed events."""

from collections.abc import Iterator
from typing import Any, Literal

from msgspec import Struct

from dragonrt.service.answer import Answer
from dragonrt.service.http.answer_form import (
    AnswerEvent,
    AnswerForm,
    Begun,
    Delta,
    Reply,
    annotations,
    report,
    sse,
    too_long,
    usage,
)
from dragonrt.service.http.api_request import (
    ApiRequest,
    Asked,
    ChatMessage,
    Format,
    Length,
    Wanted,
    dialogue,
)
from dragonrt.service.http.request_body import ApiError, Json, read, unsupported

TRACE = "dragonrt.trace"
"""The value of `include` for the events of decoding, and their type in the stream."""


class TextOptions(Struct, kw_only=True):
    """The options of a response's text."""

    format: Format | None = None


class ResponseBody(Asked, kw_only=True):
    """The body of a response."""

    input: str | list[ChatMessage] | None = None
    instructions: str | None = None
    text: TextOptions | None = None
    include: list[Literal["dragonrt.trace", "message.output_text.logprobs"]] | None = None
    max_output_tokens: Length = None
    truncation: Any = None  # earlier turns are always dropped to make room
    background: bool | None = None
    previous_response_id: None = None
    conversation: None = None
    prompt: None = None


def parse(body: Json, defaults: ApiRequest) -> ApiRequest:
    """Return the request in a body. Raises ApiError for unsupported features."""
    given, ignored = read(body, ResponseBody)
    if given.background:  # an answer ends with its client's connection, and is not stored
        raise unsupported("background")
    included, top = given.include or [], given.top_logprobs or 0
    ranked = Wanted("top_logprobs" if top else "include", top)
    wanted = top or "message.output_text.logprobs" in included
    asked = dialogue(given.input or [], "input", given.instructions or "")
    lengths, traced = ("max_output_tokens",), TRACE in included
    return defaults.asked(given, ignored, asked, lengths, ranked if wanted else None, traced=traced)


def chunks(reply: Reply, event: AnswerEvent) -> Iterator[str]:
    """Yield the typed events of an event: of one message with one text."""
    item, place = {"output_index": 0}, _place(reply)
    match event:
        case Begun():
            for kind in ("created", "in_progress"):
                yield _typed(reply, kind, response=_object(reply, "in_progress", []))
            begun = _message(reply, "in_progress", [])
            yield _typed(reply, "output_item.added", **item, item=begun)
            yield _typed(reply, "content_part.added", **place, part=_part(reply, []))
        case Delta(text, tokens, decoding):
            if decoding:
                yield _typed(reply, TRACE, events=decoding)
            if text:
                ranked = [token.to_json() for token in tokens]
                yield _typed(reply, "output_text.delta", **place, delta=text, logprobs=ranked)
        case Answer():
            whole_ = whole(reply, event)
            message = whole_["output"][0]
            part = message["content"][0]
            for number, each in enumerate(part["annotations"]):
                fields = {"annotation_index": number, "annotation": each}
                yield _typed(reply, "output_text.annotation.added", **place, **fields)
            done = {"text": part["text"], "logprobs": part["logprobs"]}
            yield _typed(reply, "output_text.done", **place, **done)
            yield _typed(reply, "content_part.done", **place, part=part)
            yield _typed(reply, "output_item.done", **item, item=message)
            yield _typed(reply, whole_["status"], response=whole_)
        case ApiError():
            failure = {"code": "server_error", "message": str(event)}
            yield _typed(reply, "failed", response=_object(reply, "failed", [], error=failure))


def whole(reply: Reply, answer: Answer) -> Json:
    """Return a response of one message."""
    status = "incomplete" if too_long(answer) else "completed"
    message = _message(reply, status, [_part(reply, annotations(answer, _cite))])
    details = {
        "input_tokens_details": {"cached_tokens": 0},
        "output_tokens_details": {"reasoning_tokens": 0},
    }
    more = {
        "incomplete_details": {"reason": "max_output_tokens"} if too_long(answer) else None,
        "usage": usage(answer, "input_tokens", "output_tokens") | details,
    }
    return _object(reply, status, [message], **more, **report(answer))


RESPONSES = AnswerForm(parse, chunks, whole)


def _typed(reply: Reply, kind: str, **fields: Any) -> str:
    name = kind if kind == TRACE else f"response.{kind}"
    return sse({"type": name, "sequence_number": next(reply.numbers), **fields}, name)


def _place(reply: Reply) -> Json:
    return {"item_id": f"msg_{reply.id}", "output_index": 0, "content_index": 0}


def _cite(start: int, end: int, source: Json) -> Json:
    return {
        "type": "file_citation",
        "file_id": f"{source['side']}:{source['file']}",
        "filename": source["file"],
        "index": end,
        "start_index": start,
        "end_index": end,
        **source,
    }


def _part(reply: Reply, found: list[Json]) -> Json:
    logprobs = [token.to_json() for token in reply.tokens]
    part = {"type": "output_text", "text": reply.text, "annotations": found}
    return {**part, "logprobs": logprobs}


def _message(reply: Reply, status: str, content: list[Json]) -> Json:
    message = {"id": f"msg_{reply.id}", "type": "message", "status": status, "role": "assistant"}
    return {**message, "content": content}


def _object(reply: Reply, status: str, output: list[Json], **more: Any) -> Json:
    question = reply.request.question
    return {
        "id": f"resp_{reply.id}",
        "object": "response",
        "created_at": reply.created,
        "status": status,
        "error": None,
        "incomplete_details": None,
        "instructions": question.instructions or None,
        "max_output_tokens": question.max_tokens,
        "metadata": {},
        "model": reply.model,
        "output": output,
        "parallel_tool_calls": False,
        "previous_response_id": None,
        "store": False,
        "temperature": question.sampler.temperature,
        "text": {"format": {"type": "text"}},
        "tool_choice": "none",
        "tools": [],
        "top_p": question.sampler.top_p,
        "truncation": "auto",
        "usage": None,
        **more,
    }
