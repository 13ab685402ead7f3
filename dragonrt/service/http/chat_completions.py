"""`POST /v1/chat/completions`: the API that most programs use."""

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
from dragonrt.service.http.api_errors import ApiError, invalid
from dragonrt.service.http.api_request import ApiRequest, Wanted, dialogue
from dragonrt.service.http.request_body import ChatBody, Json, read

OBJECT, CHUNK = "chat.completion", "chat.completion.chunk"
DONE = SseEvent("[DONE]")


class ChatCompletion(AnswerForm):
    """A choice with a message."""

    PREFIX: ClassVar = "chatcmpl-"

    @staticmethod
    @override
    def parse(body: Json, defaults: ApiRequest) -> ApiRequest:
        """Return the request in a body. Raises ApiError for unsupported features."""
        given, ignored = read(body, ChatBody)
        top = given.top_logprobs or 0
        if top and not given.logprobs:
            raise invalid("logprobs", "true with top_logprobs")
        ranked = Wanted("logprobs", top) if given.logprobs else None
        asked = dialogue(given.messages or [], "messages")
        lengths = ("max_completion_tokens", "max_tokens")
        return defaults.asked(given, ignored, asked, lengths, ranked)

    @override
    def begin(self) -> Iterable[SseEvent]:
        yield self._chunk({"role": "assistant", "content": ""})

    @override
    def delta(self, piece: str, tokens: Sequence[RankedToken]) -> Iterable[SseEvent]:
        yield self._chunk({"content": piece}, self._logprobs(tokens))

    @override
    def finish(self, answer: Answer) -> Iterable[SseEvent]:
        delta = {"annotations": self.annotations(answer)}
        yield self._chunk(delta, None, _reason(answer), **report(answer))
        if self.request.include_usage:
            yield SseEvent(self._object(CHUNK, [], usage=_usage(answer)))
        yield DONE

    @override
    def failed(self, error: ApiError) -> Iterable[SseEvent]:
        return SseEvent(error.to_json()), DONE

    @override
    def whole(self, answer: Answer) -> Json:
        message = {"role": "assistant", "content": self.written, "refusal": None}
        choice = {
            "index": 0,
            "message": {**message, "annotations": self.annotations(answer)},
            "logprobs": self._logprobs(self.tokens),
            "finish_reason": _reason(answer),
        }
        return self._object(OBJECT, [choice], usage=_usage(answer), **report(answer))

    @override
    def cite(self, start: int, end: int, source: Json) -> Json:
        place = {"start_index": start, "end_index": end}
        return {"type": "url_citation", "url_citation": {**place, **source}}

    def _object(self, kind: str, choices: list[Json], **more: Any) -> Json:
        head = {"id": self.id, "created": self.created, "model": self.model}
        return {**head, "object": kind, "choices": choices, **more}

    def _logprobs(self, tokens: Sequence[RankedToken]) -> Json | None:
        """Return the probabilities of tokens."""
        if self.request.question.top_logprobs is None:
            return None
        return {"content": [token.to_json() for token in tokens], "refusal": None}

    def _chunk(
        self, delta: Json, logprobs: Json | None = None, reason: str | None = None, **more: Any
    ) -> SseEvent:
        choice = {"index": 0, "delta": delta, "logprobs": logprobs, "finish_reason": reason}
        return SseEvent(self._object(CHUNK, [choice], **more))


def _reason(answer: Answer) -> str:
    return "length" if too_long(answer) else "stop"


def _usage(answer: Answer) -> dict[str, int]:
    return usage(answer, "prompt_tokens", "completion_tokens")
