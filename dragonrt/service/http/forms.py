"""The requests and responses of each API: OpenAI's chat completions and Responses, and Ollama's."""

import json
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from functools import partial
from typing import Annotated, Any, Literal

from msgspec import Meta

from dragonrt.service.answer import Answer
from dragonrt.service.http.api_answer import (
    AnswerEvent,
    AnswerForm,
    Begun,
    Delta,
    Reply,
    Waiting,
    annotations,
    report,
    sse,
    too_long,
    usage,
)
from dragonrt.service.http.api_request import (
    MAX_NAME,
    PROBABILITIES,
    ApiError,
    ApiRequest,
    ChatMessage,
    CommonBody,
    Json,
    dialogue,
    invalid,
    read,
    unsupported,
)

TRACE = "dragonrt.trace"
"""The value of `include` for the events of decoding, and their type in the stream."""
WAITING = ": waiting\n\n"
"""A comment between events."""
LOGPROBS = "message.output_text.logprobs"
OLLAMA_VERSION = "0.12.0"
"""The version of Ollama whose API this is."""
LATEST = ":latest"
"""What Ollama's clients write behind the name of a model."""
LINES = "application/x-ndjson"
MS = 1_000_000
"""Nanoseconds of a millisecond."""

TURNS = "turns; images and files are refused"
Length = Annotated[
    Annotated[int, Meta(ge=-2)] | None,
    "at most a quarter of the model's context, and the room after question and documents; "
    "below 0: as many as possible",
]
"""The most tokens of an answer."""
NoCall = Annotated[Literal["none", "auto"] | None, "`none` or `auto`: no tool is called"]
Unstored = Annotated[None, "of a response: refused, as nothing is stored"]


class ChatBody(CommonBody, kw_only=True):
    """The body of a request to OpenAI's chat completions, `/v1/chat/completions`."""

    messages: Annotated[list[ChatMessage] | None, TURNS] = None
    logprobs: Annotated[bool | None, PROBABILITIES] = None
    max_completion_tokens: Length = None
    max_tokens: Length = None
    n: Annotated[Literal[1] | None, "only 1"] = None
    modalities: Annotated[list[Literal["text"]] | None, "only text"] = None
    tool_choice: NoCall = None
    function_call: NoCall = None


def parse_chat(body: Json, defaults: ApiRequest) -> ApiRequest:
    """Convert a body of OpenAI's chat completions to an ApiRequest. Raises ApiError."""
    given, ignored = read(body, ChatBody)
    if given.top_logprobs and not given.logprobs:
        raise invalid("logprobs", "true with top_logprobs")
    asked = dialogue(given.messages or [], "messages")
    ranked = "logprobs" if given.logprobs else ""
    return defaults.asked(given, ignored, asked, ranked)


def chat_chunks(reply: Reply, event: AnswerEvent) -> Iterator[str]:
    """Yield `event` as server-sent events of OpenAI's chat completions; `reply`: what was sent."""

    def chunk(delta: Json, found: Json | None = None, ended: str | None = None, **more: Any) -> str:
        choice = {"index": 0, "delta": delta, "logprobs": found, "finish_reason": ended}
        return sse(_chat_object(reply, ".chunk", [choice], **more))

    match event:
        case Begun():
            yield chunk({"role": "assistant", "content": ""})
        case Delta():
            if event.text:
                yield chunk({"content": event.text}, _logprobs(reply, event.tokens))
        case Answer():
            delta = {"annotations": annotations(event, _url_citation)}
            yield chunk(delta, None, _reason(event), **report(reply, event))
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
    """Return an answer as one chat completion of OpenAI (`stream: false`); `reply` has its text."""
    message = {"role": "assistant", "content": reply.text, "refusal": None}
    choice = {
        "index": 0,
        "message": {**message, "annotations": annotations(answer, _url_citation)},
        "logprobs": _logprobs(reply, reply.tokens),
        "finish_reason": _reason(answer),
    }
    more = {"usage": usage(answer, "prompt", "completion"), **report(reply, answer)}
    return _chat_object(reply, "", [choice], **more)


