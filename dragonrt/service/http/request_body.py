"""The body of a request: fields are checked, rejected by name, or ignored."""

import asyncio
import json
from collections.abc import AsyncIterator, Callable, Mapping
from typing import Any, NamedTuple

from starlette.requests import Request

from dragonrt.modes.question import MAX_RANKED
from dragonrt.service.http.api_errors import ApiError, invalid, unsupported
from dragonrt.wire.limits import MAX_64

MAX_NAME = 64
"""Characters of an ignored field's name in the response's warning."""
MAX_STOPS = 16
"""Stop strings of one request, each of at most MAX_STOP_LENGTH characters."""
MAX_STOP_LENGTH = 256
MOST_TEXTS = 2048
"""Texts of one request for embeddings, as in OpenAI's API."""

BODY_S, BYTES_PER_S = 30.0, 64 * 1024
"""A body has BODY_S seconds, and one more for each BYTES_PER_S bytes received."""

Json = dict[str, Any]


class Kind(NamedTuple):
    """The valid values of a field: a test, and the words `must` for the error.

    Without `must`, other values are unsupported; `instead` is what to do.
    """

    fits: Callable[[Any], bool]
    must: str = ""
    instead: str = "leave it out"
    needed: bool = False


Spec = Mapping[str, Any]
"""The fields of an object. Each has a Kind, a Spec, a list [Spec], or (Kind of texts, [Spec])."""


def many(value: Any) -> list[Any]:
    """Return a list unchanged, and anything else as a list of one."""
    return value if isinstance(value, list) else [value]


def number(low: float, high: float, whole: bool = False) -> Kind:
    """Return the kind of numbers in a range; of integers only if `whole`."""
    types = (int,) if whole else (int, float)
    must = f"an integer from {low} to {high}" if whole else f"a number from {low:g} to {high:g}"
    return Kind(lambda value: type(value) in types and low <= value <= high, must)


def only(*values: Any) -> Kind:
    """Return the kind of an unsupported feature: accepts the values that do not request it."""
    # 0 is not False, but 0.0 is 0.
    return Kind(
        lambda value: any(
            each == value and isinstance(each, bool) == isinstance(value, bool) for each in values
        )
    )


ANY = Kind(lambda value: True)
TEXT = Kind(lambda value: isinstance(value, str), "text")
FLAG = Kind(lambda value: isinstance(value, bool), "true or false")
TOP = number(0, MAX_RANKED, whole=True)
LENGTH = Kind(
    lambda value: type(value) is int and (value >= 1 or value == -1),
    "an integer from 1 on, or -1 for all there is room",
)
STOPS = Kind(
    lambda value: (
        len(many(value)) <= MAX_STOPS
        and all(isinstance(stop, str) and 1 <= len(stop) <= MAX_STOP_LENGTH for stop in many(value))
    ),
    f"a text or up to {MAX_STOPS}, each of 1 to {MAX_STOP_LENGTH} characters",
)
FORMAT = Kind(
    lambda value: isinstance(value, dict) and value.get("type", "text") == "text",
    instead="ask for the form in words, or leave it out",
)
"""The remedy for grammars, which are not supported."""
TEXTS = ("text", "input_text", "output_text")
ROLES = ("system", "developer", "user", "assistant")

