"""`POST /v1/responses`: OpenAI's newer API, whose stream is typed events."""

import itertools
import secrets
from collections.abc import Iterable, Sequence
from typing import Any, ClassVar

from dragonrt.service.conversation import Reply
from dragonrt.service.http.answer_form import (
    AnswerForm,
    Json,
    RankedToken,
    SseEvent,
    report,
    too_long,
    usage,
)
from dragonrt.service.http.api_errors import ApiError, unsupported
from dragonrt.service.http.request_body import (
    ANY,
    LIST,
    TEXT,
    TOP,
    Accepted,
    ApiRequest,
    RequestBody,
    Wanted,
    dialogue,
)

TRACE = "dragonrt.trace"
"""What `include` names to hear how the answer comes about, and the type of the events that say."""

LOGPROBS = "message.output_text.logprobs"
"""What `include` names to hear each token's probability."""

STATELESS: Accepted = {
    "background": (False,),
    "previous_response_id": (),
    "conversation": (),
    "prompt": (),
    "truncation": ANY,  # earlier turns make room for the question in any case
}
"""What asks for something that was kept here, or goes on without its client."""


class ApiResponse(AnswerForm):
    """A response of one message of one text."""

    PREFIX: ClassVar = "resp_"

    def __init__(self, model: str, request: ApiRequest) -> None:
        super().__init__(model, request)
        self._item = f"msg_{secrets.token_hex(12)}"
        self._place = {"item_id": self._item, "output_index": 0, "content_index": 0}
        self._numbers = itertools.count()

    @staticmethod
    def parse(body: RequestBody, defaults: ApiRequest) -> ApiRequest:
        """Return what the body asks for. Raises ApiError for what is not supported."""
        body.allow(STATELESS)
        body.inner("text").plain_text("format")
        length = body.length("max_output_tokens")
        included = body.take("include", LIST, [])
        if any(each not in (TRACE, LOGPROBS) for each in included):
            raise unsupported("include", f"nothing but {TRACE} and {LOGPROBS} can be included")
        top, ranked = body.take("top_logprobs", TOP, 0), None
        if LOGPROBS in included or top:
            ranked = Wanted("top_logprobs" if top else "include", top)
        instructions, said = body.take("instructions", TEXT, ""), body.take("input")
        if isinstance(said, str):
            said = [{"role": "user", "content": said}]
        asked = dialogue(body, "input", said, instructions)
        return defaults.asked(body, asked, length, ranked, traced=TRACE in included)

    def begin(self) -> Iterable[SseEvent]:
        for kind in ("created", "in_progress"):
            yield self._event(kind, response=self._object("in_progress", []))
        item = self._message("in_progress", [])
        yield self._event("output_item.added", output_index=0, item=item)
        yield self._event("content_part.added", **self._place, part=self._part([]))

    def delta(self, piece: str, tokens: Sequence[RankedToken]) -> Iterable[SseEvent]:
        ranked = [token.to_json() for token in tokens]
        yield self._event("output_text.delta", **self._place, delta=piece, logprobs=ranked)

    def trace(self, events: Sequence[Json]) -> Iterable[SseEvent]:
        yield SseEvent(
            {"type": TRACE, "sequence_number": next(self._numbers), "events": events}, TRACE
        )

    def finish(self, reply: Reply) -> Iterable[SseEvent]:
        part = self._part(self.annotations(reply))
        for place, annotation in enumerate(part["annotations"]):
            fields = {"annotation_index": place, "annotation": annotation}
            yield self._event("output_text.annotation.added", **self._place, **fields)
        done = {"text": part["text"], "logprobs": part["logprobs"]}
        yield self._event("output_text.done", **self._place, **done)
        yield self._event("content_part.done", **self._place, part=part)
        item = self._message(_status(reply), [part])
        yield self._event("output_item.done", output_index=0, item=item)
        yield self._event(_status(reply), response=self.whole(reply))

    def failed(self, error: ApiError) -> Iterable[SseEvent]:
        failure = {"code": "server_error", "message": str(error)}
        yield self._event("failed", response=self._object("failed", [], error=failure))

    def whole(self, reply: Reply) -> Json:
        message = self._message(_status(reply), [self._part(self.annotations(reply))])
        details = {
            "input_tokens_details": {"cached_tokens": 0},
            "output_tokens_details": {"reasoning_tokens": 0},
        }
        more = {
            "incomplete_details": {"reason": "max_output_tokens"} if too_long(reply) else None,
            "usage": usage(reply, "input_tokens", "output_tokens") | details,
        }
        return self._object(_status(reply), [message], **more, **report(reply))

    def cite(self, reply: Reply, source: Json) -> Json:
        return {
            "type": "file_citation",
            "file_id": f"{source['side']}:{source['file']}",
            "filename": source["file"],
            "index": len(reply.text),
            **source,
        }

    def _part(self, found: list[Json]) -> Json:
        logprobs = [token.to_json() for token in self.tokens]
        part = {"type": "output_text", "text": self.said, "annotations": found}
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


def _status(reply: Reply) -> str:
    return "incomplete" if too_long(reply) else "completed"