def _chat_object(reply: Reply, kind: str, choices: list[Json], **more: Any) -> Json:
    head = {"id": f"chatcmpl-{reply.id}", "created": reply.created, "model": reply.model}
    return {**head, "object": f"chat.completion{kind}", "choices": choices, **more}


def _logprobs(reply: Reply, tokens: Sequence[Json]) -> Json | None:
    wanted = reply.request.question.top_logprobs is not None
    return {"content": tokens, "refusal": None} if wanted else None


def _url_citation(start: int, end: int, source: Json) -> Json:
    place = {"start_index": start, "end_index": end}
    return {"type": "url_citation", "url_citation": {**place, **source}}


def _reason(answer: Answer) -> str:
    return "length" if too_long(answer) else "stop"


class ResponseBody(CommonBody, kw_only=True):
    """The body of a request to OpenAI's Responses API, `/v1/responses`."""

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
    """Convert a body of OpenAI's Responses API to an ApiRequest. Raises ApiError."""
    given, ignored = read(body, ResponseBody)
    if given.background:
        raise unsupported("background", "an answer ends with its client's connection")
    included = given.include or []
    ignored += (f"include {each[:MAX_NAME]}" for each in included if each not in (TRACE, LOGPROBS))
    asked = dialogue(given.input or [], "input", given.instructions or "")
    ranked = "top_logprobs" if given.top_logprobs else "include" if LOGPROBS in included else ""
    request = defaults.asked(given, ignored, asked, ranked)
    return replace(request, traced=TRACE in included)


def response_chunks(reply: Reply, event: AnswerEvent) -> Iterator[str]:
    """Yield `event` as server-sent events of OpenAI's Responses API; `reply` was sent before."""
    item = {"output_index": 0}
    place = {"item_id": f"msg_{reply.id}", **item, "content_index": 0}

    def typed(kind: str, **fields: Any) -> str:
        name = kind if kind == TRACE else f"response.{kind}"
        return sse({"type": name, "sequence_number": next(reply.numbers), **fields}, name)

    match event:
        case Begun():
            for kind in ("created", "in_progress"):
                yield typed(kind, response=_response_object(reply, "in_progress", []))
            yield typed("output_item.added", **item, item=_message(reply, "in_progress", []))
            yield typed("content_part.added", **place, part=_part(reply, []))
        case Delta(text, tokens, decoding):
            if decoding:
                yield typed(TRACE, events=decoding)
            if text:
                yield typed("output_text.delta", **place, delta=text, logprobs=tokens)
        case Answer():
            whole = response(reply, event)
            message = whole["output"][0]
            part = message["content"][0]
            for number, each in enumerate(part["annotations"]):
                fields = {"annotation_index": number, "annotation": each}
                yield typed("output_text.annotation.added", **place, **fields)
            done = {"text": part["text"], "logprobs": part["logprobs"]}
            yield typed("output_text.done", **place, **done)
            yield typed("content_part.done", **place, part=part)
            yield typed("output_item.done", **item, item=message)
            yield typed(whole["status"], response=whole)
        case ApiError():
            failure = {"code": "server_error", "message": str(event)}
            yield typed("failed", response=_response_object(reply, "failed", [], error=failure))
        case Waiting():
            yield WAITING


def response(reply: Reply, answer: Answer) -> Json:
    """Return an unstreamed answer as an object of OpenAI's Responses API; `reply` has its text."""
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


def _file_citation(start: int, end: int, source: Json) -> Json:
    named = {"file_id": f"{source['side']}:{source['file']}", "filename": source["file"]}
    place = {"index": end, "start_index": start, "end_index": end}
    return {"type": "file_citation", **named, **place, **source}


def _part(reply: Reply, found: list[Json]) -> Json:
    part = {"type": "output_text", "text": reply.text, "annotations": found}
    return {**part, "logprobs": reply.tokens}


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
        **dict.fromkeys(("error", "incomplete_details", "previous_response_id", "usage")),
        "instructions": question.instructions or None,
        "max_output_tokens": question.max_tokens,
        "metadata": {},
        "model": reply.model,
        "output": output,
        "parallel_tool_calls": False,
        "store": False,
        "temperature": question.sampler.temperature,
        "text": {"format": {"type": "text"}},
        "tool_choice": "none",
        "tools": [],
        "top_p": question.sampler.top_p,
        "truncation": "auto",
        **more,
    }


