"""`POST /v1/chat/completions`: OpenAI's older API, which every front speaks."""

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
from dragonrt.service.http.api_errors import ApiError
from dragonrt.service.http.request_body import ApiRequest, Defaults, RequestBody, said
from dragonrt.wire.limits import MAX_TOKENS

WITHOUT_EFFECT = (
    *("user", "metadata", "safety_identifier", "prompt_cache_key", "prompt_cache_retention"),
    *("service_tier", "parallel_tool_calls"),
)
NEUTRAL: dict[str, Sequence[Any]] = {
    "n": (1,),
    "store": (False,),
    "tools": ([],),
    "functions": ([],),
    "tool_choice": ("none", "auto"),
    "function_call": ("none", "auto"),
    "logprobs": (False,),
    "top_logprobs": (0,),
    "logit_bias": ({},),
    "presence_penalty": (0,),
    "frequency_penalty": (0,),
    "response_format": ({"type": "text"},),
    "modalities": (["text"],),
}
"""Values with which an unsupported field asks for what happens anyhow."""
DONE = "[DONE]"


def chat_request(body: RequestBody, defaults: Defaults) -> ApiRequest:
    """What the body asks for; ApiError for what is not supported."""
    body.pass_over(WITHOUT_EFFECT)
    body.allow(NEUTRAL)
    options = body.inner("stream_options")
    options.allow({"include_obfuscation": (False,)})
    include_usage = options.flag("include_usage", False)
    options.close()
    asked = [body.integer(name, 1, MAX_TOKENS) for name in ("max_completion_tokens", "max_tokens")]
    max_tokens = next((number for number in asked if number is not None), None)
    messages = said(body.entries("messages"))
    return defaults.request(body, messages, max_tokens, include_usage=include_usage)


class ChatCompletion:
    """Implements AnswerForm."""

    def __init__(self, model: str, request: ApiRequest) -> None:
        self._request = request
        self._head = {
            "id": f"chatcmpl-{secrets.token_hex(12)}",
            "created": int(time.time()),  # a date, as OpenAI's API has it
            "model": model,
        }
        self._text = ""

    def begin(self) -> Iterable[SseEvent]:
        yield self._chunk({"role": "assistant", "content": ""})

    def text(self, piece: str) -> Iterable[SseEvent]:
        self._text += piece
        yield self._chunk({"content": piece})

    def trace(self, events: Sequence[dict[str, Any]]) -> Iterable[SseEvent]:
        return ()

    def end(self, reply: Reply) -> Iterable[SseEvent]:
        if self._request.sources_in_text and (closing := closing_text(reply)):
            yield from self.text(closing)
        yield self._chunk(
            {"annotations": self._annotations(reply)},
            finish_reason=_finish_reason(reply),
            dragonrt=report(reply),
        )
        if self._request.include_usage:
            chunk = {**self._head, "object": "chat.completion.chunk", "choices": []}
            yield SseEvent({**chunk, "usage": _usage(reply)})
        yield SseEvent(DONE)

    def failed(self, error: ApiError) -> Iterable[SseEvent]:
        yield SseEvent(error.to_json())
        yield SseEvent(DONE)

    def whole(self, reply: Reply) -> dict[str, Any]:
        message = {
            "role": "assistant",
            "content": self._text,
            "refusal": None,
            "annotations": self._annotations(reply),
        }
        choice = {
            "index": 0,
            "message": message,
            "logprobs": None,
            "finish_reason": _finish_reason(reply),
        }
        return {
            **self._head,
            "object": "chat.completion",
            "choices": [choice],
            "usage": _usage(reply),
            "dragonrt": report(reply),
        }

    def _annotations(self, reply: Reply) -> list[dict[str, Any]]:
        """A document of which nobody knows which words it gave is one of the whole text."""
        whole = {"start_index": 0, "end_index": len(reply.text)}
        cited = [
            {"type": "url_citation", "url_citation": {**whole, **citation(*each)}}
            for each in reply.sources
        ]
        return [*cited, *not_found(reply)]

    def _chunk(
        self, delta: dict[str, Any], finish_reason: str | None = None, **more: Any
    ) -> SseEvent:
        choice = {"index": 0, "delta": delta, "logprobs": None, "finish_reason": finish_reason}
        return SseEvent(
            {**self._head, "object": "chat.completion.chunk", "choices": [choice], **more}
        )


def _finish_reason(reply: Reply) -> str:
    return "length" if reply.answer.finish is Finish.LENGTH else "stop"


def _usage(reply: Reply) -> dict[str, int]:
    prompt, completion = usage(reply)
    return {
        "prompt_tokens": prompt,
        "completion_tokens": completion,
        "total_tokens": prompt + completion,
    }
