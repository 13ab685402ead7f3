"""`POST /v1/chat/completions`: the API that most programs use."""

from collections.abc import Iterator, Sequence
from typing import Any

from dragonrt.service.answer import Answer
from dragonrt.service.http.answer_form import (
    AnswerEvent,
    AnswerForm,
    Begun,
    Delta,
    RankedToken,
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
from dragonrt.service.http.request_body import ApiError, Json, invalid, read


class ChatBody(Asked, kw_only=True):
    """The body of a chat completion."""

    messages: list[ChatMessage] | None = None
    response_format: Format | None = None
    logprobs: bool | None = None
    max_completion_tokens: Length = None
    max_tokens: Length = None


def parse(body: Json, defaults: ApiRequest) -> ApiRequest:
    """Return the request in a body. Raises ApiError for unsupported features."""
    given, ignored = read(body, ChatBody)
    top = given.top_logprobs or 0
    if top and not given.logprobs:
        raise invalid("logprobs", "true with top_logprobs")
    ranked = Wanted("logprobs", top) if given.logprobs else None
    asked = dialogue(given.messages or [], "messages")
    return defaults.asked(given, ignored, asked, ("max_completion_tokens", "max_tokens"), ranked)


def chunks(reply: Reply, event: AnswerEvent) -> Iterator[str]:
    """Yield the chunks of an event: a choice with a piece of its message."""
    match event:
        case Begun():
            yield _chunk(reply, {"role": "assistant", "content": ""})
        case Delta():
            if event.text:
                yield _chunk(reply, {"content": event.text}, _logprobs(reply, event.tokens))
        case Answer():
            delta = {"annotations": annotations(event, _cite)}
            yield _chunk(reply, delta, None, _reason(event), **report(event))
            options = reply.request.body.stream_options
            if options is not None and options.include_usage:
                yield sse(_object(reply, "chat.completion.chunk", [], usage=_usage(event)))
            yield sse("[DONE]")
        case ApiError():
            yield sse(event.to_json())
            yield sse("[DONE]")


def whole(reply: Reply, answer: Answer) -> Json:
    """Return a completion: a choice with a message."""
    message = {"role": "assistant", "content": reply.text, "refusal": None}
    choice = {
        "index": 0,
        "message": {**message, "annotations": annotations(answer, _cite)},
        "logprobs": _logprobs(reply, reply.tokens),
        "finish_reason": _reason(answer),
    }
    more = {"usage": _usage(answer), **report(answer)}
    return _object(reply, "chat.completion", [choice], **more)


CHAT_COMPLETIONS = AnswerForm(parse, chunks, whole)


def _object(reply: Reply, kind: str, choices: list[Json], **more: Any) -> Json:
    head = {"id": f"chatcmpl-{reply.id}", "created": reply.created, "model": reply.model}
    return {**head, "object": kind, "choices": choices, **more}


def _chunk(
    reply: Reply, delta: Json, logprobs: Json | None = None, reason: str | None = None, **more: Any
) -> str:
    choice = {"index": 0, "delta": delta, "logprobs": logprobs, "finish_reason": reason}
    return sse(_object(reply, "chat.completion.chunk", [choice], **more))


def _logprobs(reply: Reply, tokens: Sequence[RankedToken]) -> Json | None:
    """Return the probabilities of tokens if the request wants them."""
    if reply.request.question.top_logprobs is None:
        return None
    return {"content": [token.to_json() for token in tokens], "refusal": None}


def _cite(start: int, end: int, source: Json) -> Json:
    place = {"start_index": start, "end_index": end}
    return {"type": "url_citation", "url_citation": {**place, **source}}


def _reason(answer: Answer) -> str:
    return "length" if too_long(answer) else "stop"


def _usage(answer: Answer) -> dict[str, int]:
    return usage(answer, "prompt_tokens", "completion_tokens")