class OllamaBody(CommonBody, kw_only=True):
    """The body of a request to Ollama's `/api/chat` or `/api/generate`, its `options` included."""

    messages: Annotated[list[ChatMessage] | None, TURNS] = None
    prompt: Annotated[str | None, "of `/api/generate`: the question"] = None
    system: Annotated[str | None, "before the conversation"] = None
    num_predict: Length = None
    logprobs: Annotated[bool | None, PROBABILITIES] = None
    images: Annotated[Annotated[list[Any], Meta(max_length=0)] | None, "refused"] = None
    suffix: Annotated[Literal[""] | None, "refused"] = None


def parse_ollama(body: Json, defaults: ApiRequest) -> ApiRequest:
    """Convert a body of Ollama's API to a copy of `defaults` with its values. Raises ApiError."""
    options = body.get("options") or {}
    if not isinstance(options, dict):
        raise invalid("options", "an object")
    others = {name: value for name, value in body.items() if name != "options"}
    given, ignored = read({"stream": True, **options, **others}, OllamaBody)
    turns, field = given.messages or given.prompt or "", "prompt" if given.prompt else "messages"
    asked = dialogue(turns, field, given.system or "")
    ranked = "logprobs" if given.logprobs else ""
    return defaults.asked(given, ignored, asked, ranked)


def ollama_chunks(says: Callable[[str], Json], reply: Reply, event: AnswerEvent) -> Iterator[str]:
    """Yield the lines of JSON that report `event` to a client of Ollama's API, after `reply`.

    `says(text)` makes the field with a text: {"message": …}, in /api/generate {"response": text}.
    """
    match event:
        case Waiting():
            yield _line(_ollama_object(reply, says("")))
        case Delta(text, tokens):
            if text:
                yield _line(_ollama_object(reply, says(text) | _ranked(tokens)))
        case Answer():
            yield _line(_done(reply, event, says("")))
        case ApiError():
            yield _line({"error": str(event)})


def ollama_whole(says: Callable[[str], Json], reply: Reply, answer: Answer) -> Json:
    """Return an unstreamed answer as an object of Ollama's API; `reply` has its text.

    `says(text)` makes the field with a text: {"message": …}, in /api/generate {"response": text}.
    """
    return _done(reply, answer, says(reply.text) | _ranked(reply.tokens))


def _ranked(tokens: Sequence[Json]) -> Json:
    return {"logprobs": tokens} if tokens else {}


def _line(value: Json) -> str:
    return json.dumps(value) + "\n"


def _ollama_object(reply: Reply, more: Json) -> Json:
    return {"model": reply.model, "created_at": date(reply.created), "done": False, **more}


def _done(reply: Reply, answer: Answer, more: Json) -> Json:
    found = report(reply, answer)
    timings = found.pop("timings")
    read_ns, written_ns = (int(MS * timings[f"{each}_ms"]) for each in ("prompt", "predicted"))
    numbers = {
        "done": True,
        "done_reason": _reason(answer),
        "total_duration": read_ns + written_ns,
        "load_duration": 0,
        "prompt_eval_count": timings["prompt_n"],
        "prompt_eval_duration": read_ns,
        "eval_count": timings["predicted_n"],
        "eval_duration": written_ns,
    }
    return _ollama_object(reply, {**more, **found, **numbers})


def date(seconds: float) -> str:
    """Return a time in seconds since 1970 as Ollama writes it: ISO 8601, in UTC."""
    return datetime.fromtimestamp(seconds, UTC).isoformat()


def _ollama(says: Callable[[str], Json]) -> AnswerForm:
    return AnswerForm(
        parse_ollama, partial(ollama_chunks, says), partial(ollama_whole, says), LINES
    )


FORMS = {
    "/v1/chat/completions": AnswerForm(parse_chat, chat_chunks, chat_completion),
    "/v1/responses": AnswerForm(parse_response, response_chunks, response),
    "/api/chat": _ollama(lambda text: {"message": {"role": "assistant", "content": text}}),
    "/api/generate": _ollama(lambda text: {"response": text}),
}
"""The answer form of each API, by its path."""
