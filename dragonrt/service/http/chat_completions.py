"""`POST /v1/chat/completions` and `POST /v1/completions`: OpenAI's older APIs, of choices.

Every front speaks the first. The second is for programs that send one text and know no roles.
"""

import secrets
import time
from collections.abc import Iterable, Sequence
from typing import Any, ClassVar

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
from dragonrt.service.http.api_errors import ApiError, invalid
from dragonrt.service.http.request_body import (
    ApiRequest,
    Asked,
    Defaults,
    Dialogue,
    RequestBody,
    said,
)

DONE = "[DONE]"
MOST_ALTERNATIVES = 5
"""What OpenAI's older API takes for `logprobs`."""


def chat_request(body: RequestBody, defaults: Defaults) -> ApiRequest:
    """What the body asks for; ApiError for what is not supported."""
    body.plain_text("response_format")
    ranked = None
    top = body.integer("top_logprobs", 0, MAX_RANKED)
    if body.flag("logprobs", False):
        ranked = Asked("logprobs", top or 0)
    elif top:
        raise invalid("logprobs", "true with top_logprobs")
    length = body.length("max_completion_tokens", "max_tokens")
    messages = said(body.entries("messages"), "messages")
    return defaults.request(
        body,
        messages,
        length,
        asked_in="messages",
        ranked=ranked,
        include_usage=_include_usage(body),
    )


def completion_request(body: RequestBody, defaults: Defaults) -> ApiRequest:
    """The same of the older API: its prompt is a question without a conversation."""
    body.allow({"echo": (False,), "suffix": ("",)})
    alternatives = body.integer("logprobs", 0, MOST_ALTERNATIVES)
    ranked = None if alternatives is None else Asked("logprobs", alternatives)
    length = body.length("max_tokens")
    prompt = body.take("prompt")
    if isinstance(prompt, list) and len(prompt) == 1:
        (prompt,) = prompt
    if not isinstance(prompt, str) or not prompt.strip():
        raise invalid("prompt", "one text, a question")
    return defaults.request(
        body,
        Dialogue(prompt, ()),
        length,
        asked_in="prompt",
        ranked=ranked,
        include_usage=_include_usage(body),
    )


def _include_usage(body: RequestBody) -> bool:
    options = body.inner("stream_options")
    options.allow({"include_obfuscation": (False,)})
    include_usage = options.flag("include_usage", False)
    options.close()
    return include_usage


class ChatCompletion:
    """Implements AnswerForm."""

    PREFIX: ClassVar = "chatcmpl"
    OBJECT: ClassVar = "chat.completion"
    CHUNK: ClassVar = "chat.completion.chunk"

    def __init__(self, model: str, request: ApiRequest) -> None:
        self._request = request
        self._head = {
            "id": f"{self.PREFIX}-{secrets.token_hex(12)}",
            "created": int(time.time()),  # a date, as OpenAI's API has it
            "model": model,
        }
        self._text = ""
        self._tokens: list[RankedToken] = []

    def begin(self) -> Iterable[SseEvent]:
        yield self._chunk({"role": "assistant", "content": ""})

    def text(self, piece: str, tokens: Sequence[RankedToken] = ()) -> Iterable[SseEvent]:
        before, self._text = self._text, self._text + piece
        self._tokens += tokens
        yield self._chunk({"content": piece}, self._logprobs(tokens, len(before)))

    def trace(self, events: Sequence[dict[str, Any]]) -> Iterable[SseEvent]:
        return ()

    def end(self, reply: Reply) -> Iterable[SseEvent]:
        if self._request.sources_in_text and (closing := closing_text(reply)):
            yield from self.text(closing)
        yield self._chunk(
            {"annotations": _annotations(reply)},
            finish_reason=_finish_reason(reply),
            dragonrt=report(reply),
            timings=timings(reply),
        )
        if self._request.include_usage:
            chunk = {**self._head, "object": self.CHUNK, "choices": []}
            yield SseEvent({**chunk, "usage": _usage(reply)})
        yield SseEvent(DONE)

    def failed(self, error: ApiError) -> Iterable[SseEvent]:
        yield SseEvent(error.to_json())
        yield SseEvent(DONE)

    def whole(self, reply: Reply) -> dict[str, Any]:
        choice = {
            "index": 0,
            **self._content(reply),
            "logprobs": self._logprobs(self._tokens, 0),
            "finish_reason": _finish_reason(reply),
        }
        return {
            **self._head,
            "object": self.OBJECT,
            "choices": [choice],
            "usage": _usage(reply),
            "timings": timings(reply),
            "dragonrt": report(reply),
        }

    def _content(self, reply: Reply) -> dict[str, Any]:
        """What a choice holds of the whole answer."""
        message = {
            "role": "assistant",
            "content": self._text,
            "refusal": None,
            "annotations": _annotations(reply),
        }
        return {"message": message}

    def _piece(self, delta: dict[str, Any]) -> dict[str, Any]:
        """What a choice holds of a piece of it."""
        return {"delta": delta}

    def _logprobs(self, tokens: Sequence[RankedToken], place: int) -> dict[str, Any] | None:
        """The probabilities of tokens, of which the first begins at that place of the text."""
        if self._request.question.top_logprobs is None:
            return None
        return {"content": [token.to_json() for token in tokens], "refusal": None}

    def _chunk(
        self,
        delta: dict[str, Any],
        logprobs: dict[str, Any] | None = None,
        finish_reason: str | None = None,
        **more: Any,
    ) -> SseEvent:
        choice = {
            "index": 0,
            **self._piece(delta),
            "logprobs": logprobs,
            "finish_reason": finish_reason,
        }
        return SseEvent({**self._head, "object": self.CHUNK, "choices": [choice], **more})


class Completion(ChatCompletion):
    """The same with a text instead of a message."""

    PREFIX: ClassVar = "cmpl"
    OBJECT: ClassVar = "text_completion"
    CHUNK: ClassVar = "text_completion"

    def begin(self) -> Iterable[SseEvent]:
        return ()

    def _content(self, reply: Reply) -> dict[str, Any]:
        return {"text": self._text}

    def _piece(self, delta: dict[str, Any]) -> dict[str, Any]:
        return {"text": delta.get("content", "")}

    def _logprobs(self, tokens: Sequence[RankedToken], place: int) -> dict[str, Any] | None:
        if self._request.question.top_logprobs is None:
            return None
        offsets = []
        for token in tokens:
            offsets.append(place)
            place += len(token.text)
        return {
            "tokens": [token.text for token in tokens],
            "token_logprobs": [token.logprob for token in tokens],
            "top_logprobs": [dict(token.top) for token in tokens],
            "text_offset": offsets,
        }


def _annotations(reply: Reply) -> list[dict[str, Any]]:
    """A document of which nobody knows which words it gave is one of the whole text."""
    whole = {"start_index": 0, "end_index": len(reply.text)}
    cited = [
        {"type": "url_citation", "url_citation": {**whole, **citation(*each)}}
        for each in reply.sources
    ]
    return [*cited, *not_found(reply)]


def _finish_reason(reply: Reply) -> str:
    return "length" if reply.answer.finish is Finish.LENGTH else "stop"


def _usage(reply: Reply) -> dict[str, int]:
    prompt, completion = usage(reply)
    return {
        "prompt_tokens": prompt,
        "completion_tokens": completion,
        "total_tokens": prompt + completion,
    }
