"""`POST /v1/responses`: OpenAI's newer API, whose stream is typed events."""

import itertools
import secrets
from collections.abc import Iterable, Sequence
from typing import Any, ClassVar

from typing_extensions import override

from dragonrt.service.answer import Answer
from dragonrt.service.http.answer_form import (
    AnswerForm,
    RankedToken,
    SseEvent,
    report,
    too_long,
    usage,
)
from dragonrt.service.http.api_errors import ApiError
from dragonrt.service.http.api_request import ApiRequest, Wanted, dialogue
from dragonrt.service.http.request_body import LOGPROBS, TRACE, Json, ResponseBody, read


class ApiResponse(AnswerForm):
    """A response of one message of one text."""

    PREFIX: ClassVar = "resp_"

    def __init__(self, model: str, request: ApiRequest) -> None:
        super().__init__(model, request)
        self._item = f"msg_{secrets.token_hex(12)}"
        self._place = {"item_id": self._item, "output_index": 0, "content_index": 0}
        self._numbers = itertools.count()

    @staticmethod
    @override
    def parse(body: Json, defaults: ApiRequest) -> ApiRequest:
        """Return the request in a body. Raises ApiError for unsupported features."""
        given, ignored = read(body, ResponseBody)
        included, top = given.include or [], given.top_logprobs or 0
        ranked = Wanted("top_logprobs" if top else "include", top)
        return defaults.asked(
            given,
            ignored,
            dialogue(given.input or [], "input", given.instructions or ""),
            ("max_output_tokens",),
            ranked if top or LOGPROBS in included else None,
            traced=TRACE in included,
        )

    @override
    def begin(self) -> Iterable[SseEvent]:
        for kind in ("created", "in_progress"):
            yield self._event(kind, response=self._object("in_progress", []))
        item = self._message("in_progress", [])
        yield self._event("output_item.added", output_index=0, item=item)
        yield self._event("content_part.added", **self._place, part=self._part([]))

    @override
    def delta(self, piece: str, tokens: Sequence[RankedToken]) -> Iterable[SseEvent]:
        ranked = [token.to_json() for token in tokens]
        yield self._event("output_text.delta", **self._place, delta=piece, logprobs=ranked)

    @override
    def trace(self, events: Sequence[Json]) -> Iterable[SseEvent]:
        yield SseEvent(
            {"type": TRACE, "sequence_number": next(self._numbers), "events": events}, TRACE
        )

    @override
    def finish(self, answer: Answer) -> Iterable[SseEvent]:
        part = self._part(self.annotations(answer))
        for place, annotation in enumerate(part["annotations"]):
            fields = {"annotation_index": place, "annotation": annotation}
            yield self._event("output_text.annotation.added", **self._place, **fields)
        done = {"text": part["text"], "logprobs": part["logprobs"]}
        yield self._event("output_text.done", **self._place, **done)
        yield self._event("content_part.done", **self._place, part=part)
        item = self._message(_status(answer), [part])
        yield self._event("output_item.done", output_index=0, item=item)
        yield self._event(_status(answer), response=self.whole(answer))

    @override
    def failed(self, error: ApiError) -> Iterable[SseEvent]:
        failure = {"code": "server_error", "message": str(error)}
        yield self._event("failed", response=self._object("failed", [], error=failure))

    @override
    def whole(self, answer: Answer) -> Json:
        message = self._message(_status(answer), [self._part(self.annotations(answer))])
        details = {
            "input_tokens_details": {"cached_tokens": 0},
            "output_tokens_details": {"reasoning_tokens": 0},
        }
        more = {
            "incomplete_details": {"reason": "max_output_tokens"} if too_long(answer) else None,
            "usage": usage(answer, "input_tokens", "output_tokens") | details,
        }
        return self._object(_status(answer), [message], **more, **report(answer))

    @override
    def cite(self, start: int, end: int, source: Json) -> Json:
        return {
            "type": "file_citation",
            "file_id": f"{source['side']}:{source['file']}",
            "filename": source["file"],
            "index": end,
            "start_index": start,
            "end_index": end,
            **source,
        }

    def _part(self, found: list[Json]) -> Json:
        logprobs = [token.to_json() for token in self.tokens]
        part = {"type": "output_text", "text": self.written, "annotations": found}
        return {**part, "logprobs": logprobs}

    def _event(self, kind: str, **fields: Any) -> SseEvent:
        name = f"response.{kind}"
        data = {"type": name, "sequence_number": next(self._numbers), **fields}
        return SseEvent(data, name)

    def _message(self, status: str, content: list[Json]) -> Json:
        message = {"id": self._item, "type": "message", "status": status, "role": "assistant"}
        return {**message, "content": content}

    def _object(self, status: str, output: list[Json], **more: Any) -> Json:
        question = self.request.question
        return {
            "id": self.id,
            "object": "response",
            "created_at": self.created,
            "status": status,
            "error": None,
            "incomplete_details": None,
            "instructions": question.instructions or None,
            "max_output_tokens": question.max_tokens,
            "metadata": {},
            "model": self.model,
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


def _status(answer: Answer) -> str:
    return "incomplete" if too_long(answer) else "completed"
