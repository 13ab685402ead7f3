"""The forms of OpenAI's APIs, `/v1/chat/completions` and `/v1/responses`."""

from collections.abc import Iterator, Sequence
from typing import Annotated, Any, Literal

from dragonrt.service.answer import Answer
from dragonrt.service.http.api_answer import (
    AnswerEvent,
    AnswerForm,
    Begun,
    Delta,
    RankedToken,
    Reply,
    Waiting,
    annotations,
    report,
    sse,
    too_long,
    usage,
)
from dragonrt.service.http.api_request import (
    PROBABILITIES,
    ApiRequest,
    Asked,
    ChatMessage,
    Length,
    NoCall,
    Unstored,
    Wanted,
    dialogue,
)
from dragonrt.service.http.request_body import (
    MAX_NAME,
    ApiError,
    Json,
    invalid,
    read,
    unsupported,
)

TRACE = "dragonrt.trace"
"""The value of `include` for the events of decoding, and their type in the stream."""
WAITING = ": waiting\n\n"
"""A comment between events."""
LOGPROBS = "message.output_text.logprobs"


class ChatBody(Asked, kw_only=True):
    """The body of a chat completion."""

    messages: Annotated[list[ChatMessage] | None, "turns; images and files are refused"] = None
    logprobs: Annotated[bool | None, PROBABILITIES] = None
    max_completion_tokens: Length = None
    max_tokens: Length = None
    n: Annotated[Literal[1] | None, "only 1"] = None
    modalities: Annotated[list[Literal["text"]] | None, "only text"] = None
    tool_choice: NoCall = None
    function_call: NoCall = None


def parse_chat(body: Json, defaults: ApiRequest) -> ApiRequest:
    """Return the request in a body. Raises ApiError for unsupported features."""
    given, ignored = read(body, ChatBody)
    top = given.top_logprobs or 0
    if top and not given.logprobs:
        raise invalid("logprobs", "true with top_logprobs")
    ranked = Wanted("logprobs", top) if given.logprobs else None
    asked = dialogue(given.messages or [], "messages")
    return defaults.asked(given, ignored, asked, ("max_completion_tokens", "max_tokens"), ranked)


def chat_chunks(reply: Reply, event: AnswerEvent) -> Iterator[str]:
    """Yield the chunks of an event: a choice with a piece of its message."""
    match event:
        case Begun():
            yield _chunk(reply, {"role": "assistant", "content": ""})
        case Delta():
            if event.text:
                yield _chunk(reply, {"content": event.text}, _logprobs(reply, event.tokens))
        case Answer():
            delta = {"annotations": annotations(event, _url_citation)}
            yield _chunk(reply, delta, None, _reason(event), **report(reply, event))
            options = reply.request.body.stream_options
            if options is not None and options.include_usage:
                counts = usage(event, "prompt", "completion")
                yield sse(_chat_object(reply, ".chunk", [], usage=counts))
            yield sse("[DONE]")
        case ApiError():
            yield sse(event.to_json()) + sse("[DONE]")
        case Waiting():
            yield WAITING


def chat_completion(reply: Reply, answer: Answer) -> Json:
    """Return a choice with a message."""
    message = {"role": "assistant", "content": reply.text, "refusal": None}
    choice = {
        "index": 0,
        "message": {**message, "annotations": annotations(answer, _url_citation)},
        "logprobs": _logprobs(reply, reply.tokens),
        "finish_reason": _reason(answer),
    }
    more = {"usage": usage(answer, "prompt", "completion"), **report(reply, answer)}
    return _chat_object(reply, "", [choice], **more)


CHAT_COMPLETIONS = AnswerForm(parse_chat, chat_chunks, chat_completion)


def _chunk(
    reply: Reply, delta: Json, logprobs: Json | None = None, reason: str | None = None, **more: Any
) -> str:
    choice = {"index": 0, "delta": delta, "logprobs": logprobs, "finish_reason": reason}
    return sse(_chat_object(reply, ".chunk", [choice], **more))


def _chat_object(reply: Reply, kind: str, choices: list[Json], **more: Any) -> Json:
    head = {"id": f"chatcmpl-{reply.id}", "created": reply.created, "model": reply.model}
    return {**head, "object": f"chat.completion{kind}", "choices": choices, **more}


