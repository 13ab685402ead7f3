"""`POST /v1/chat/completions` and `POST /v1/completions`: OpenAI's older APIs, with choices.

Most programs use the first. The second is for programs that send one text without roles.
"""

from collections.abc import Iterable, Sequence
from itertools import accumulate
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
from dragonrt.service.http.api_request import ApiRequest, Dialogue, Wanted, dialogue
from dragonrt.service.http.request_body import CHAT, COMPLETION, Json, alone, read

DONE = SseEvent("[DONE]")


class ChatCompletion(AnswerForm):
    """A choice with a message."""

    PREFIX: ClassVar = "chatcmpl-"
    OBJECT: ClassVar = "chat.completion"
    CHUNK: ClassVar = "chat.completion.chunk"

    @staticmethod
    @override
    def parse(body: Json, defaults: ApiRequest) -> ApiRequest:
        """Return the request in a body. Raises ApiError for unsupported features."""
        fields, ignored = read(body, CHAT)
        top, ranked = fields.get("top_logprobs", 0), None
        if fields.get("logprobs"):
            ranked = Wanted("logprobs", top)
        elif top:
            raise invalid("logprobs", "true with top_logprobs")
        asked = dialogue(fields.get("messages", []), "messages")
        lengths = ("max_completion_tokens", "max_tokens")
        return defaults.asked(fields, ignored, asked, lengths, ranked)

    @override
    def begin(self) -> Iterable[SseEvent]:
        yield self._chunk({"role": "assistant", "content": ""})

    @override
    def delta(self, piece: str, tokens: Sequence[RankedToken]) -> Iterable[SseEvent]:
        yield self._chunk({"content": piece}, self._logprobs(tokens, len(self.written)))

    @override
    def finish(self, answer: Answer) -> Iterable[SseEvent]:
        delta = {"annotations": self.annotations(answer)}
        yield self._chunk(delta, None, _reason(answer), **report(answer))
        if self.request.include_usage:
            yield SseEvent(self._object(self.CHUNK, [], usage=_usage(answer)))
        yield DONE

    @override
    def failed(self, error: ApiError) -> Iterable[SseEvent]:
        return SseEvent(error.to_json()), DONE

    @override
    def whole(self, answer: Answer) -> Json:
        choice = {
            "index": 0,
            **self._content(answer),
            "logprobs": self._logprobs(self.tokens, 0),
            "finish_reason": _reason(answer),
        }
        return self._object(self.OBJECT, [choice], usage=_usage(answer), **report(answer))

    @override
    def cite(self, start: int, end: int, source: Json) -> Json:
        place = {"start_index": start, "end_index": end}
        return {"type": "url_citation", "url_citation": {**place, **source}}

    def _object(self, kind: str, choices: list[Json], **more: Any) -> Json:
        head = {"id": self.id, "created": self.created, "model": self.model}
        return {**head, "object": kind, "choices": choices, **more}

    def _content(self, answer: Answer) -> Json:
        """Return a choice's field for the whole answer."""
        message = {"role": "assistant", "content": self.written, "refusal": None}
        return {"message": {**message, "annotations": self.annotations(answer)}}

    def _piece(self, delta: Json) -> Json:
        """Return a choice's field for a piece of the answer."""
        return {"delta": delta}

    def _logprobs(self, tokens: Sequence[RankedToken], place: int) -> Json | None:
        """Return the probabilities of tokens; the first begins at `place` of the text."""
        if self.request.question.top_logprobs is None:
            return None
        return {"content": [token.to_json() for token in tokens], "refusal": None}

    def _chunk(
        self, delta: Json, logprobs: Json | None = None, reason: str | None = None, **more: Any
    ) -> SseEvent:
        choice = {"index": 0, **self._piece(delta), "logprobs": logprobs, "finish_reason": reason}
        return SseEvent(self._object(self.CHUNK, [choice], **more))


class Completion(ChatCompletion):
    """A choice with a text; its prompt is a single question."""

    PREFIX: ClassVar = "cmpl-"
    OBJECT: ClassVar = "text_completion"
    CHUNK: ClassVar = "text_completion"

    @staticmethod
    @override
    def parse(body: Json, defaults: ApiRequest) -> ApiRequest:
        """Return the request in a body. Raises ApiError for unsupported features."""
        fields, ignored = read(body, COMPLETION)
        ranked = Wanted("logprobs", fields["logprobs"]) if "logprobs" in fields else None
        asked = Dialogue(alone(fields["prompt"]), "prompt")
        return defaults.asked(fields, ignored, asked, ("max_tokens",), ranked)

    @override
    def begin(self) -> Iterable[SseEvent]:
        return ()

    @override
    def _content(self, answer: Answer) -> Json:
        return {"text": self.written}

    @override
    def _piece(self, delta: Json) -> Json:
        return {"text": delta.get("content", "")}

    @override
    def _logprobs(self, tokens: Sequence[RankedToken], place: int) -> Json | None:
        if self.request.question.top_logprobs is None:
            return None
        lengths = (len(token.text) for token in tokens)
        return {
            "tokens": [token.text for token in tokens],
            "token_logprobs": [token.logprob for token in tokens],
            "top_logprobs": [dict(token.top) for token in tokens],
            "text_offset": [*accumulate(lengths, initial=place)][:-1],
        }


def _reason(answer: Answer) -> str:
    return "length" if too_long(answer) else "stop"


def _usage(answer: Answer) -> dict[str, int]:
    return usage(answer, "prompt_tokens", "completion_tokens")
