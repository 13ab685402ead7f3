"""The bodies of requests, and the errors of requests as OpenAI's clients expect them.

A field that changes nothing is accepted. One that cannot be honoured is named in the response, and
refused by name only if the answer would be another thing. Null is not given.
"""

import asyncio
import json
import math
import re
from collections.abc import AsyncIterator, Iterator, Sequence
from typing import Any, TypeVar

import msgspec
from msgspec import Struct
from starlette.requests import Request
from starlette.responses import JSONResponse

from dragonrt.errors import DragonError

MAX_WARNED = 16
"""Ignored fields that a response names."""
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


def wrong(text: str, name: str | None = None) -> ApiError:
    """Return the error of an invalid value of a field, or of several."""
    return ApiError(400, text, code="invalid_value", param=name)


def invalid(name: str, must: str) -> ApiError:
    """Return the error of a value that must be something else."""
    return wrong(f"{name} must be {must}", name)


IDLE = {
    *("model", "user", "metadata", "safety_identifier", "service_tier", "prompt_cache_key"),
    *("prompt_cache_retention", "parallel_tool_calls", "truncation", "id", "name", "status"),
    *("annotations", "refusal", "include_obfuscation", "keep_alive"),
}
"""Fields without effect, of which no client is warned."""
UNKEPT: dict[str, tuple[str, tuple[Any, ...]]] = {
    **dict.fromkeys(("tools", "functions", "tool_calls"), ("no tool is called", ([],))),
    **dict.fromkeys(("presence_penalty", "frequency_penalty"), ("no effect here", (0,))),
    **dict.fromkeys(
        ("response_format", "format"),
        ("the form is not kept, ask for it in words", ({"type": "text"}, "")),
    ),
    "logit_bias": ("no effect here", ({},)),
}
"""Fields that cannot be honoured: what a client is told, and the values that ask for nothing."""
ASKED: tuple[str, tuple[Any, ...]] = ("", ())
"""Of other fields every value asks for something."""
INSTEAD = {
    **dict.fromkeys(
        ("tool_choice", "function_call"), "the answer is text, not a call: leave it out"
    ),
    **dict.fromkeys(("modalities", "images"), "send text only"),
    **dict.fromkeys(("previous_response_id", "conversation"), "nothing is stored, send all turns"),
    "input": "send texts, none of them empty; the numbers of a tokenizer are not read",
    "n": "ask again for another answer",
    "prompt": "nothing is stored, send the words",
    "suffix": "nothing is filled in",
}
"""Fields of which only some values can be honoured: what to do instead of sending another one."""


def json_object(data: bytes) -> Json:
    """Return the body of a request; 256.0 is 256. Raises ApiError if it is not a JSON object."""
    try:
        value = DECODER.decode(data)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        raise ApiError(400, "the body must be JSON", code="invalid_json") from None
    if not isinstance(value, dict):
        raise ApiError(400, "the body must be a JSON object", code="invalid_json")
    return value


def _number(text: str) -> float:
    number = float(text)
    return int(number) if number.is_integer() else number


DECODER = msgspec.json.Decoder(float_hook=_number)


def read(body: Json, kind: type[T]) -> tuple[T, list[str]]:
    """Return a body as that kind, and the names of the fields without effect.

    Raises ApiError for a wrong or unsupported value.
    """
    try:
        found = msgspec.convert(body, kind)
    except msgspec.ValidationError as error:
        raise _rejected(str(error)) from None
    return found, list(_ignored(body, found))


def said(ignored: Sequence[str]) -> list[str]:
    """Return the warnings about fields without effect."""
    last = {name: name.rpartition(".")[2] for name in ignored}
    plain = [name for name in last if last[name] not in UNKEPT][:MAX_WARNED]
    unkept = [f"{name}: {UNKEPT[last[name]][0]}" for name in last if last[name] in UNKEPT]
    return [*([f"ignored: {', '.join(plain)}"] if plain else []), *unkept[:MAX_WARNED]]


def warning(lines: Sequence[str]) -> dict[str, str]:
    """Return the header `Warning` with these lines, or none (RFC 7234, 5.5)."""
    # JSON's quoted text is ASCII without control characters, as a header needs it.
    return {"Warning": f"299 - {json.dumps('; '.join(lines))}"} if lines else {}


def _rejected(problem: str) -> ApiError:
    """Return the error of a body, by msgspec's own: "Expected `int`, got `str` - at `$.seed`"."""
    text, _, place = problem.partition(" - at `$")
    missing = re.fullmatch(r"Object missing required field `(\w+)`", text)
    name = f"{place.rstrip('`')}.{missing[1]}" if missing else place.rstrip("`")
    name = name.removeprefix(".")
    top = re.sub(r"\[\d+\]$", "", name)
    if top in INSTEAD:
        return unsupported(top, INSTEAD[top])
    what = "is missing" if missing else f"is wrong: {text[:1].lower()}{text[1:]}"
    return wrong(f"{name} {what}", name)


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
            elif value is not None and each not in IDLE and value not in UNKEPT.get(each, ASKED)[1]:
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