def _logprobs(reply: Reply, tokens: Sequence[RankedToken]) -> Json | None:
    if reply.request.question.top_logprobs is None:
        return None
    return {"content": [token.to_json() for token in tokens], "refusal": None}


def _url_citation(start: int, end: int, source: Json) -> Json:
    place = {"start_index": start, "end_index": end}
    return {"type": "url_citation", "url_citation": {**place, **source}}


def _reason(answer: Answer) -> str:
    return "length" if too_long(answer) else "stop"


class ResponseBody(Asked, kw_only=True):
    """The body of a response."""

    input: Annotated[
        str | list[ChatMessage] | None, "the question, or items; of these messages are read"
    ] = None
    instructions: Annotated[str | None, "before the conversation"] = None
    text: Annotated[dict[str, Any] | None, "a `format` is not kept"] = None
    include: Annotated[list[str] | None, f"`{TRACE}`, `{LOGPROBS}`"] = None
    max_output_tokens: Length = None
    tool_choice: NoCall = None
    background: Annotated[bool | None, "only false: an answer ends with its connection"] = None
    previous_response_id: Unstored = None
    conversation: Unstored = None
    prompt: Unstored = None


def parse_response(body: Json, defaults: ApiRequest) -> ApiRequest:
    """Return the request in a body. Raises ApiError for unsupported features."""
    given, ignored = read(body, ResponseBody)
    included, top = given.include or [], given.top_logprobs or 0
    if given.background:
        raise unsupported("background", "an answer ends with its client's connection")
    ignored += (f"include {each[:MAX_NAME]}" for each in included if each not in (TRACE, LOGPROBS))
    ranked = Wanted("top_logprobs" if top else "include", top)
    wanted = top or LOGPROBS in included
    asked = dialogue(given.input or [], "input", given.instructions or "")
    lengths, traced = ("max_output_tokens",), TRACE in included
    return defaults.asked(given, ignored, asked, lengths, ranked if wanted else None, traced=traced)


def response_chunks(reply: Reply, event: AnswerEvent) -> Iterator[str]:
    """Yield the typed events of an event: of one message with one text."""
    item, place = {"output_index": 0}, _place(reply)
    match event:
        case Begun():
            for kind in ("created", "in_progress"):
                yield _typed(reply, kind, response=_response_object(reply, "in_progress", []))
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
            whole = response(reply, event)
            message = whole["output"][0]
            part = message["content"][0]
            for number, each in enumerate(part["annotations"]):
                fields = {"annotation_index": number, "annotation": each}
                yield _typed(reply, "output_text.annotation.added", **place, **fields)
            done = {"text": part["text"], "logprobs": part["logprobs"]}
            yield _typed(reply, "output_text.done", **place, **done)
            yield _typed(reply, "content_part.done", **place, part=part)
            yield _typed(reply, "output_item.done", **item, item=message)
            yield _typed(reply, whole["status"], response=whole)
        case ApiError():
            failure = {"code": "server_error", "message": str(event)}
            yield _typed(
                reply, "failed", response=_response_object(reply, "failed", [], error=failure)
            )
        case Waiting():
            yield WAITING


def response(reply: Reply, answer: Answer) -> Json:
    """Return a response of one message."""
    status = "incomplete" if too_long(answer) else "completed"
    message = _message(reply, status, [_part(reply, annotations(answer, _file_citation))])
    details = {
        "input_tokens_details": {"cached_tokens": 0},
        "output_tokens_details": {"reasoning_tokens": 0},
    }
    more = {
        "incomplete_details": {"reason": "max_output_tokens"} if too_long(answer) else None,
        "usage": usage(answer, "input", "output") | details,
    }
    return _response_object(reply, status, [message], **more, **report(reply, answer))


RESPONSES = AnswerForm(parse_response, response_chunks, response)


def _typed(reply: Reply, kind: str, **fields: Any) -> str:
    name = kind if kind == TRACE else f"response.{kind}"
    return sse({"type": name, "sequence_number": next(reply.numbers), **fields}, name)


def _place(reply: Reply) -> Json:
    return {"item_id": f"msg_{reply.id}", "output_index": 0, "content_index": 0}


def _file_citation(start: int, end: int, source: Json) -> Json:
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


def _response_object(reply: Reply, status: str, output: list[Json], **more: Any) -> Json:
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
