"""The bodies of requests, and the errors of requests as OpenAI's clients expect them.

Fields of a body are checked, rejected by name, or ignored. Null is not given.
"""

import asyncio
import math
import re
from collections.abc import AsyncIterator, Iterator
from typing import Any, TypeVar

import msgspec
from msgspec import Struct
from starlette.requests import Request
from starlette.responses import JSONResponse

from dragonrt.errors import DragonError

MAX_NAME = 64
"""Characters of an ignored field's name in the response's warning."""
BODY_S, BYTES_PER_S = 30.0, 64 * 1024
"""A body has BODY_S seconds, and one more for each BYTES_PER_S bytes received."""

Json = dict[str, Any]
T = TypeVar("T", bound=Struct)


class ApiError(DragonError):
    """A rejected request, or an answer that failed.

    `code` is OpenAI's error code, `param` the name of the faulty field, `retry_after_s` when to
    retry.
    """

    def __init__(
        self,
        status: int,
        message: str,
        *,
        code: str | None = None,
        param: str | None = None,
        retry_after_s: float | None = None,
    ) -> None:
        super().__init__(message)
        self.status, self.code, self.param = status, code, param
        self.headers: dict[str, str] = {}
        if status == 401:
            self.headers["WWW-Authenticate"] = "Bearer"
        if status in (408, 413):
            self.headers["Connection"] = "close"  # the body that follows is not read
        if retry_after_s is not None:
            self.headers["Retry-After"] = str(max(1, math.ceil(retry_after_s)))

    def to_json(self) -> dict[str, dict[str, str | None]]:
        usual = "invalid_request_error" if self.status < 500 else "server_error"
        kind = {401: "authentication_error", 429: "rate_limit_error"}.get(self.status, usual)
        about = {"message": str(self), "type": kind, "param": self.param, "code": self.code}
        return {"error": about}

    @property
    def response(self) -> JSONResponse:
        return JSONResponse(self.to_json(), self.status, self.headers)


def unsupported(name: str, instead: str = "leave it out", value: str | None = None) -> ApiError:
    """Return the error of a field, or a `value` of it, that is not supported."""
    what = name if value is None else f"{name} {value}"
    return ApiError(
        400, f"{what} is not supported here: {instead}", code="unsupported_parameter", param=name
    )


def invalid(name: str, must: str) -> ApiError:
    """Return the error of an invalid value of a field."""
    return ApiError(400, f"{name} must be {must}", code="invalid_value", param=name)


IDLE = {
    *("model", "user", "metadata", "safety_identifier", "service_tier", "prompt_cache_key"),
    *("prompt_cache_retention", "parallel_tool_calls", "truncation", "id", "name", "status"),
    *("type", "annotations", "refusal"),
}
"""Fields without effect, of which no client is warned."""
NEUTRAL: dict[str, tuple[Any, ...]] = {
    **dict.fromkeys(("tools", "functions", "tool_calls"), ([],)),
    **dict.fromkeys(("tool_choice", "function_call"), ("none", "auto")),
    **dict.fromkeys(("presence_penalty", "frequency_penalty"), (0, 0.0)),
    **dict.fromkeys(("audio", "previous_response_id", "conversation", "prompt"), ()),
    **dict.fromkeys(("response_format", "format"), ({"type": "text"},)),
    "background": (False,),  # an answer ends with its client's connection, and is not stored
    "logit_bias": ({},),
    "modalities": ([], ["text"]),
    "n": (1,),
}
"""Fields of OpenAI's APIs that are not supported, and the values that ask for nothing."""
INSTEAD = {
    **dict.fromkeys(("response_format", "format"), "ask for the form in words, or leave it out"),
    "type": "send text only",
    "include": "nothing but dragonrt.trace and message.output_text.logprobs can be included",
}
"""What to do about an unsupported field, if not to leave it out."""


def json_object(data: bytes) -> Json:
    """Return the body of a request. Raises ApiError if it is not a JSON object."""
    try:
        value = msgspec.json.decode(data)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        raise ApiError(400, "the body must be JSON", code="invalid_json") from None
    if not isinstance(value, dict):
        raise ApiError(400, "the body must be a JSON object", code="invalid_json")
    return value


def read(body: Json, kind: type[T]) -> tuple[T, list[str]]:
    """Return a body as that kind, and the names of the fields that are ignored.

    Raises ApiError for a wrong or unsupported value.
    """
    try:
        found = msgspec.convert(body, kind)
    except msgspec.ValidationError as error:
        raise _rejected(str(error)) from None
    return found, list(_ignored(body, found))


def _rejected(problem: str) -> ApiError:
    """Return the error of a body, by msgspec's own: "Expected `int`, got `str` - at `$.seed`"."""
    text, _, place = problem.partition(" - at `$")
    missing = re.fullmatch(r"Object missing required field `(\w+)`", text)
    name = f"{place.rstrip('`')}.{missing[1]}" if missing else place.rstrip("`")
    name = name.removeprefix(".")
    last = re.sub(r"\[\d+\]$", "", name).rpartition(".")[2]
    if last in INSTEAD:
        return unsupported(name, INSTEAD[last])
    what = "is missing" if missing else f"is wrong: {text[:1].lower()}{text[1:]}"
    return ApiError(400, f"{name} {what}", code="invalid_value", param=name)


def _ignored(body: Any, found: Any, name: str = "") -> Iterator[str]:
    if isinstance(found, list):
        for number, (value, element) in enumerate(zip(body, found, strict=True)):
            yield from _ignored(value, element, f"{name}[{number}]")
    elif isinstance(found, Struct | dict):
        known = found.__struct_fields__ if isinstance(found, Struct) else ()
        for each, value in body.items():
            inner = f"{name}.{each}" if name else each
            if each in known:
                yield from _ignored(value, getattr(found, each), inner)
            elif each in NEUTRAL and value is not None:
                if not any(type(value) is type(one) and value == one for one in NEUTRAL[each]):
                    raise unsupported(inner, INSTEAD.get(each, "leave it out"))
            elif each not in IDLE and value is not None:
                yield inner[:MAX_NAME]


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
