"""`POST /v1/responses`: OpenAI's newer API, whose stream is typed events."""

import itertools
import secrets
import time
from collections.abc import Iterable, Sequence
from typing import Any

from dragonrt.modes.mode import Finish
from dragonrt.modes.question import MAX_RANKED
from dragonrt.service.conversation import Reply
from dragonrt.service.http.answer_form import (
    RankedToken,
    SseEvent,
    citation,
    closing_text,
    not_found,
    report,
    timings,
    usage,
)
from dragonrt.service.http.api_errors import ApiError, invalid, unsupported
from dragonrt.service.http.request_body import ApiRequest, Asked, Defaults, RequestBody, said

TRACE = "dragonrt.trace"
"""What `include` names to hear how the answer comes about, and the type of the events that say."""

LOGPROBS = "message.output_text.logprobs"
"""What `include` names to hear each token's probability."""

UNLIKE_HERE: dict[str, Sequence[Any]] = {
    "background": (False,),
    "previous_response_id": (),
    "conversation": (),
    "prompt": (),
}
"""What asks for something that was kept here, or runs on: nothing is and nothing does."""


def response_request(body: RequestBody, defaults: Defaults) -> ApiRequest:
    """What the body asks for; ApiError for what is not supported."""
    body.allow(UNLIKE_HERE)
    body.pass_over(("truncation",))  # earlier turns make room for the question anyhow
    options = body.inner("stream_options")
    options.allow({"include_obfuscation": (False,)})
    options.close()
    text = body.inner("text")
    text.plain_text("format")
    text.close()
    length = body.length("max_output_tokens")
    included = _included(body)
    top = body.integer("top_logprobs", 0, MAX_RANKED)
    ranked = None
    if LOGPROBS in included or top:
        ranked = Asked("top_logprobs" if top else "include", top or 0)
    if body.has_text("input"):
        asked = {"role": "user", "content": body.take("input")}
        messages = [RequestBody(asked, names={"content": "input"})]
    else:
        messages = body.entries("input")
    if instructions := body.take("instructions"):
        system = {"role": "system", "content": instructions}
        messages = [RequestBody(system, names={"content": "instructions"}), *messages]
    return defaults.request(
        body,
        said(messages, "input"),
        length,
        asked_in="input",
        ranked=ranked,
        traced=TRACE in included,
    )


def _included(body: RequestBody) -> list[Any]:
    name, included = body.name("include"), body.take("include") or []
    if not isinstance(included, list):
        raise invalid(name, "a list")
    for each in included:
        if each not in (TRACE, LOGPROBS):
            raise unsupported(name, f"nothing but {TRACE} and {LOGPROBS} can be included")
    return included


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
        self._tokens: list[dict[str, Any]] = []

    def begin(self) -> Iterable[SseEvent]:
        for kind in ("response.created", "response.in_progress"):
            yield self._event(kind, response=self._object("in_progress", []))
        item = self._message("in_progress", [])
        yield self._event("response.output_item.added", output_index=0, item=item)
        part = self._part([])
        yield self._event("response.content_part.added", **self._place, part=part)

    def text(self, piece: str, tokens: Sequence[RankedToken] = ()) -> Iterable[SseEvent]:
        self._text += piece
        ranked = [token.to_json() for token in tokens]
        self._tokens += ranked
        yield self._event("response.output_text.delta", **self._place, delta=piece, logprobs=ranked)

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
        part = self._part(annotations)
        done = {"text": self._text, "logprobs": self._tokens}
        yield self._event("response.output_text.done", **self._place, **done)
        yield self._event("response.content_part.done", **self._place, part=part)
        item = self._message(_status(reply), [part])
        yield self._event("response.output_item.done", output_index=0, item=item)
        yield self._event(f"response.{_status(reply)}", response=self.whole(reply))

    def failed(self, error: ApiError) -> Iterable[SseEvent]:
        about = {"code": "server_error", "message": str(error)}
        yield self._event("response.failed", response=self._object("failed", [], error=about))

    def whole(self, reply: Reply) -> dict[str, Any]:
        status, (given, written) = _status(reply), usage(reply)
        message = self._message(status, [self._part(_annotations(reply))])
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
            timings=timings(reply),
            dragonrt=report(reply),
        )

    @property
    def _place(self) -> dict[str, Any]:
        return {"item_id": self._item, "output_index": 0, "content_index": 0}

    def _part(self, annotations: list[dict[str, Any]]) -> dict[str, Any]:
        return {
            "type": "output_text",
            "text": self._text,
            "annotations": annotations,
            "logprobs": list(self._tokens),
        }

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
