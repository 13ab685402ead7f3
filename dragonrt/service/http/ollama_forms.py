"""The forms of Ollama's API, `/api/chat` and `/api/generate`, and what it says of a model."""

import json
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from functools import partial
from typing import Annotated, Any, Literal

from msgspec import Meta

from dragonrt.service.answer import Answer
from dragonrt.service.http.api_answer import (
    AnswerEvent,
    AnswerForm,
    Delta,
    Reply,
    Waiting,
    report,
    too_long,
)
from dragonrt.service.http.api_request import (
    PROBABILITIES,
    ApiRequest,
    Asked,
    ChatMessage,
    Length,
    Wanted,
    dialogue,
)
from dragonrt.service.http.request_body import ApiError, Json, invalid, read

VERSION = "0.12.0"
"""The version of Ollama whose API this is."""
LATEST = ":latest"
LINES = "application/x-ndjson"
MS = 1_000_000
"""Nanoseconds of a millisecond."""


class OllamaBody(Asked, kw_only=True):
    """The body of a request, with its `options` among the other fields."""

    messages: Annotated[list[ChatMessage] | None, "turns; images and files are refused"] = None
    prompt: Annotated[str | None, "of `/api/generate`: the question"] = None
    system: Annotated[str | None, "before the conversation"] = None
    num_predict: Length = None
    logprobs: Annotated[bool | None, PROBABILITIES] = None
    images: Annotated[Annotated[list[Any], Meta(max_length=0)] | None, "refused"] = None
    suffix: Annotated[Literal[""] | None, "refused"] = None


def parse(body: Json, defaults: ApiRequest) -> ApiRequest:
    """Return the request in a body. Raises ApiError for unsupported features."""
    options = body.get("options") or {}
    if not isinstance(options, dict):
        raise invalid("options", "an object")
    others = {name: value for name, value in body.items() if name != "options"}
    given, ignored = read({"stream": True, **options, **others}, OllamaBody)
    turns, field = given.messages or given.prompt or "", "prompt" if given.prompt else "messages"
    ranked = Wanted("logprobs", given.top_logprobs or 0) if given.logprobs else None
    asked = dialogue(turns, field, given.system or "")
    return defaults.asked(given, ignored, asked, ("num_predict",), ranked)


def chunks(says: Callable[[str], Json], reply: Reply, event: AnswerEvent) -> Iterator[str]:
    """Yield the lines of an event, each an object; while nothing comes, one without text."""
    match event:
        case Waiting():
            yield _line(_object(reply, says("")))
        case Delta(text, tokens):
            ranked = {"logprobs": [token.to_json() for token in tokens]} if tokens else {}
            if text:
                yield _line(_object(reply, says(text) | ranked))
        case Answer():
            yield _line(_done(reply, event, says("")))
        case ApiError():
            yield _line({"error": str(event)})


def whole(says: Callable[[str], Json], reply: Reply, answer: Answer) -> Json:
    """Return the object of a whole answer."""
    ranked = {"logprobs": [token.to_json() for token in reply.tokens]} if reply.tokens else {}
    return _done(reply, answer, says(reply.text) | ranked)


def _message(text: str) -> Json:
    return {"message": {"role": "assistant", "content": text}}


def _response(text: str) -> Json:
    return {"response": text}


CHAT, GENERATE = (
    AnswerForm(parse, partial(chunks, says), partial(whole, says), LINES)
    for says in (_message, _response)
)


def _line(value: Json) -> str:
    return json.dumps(value) + "\n"


def _object(reply: Reply, more: Json) -> Json:
    head = {"model": reply.model, "created_at": date(reply.created), "done": False}
    return {**head, **more}


def _done(reply: Reply, answer: Answer, more: Json) -> Json:
    found = report(reply, answer)
    timings = found.pop("timings")
    read_ns, written_ns = (int(MS * timings[f"{each}_ms"]) for each in ("prompt", "predicted"))
    numbers = {
        "done": True,
        "done_reason": "length" if too_long(answer) else "stop",
        "total_duration": read_ns + written_ns,
        "load_duration": 0,
        "prompt_eval_count": timings["prompt_n"],
        "prompt_eval_duration": read_ns,
        "eval_count": timings["predicted_n"],
        "eval_duration": written_ns,
    }
    return _object(reply, {**more, **found, **numbers})


def date(seconds: float) -> str:
    """Return a date as Ollama writes it."""
    return datetime.fromtimestamp(seconds, UTC).isoformat()


def listed(model: str, since: float) -> Json:
    """Return what `/api/tags` and `/api/ps` say of the model that answers."""
    named = dict.fromkeys(("name", "model"), model + LATEST)
    about = {**named, "modified_at": date(since), "size": 0, "digest": "", "details": {}}
    return {"models": [about]}


def shown(context: int, since: float) -> Json:
    """Return the answer of `/api/show` for a model with this context."""
    about = {"general.architecture": "dragonrt", "dragonrt.context_length": context}
    kept = {"details": {}, "modelfile": "", "template": "", "parameters": ""}
    can = {"model_info": about, "capabilities": ["completion"]}
    return {**kept, **can, "modified_at": date(since)}