WITHOUT_EFFECT: Spec = {
    **dict.fromkeys(("model", "user", "metadata", "safety_identifier", "service_tier"), ANY),
    **dict.fromkeys(("prompt_cache_key", "prompt_cache_retention", "parallel_tool_calls"), ANY),
}
SAMPLER = {
    "temperature": number(0, 100),
    "top_p": number(0, 1),
    "top_k": number(0, 2**31 - 1, whole=True),
    "min_p": number(0, 1),
}
COMMON: Spec = {
    **WITHOUT_EFFECT,
    **dict.fromkeys(("n",), only(1)),
    **dict.fromkeys(("tools", "functions"), only([])),
    **dict.fromkeys(("tool_choice", "function_call"), only("none", "auto")),
    **dict.fromkeys(("presence_penalty", "frequency_penalty"), only(0)),
    "logit_bias": only({}),
    "modalities": only(["text"]),
    "audio": only(),
    **SAMPLER,
    "seed": number(0, MAX_64, whole=True),
    "stop": STOPS,
    "sources_in_text": FLAG,
    "document": TEXT,
    "disclose": TEXT,
    "stream": FLAG,
    "stream_options": {"include_usage": FLAG, "include_obfuscation": only(False)},
}
"""The fields of every API."""
PART: Spec = {
    **dict.fromkeys(("annotations", "logprobs"), ANY),
    "type": Kind(lambda value: value in TEXTS, instead="send text only", needed=True),
    "text": TEXT,
}
MESSAGE: Spec = {
    **dict.fromkeys(("id", "name", "status", "type", "annotations", "refusal"), ANY),
    "tool_calls": only([]),
    **dict.fromkeys(("function_call", "audio"), only()),
    "role": Kind(lambda value: value in ROLES, f"one of {', '.join(ROLES)}", needed=True),
    "content": (TEXT, [PART]),
}
CHAT: Spec = {
    "messages": [MESSAGE],
    "response_format": FORMAT,
    "top_logprobs": TOP,
    "logprobs": FLAG,
    "max_completion_tokens": LENGTH,
    "max_tokens": LENGTH,
    **COMMON,
}
TRACE = "dragonrt.trace"
"""The value of `include` for the events of decoding, and their type in the stream."""
LOGPROBS = "message.output_text.logprobs"
"""The value of `include` for each token's probability."""
RESPONSE: Spec = {
    "input": (TEXT, [MESSAGE]),
    "instructions": TEXT,
    "text": {"format": FORMAT},
    "include": Kind(
        lambda value: all(each in (TRACE, LOGPROBS) for each in many(value)),
        instead=f"nothing but {TRACE} and {LOGPROBS} can be included",
    ),
    "top_logprobs": TOP,
    "max_output_tokens": LENGTH,
    "truncation": ANY,  # earlier turns are always dropped to make room
    "background": only(False),  # an answer ends with its client's connection, and is not stored
    **dict.fromkeys(("previous_response_id", "conversation", "prompt"), only()),
    **COMMON,
}
EMBEDDINGS: Spec = {
    "input": Kind(
        lambda value: (
            1 <= len(many(value)) <= MOST_TEXTS
            and all(isinstance(text, str) and text for text in many(value))
        ),
        f"a text or up to {MOST_TEXTS}, none of them empty",
        needed=True,
    ),
    "encoding_format": Kind(lambda value: value in ("float", "base64"), "float or base64"),
    "dimensions": number(1, 2**31 - 1, whole=True),
    **WITHOUT_EFFECT,
}


def json_object(data: bytes) -> Json:
    """Return the body of a request. Raises ApiError if it is not a JSON object."""
    try:
        value = json.loads(data)
    except (ValueError, RecursionError):
        raise ApiError(400, "the body must be JSON", code="invalid_json") from None
    if not isinstance(value, dict):
        raise ApiError(400, "the body must be a JSON object", code="invalid_json")
    return value


def read(body: Json, spec: Spec) -> tuple[Json, list[str]]:
    """Return the given fields of a spec, and the names of the ignored ones.

    A field that is null is not given. Raises ApiError for a wrong or unsupported value.
    """
    ignored: list[str] = []
    return _object(body, spec, ignored, ""), ignored


def _object(value: Json, spec: Spec, ignored: list[str], where: str) -> Json:
    given = {name: each for name, each in value.items() if each is not None}
    found = {
        name: _field(given.pop(name, None), kind, ignored, f"{where}{name}")
        for name, kind in spec.items()
        if name in given or (isinstance(kind, Kind) and kind.needed)
    }
    ignored += (f"{where}{name}"[:MAX_NAME] for name in given)
    return found


def _field(value: Any, kind: Any, ignored: list[str], name: str) -> Any:
    if isinstance(kind, Kind):
        if not kind.fits(value):
            raise invalid(name, kind.must) if kind.must else unsupported(name, kind.instead)
        return value
    if isinstance(kind, tuple):
        return _field(value, kind[not isinstance(value, str)], ignored, name)
    if not isinstance(value, type(kind)):
        raise invalid(name, "a list" if isinstance(kind, list) else "an object")
    if isinstance(value, dict):
        return _object(value, kind, ignored, f"{name}.")
    return [_field(each, kind[0], ignored, f"{name}[{n}]") for n, each in enumerate(value)]


async def bounded(request: Request, largest: int) -> AsyncIterator[bytes]:
    """Yield the pieces of a body. Raises ApiError if it is, or will be, too large or too slow."""
    size, announced = 0, int(request.headers.get("content-length", 0))
    error = ApiError(413, f"at most {largest} bytes are taken here", code="too_large")
    if announced > largest:
        raise error
    pieces, begun_s = aiter(request.stream()), asyncio.get_running_loop().time()
    while True:
        try:
            async with asyncio.timeout_at(begun_s + BODY_S + size / BYTES_PER_S):
                piece = await anext(pieces)
        except StopAsyncIteration:
            return
        except TimeoutError:
            raise ApiError(408, "the body did not arrive in time", code="timeout") from None
        size += len(piece)
        if size > largest:
            raise error
        yield piece
