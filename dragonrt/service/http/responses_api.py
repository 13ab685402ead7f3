"""`POST /v1/responses`: OpenAI's newer API, whose stream is typed events."""

import itertools
import secrets
import time
from collections.abc import Iterable, Sequence
from typing import Any

from dragonrt.modes.mode import Finish
from dragonrt.service.conversation import Reply
from dragonrt.service.http.answer_form import (
    SseEvent,
    citation,
    closing_text,
    not_found,
    report,
    usage,
)
from dragonrt.service.http.api_errors import ApiError, invalid, unsupported
from dragonrt.service.http.request_body import ApiRequest, Defaults, RequestBody, said
from dragonrt.wire.limits import MAX_TOKENS

TRACE = "dragonrt.trace"
"""What `include` names to hear how the answer comes about, and the type of the events that say."""

WITHOUT_EFFECT = (
    *("user", "metadata", "safety_identifier", "prompt_cache_key", "prompt_cache_retention"),
    *("service_tier", "parallel_tool_calls"),
)
NEUTRAL: dict[str, Sequence[Any]] = {
    "store": (False,),
    "background": (False,),
    "tools": ([],),
    "tool_choice": ("none", "auto"),
    "top_logprobs": (0,),
    "truncation": ("auto",),
    "text": ({"format": {"type": "text"}},),
}
"""Values with which an unsupported field asks for what happens anyhow."""


def response_request(body: RequestBody, defaults: Defaults) -> ApiRequest:
    """What the body asks for; ApiError for what is not supported."""
    body.pass_over(WITHOUT_EFFECT)
    body.allow(NEUTRAL)
    options = body.inner("stream_options")
    options.allow({"include_obfuscation": (False,)})
    options.close()
    max_tokens = body.integer("max_output_tokens", 1, MAX_TOKENS)
    traced = _traced(body)
    if body.has_text("input"):
        messages = [RequestBody({"role": "user", "content": body.take("input")}, "input.")]
    else:
        messages = body.entries("input")
    if instructions := body.take("instructions"):
        system = {"role": "system", "content": instructions}
        messages = [RequestBody(system, "instructions."), *messages]
    return defaults.request(body, said(messages), max_tokens, traced=traced)


def _traced(body: RequestBody) -> bool:
    name, included = body.name("include"), body.take("include") or []
    if not isinstance(included, list):
        raise invalid(name, "a list")
    for each in included:
        if each != TRACE:
            raise unsupported(name, f"nothing but {TRACE} can be included")
    return bool(included)


class ApiResponse:
    """Implements AnswerForm: one message of one text."""

    def __init__(self, model: str, request: ApiRequest) -> None:
        self._request = request
        self._model = model
        self._id = f"resp_{secrets.token_hex(12)}"
        self._item = f"msg_{secrets.token_hex(12)}"
        self._created = int(time.time())  # a date, as OpenAI's API has it
        self._numbers = itertools.count()
        self._text = ""

    def begin(self) -> Iterable[SseEvent]:
        for kind in ("response.created", "response.in_progress"):
            yield self._event(kind, response=self._object("in_progress", []))
        item = self._message("in_progress", [])
        yield self._event("response.output_item.added", output_index=0, item=item)
        part = _part("", [])
        yield self._event("response.content_part.added", **self._place, part=part)

    def text(self, piece: str) -> Iterable[SseEvent]:
        self._text += piece
        yield self._event("response.output_text.delta", **self._place, delta=piece, logprobs=[])

    def trace(self, events: Sequence[dict[str, Any]]) -> Iterable[SseEvent]:
        yield self._event(TRACE, events=list(events))

    def end(self, reply: Reply) -> Iterable[SseEvent]:
        if self._request.sources_in_text and (closing := closing_text(reply)):
            yield from self.text(closing)
        annotations = _annotations(reply)
        for number, annotation in enumerate(annotations):
            yield self._event(
                "response.output_text.annotation.added",
                **self._place,
                annotation_index=number,
                annotation=annotation,
            )
        part = _part(self._text, annotations)
        yield self._event("response.output_text.done", **self._place, text=self._text, logprobs=[])
        yield self._event("response.content_part.done", **self._place, part=part)
        item = self._message(_status(reply), [part])
        yield self._event("response.output_item.done", output_index=0, item=item)
        yield self._event(f"response.{_status(reply)}", response=self.whole(reply))

    def failed(self, error: ApiError) -> Iterable[SseEvent]:
        about = {"code": "server_error", "message": str(error)}
        yield self._event("response.failed", response=self._object("failed", [], error=about))

    def whole(self, reply: Reply) -> dict[str, Any]:
        status, (given, written) = _status(reply), usage(reply)
        message = self._message(status, [_part(self._text, _annotations(reply))])
        incomplete = {"reason": "max_output_tokens"} if status == "incomplete" else None
        spent = {
            "input_tokens": given,
            "input_tokens_details": {"cached_tokens": 0},
            "output_tokens": written,
            "output_tokens_details": {"reasoning_tokens": 0},
            "total_tokens": given + written,
        }
        return self._object(
            status,
            [message],
            incomplete_details=incomplete,
            usage=spent,
            dragonrt=report(reply),
        )

    @property
    def _place(self) -> dict[str, Any]:
        return {"item_id": self._item, "output_index": 0, "content_index": 0}

    def _event(self, kind: str, **fields: Any) -> SseEvent:
        data = {"type": kind, "sequence_number": next(self._numbers), **fields}
        return SseEvent(data, kind)

    def _message(self, status: str, content: list[dict[str, Any]]) -> dict[str, Any]:
        return {
            "id": self._item,
            "type": "message",
            "status": status,
            "role": "assistant",
            "content": content,
        }

    def _object(self, status: str, output: list[dict[str, Any]], **more: Any) -> dict[str, Any]:
        question = self._request.question
        return {
            "id": self._id,
            "object": "response",
            "created_at": self._created,
            "status": status,
            "error": None,
            "incomplete_details": None,
            "instructions": question.instructions or None,
            "max_output_tokens": question.max_tokens,
            "metadata": {},
            "model": self._model,
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


def _status(reply: Reply) -> str:
    return "incomplete" if reply.answer.finish is Finish.LENGTH else "completed"


def _part(text: str, annotations: list[dict[str, Any]]) -> dict[str, Any]:
    return {"type": "output_text", "text": text, "annotations": annotations, "logprobs": []}


def _annotations(reply: Reply) -> list[dict[str, Any]]:
    cited = [
        {
            "type": "file_citation",
            "file_id": f"{side}:{source.name}",
            "filename": source.name,
            "index": len(reply.text),
            **citation(side, source),
        }
        for side, source in reply.sources
    ]
    return [*cited, *not_found(reply)]
