"""The bodies of requests: fields are checked, rejected by name, or ignored. Null is not given."""

import asyncio
import re
from collections.abc import AsyncIterator, Iterator
from typing import Annotated, Any, Final, Literal, TypeVar

import msgspec
from msgspec import Meta, Struct
from starlette.requests import Request

from dragonrt.modes.question import MAX_RANKED
from dragonrt.service.http.api_errors import ApiError, unsupported

MAX_NAME = 64
"""Characters of an ignored field's name in the response's warning."""
MOST_TEXTS = 2048
"""Texts of one request for embeddings, as in OpenAI's API."""
BODY_S, BYTES_PER_S = 30.0, 64 * 1024
"""A body has BODY_S seconds, and one more for each BYTES_PER_S bytes received."""
TRACE: Final = "dragonrt.trace"
"""The value of `include` for the events of decoding, and their type in the stream."""
LOGPROBS: Final = "message.output_text.logprobs"
"""The value of `include` for each token's probability."""

Json = dict[str, Any]
T = TypeVar("T", bound=Struct)

Stop = Annotated[str, Meta(min_length=1, max_length=256)]
Text = Annotated[str, Meta(min_length=1)]
Share = Annotated[float, Meta(ge=0, le=1)] | None
Top = Annotated[int, Meta(ge=0, le=MAX_RANKED)] | None
Whole = Annotated[int, Meta(ge=0)] | None
Length = Annotated[int, Meta(ge=-1)] | None
"""The most tokens of an answer; -1: all for which there is room."""
Zero = Annotated[float, Meta(ge=0, le=0)] | None
Nothing = Annotated[list[Any], Meta(max_length=0)] | None


class Model(Struct, kw_only=True):
    """The name of a model, and fields without effect."""

    model: Any = None  # the service's handlers check it
    user: Any = None
    metadata: Any = None
    safety_identifier: Any = None
    service_tier: Any = None
    prompt_cache_key: Any = None
    prompt_cache_retention: Any = None
    parallel_tool_calls: Any = None


class Part(Struct, kw_only=True):
    """A part of a message."""

    type: Literal["text", "input_text", "output_text"]
    text: str | None = None
    annotations: Any = None
    logprobs: Any = None


class ChatMessage(Struct, kw_only=True):
    """A message of a conversation."""

    role: Literal["system", "developer", "user", "assistant"]
    content: str | list[Part] | None = None
    id: Any = None
    name: Any = None
    status: Any = None
    type: Any = None
    annotations: Any = None
    refusal: Any = None
    tool_calls: Nothing = None
    function_call: None = None
    audio: None = None

    @property
    def text(self) -> str:
        """Return the text of all parts."""
        if isinstance(self.content, list):
            return "".join(part.text or "" for part in self.content)
        return self.content or ""


class Format(Struct, kw_only=True):
    """The format of the answer; only text is supported."""

    type: str | None = None

    def __post_init__(self) -> None:
        if self.type not in (None, "text"):
            raise ValueError(self.type)


class TextOptions(Struct, kw_only=True):
    """The options of a response's text."""

    format: Format | None = None


class StreamOptions(Struct, kw_only=True):
    """The options of a stream."""

    include_usage: bool | None = None


class Asked(Model, kw_only=True):
    """The fields of a question in every API."""

    temperature: Annotated[float, Meta(ge=0, le=100)] | None = None
    top_p: Share = None
    top_k: Annotated[int, Meta(ge=0, le=2**31 - 1)] | None = None
    min_p: Share = None
    seed: Whole = None
    stop: Stop | Annotated[list[Stop], Meta(max_length=16)] | None = None
    sources_in_text: bool | None = None
    document: str | None = None
    disclose: str | None = None
    stream: bool | None = None
    stream_options: StreamOptions | None = None
    top_logprobs: Top = None
    n: Literal[1] | None = None
    tools: Nothing = None
    functions: Nothing = None
    tool_choice: Literal["none", "auto"] | None = None
    function_call: Literal["none", "auto"] | None = None
    presence_penalty: Zero = None
    frequency_penalty: Zero = None
    logit_bias: Annotated[dict[str, Any], Meta(max_length=0)] | None = None
    modalities: list[Literal["text"]] | None = None
    audio: None = None


class ChatBody(Asked, kw_only=True):
    """The body of a chat completion."""

    messages: list[ChatMessage] | None = None
    response_format: Format | None = None
    logprobs: bool | None = None
    max_completion_tokens: Length = None
    max_tokens: Length = None


class ResponseBody(Asked, kw_only=True):
    """The body of a response."""

    input: str | list[ChatMessage] | None = None
    instructions: str | None = None
    text: TextOptions | None = None
    include: list[Literal["dragonrt.trace", "message.output_text.logprobs"]] | None = None
    max_output_tokens: Length = None
    truncation: Any = None  # earlier turns are always dropped to make room
    background: bool | None = None
    previous_response_id: None = None
    conversation: None = None
    prompt: None = None

    def __post_init__(self) -> None:
        if self.background:  # an answer ends with its client's connection, and is not stored
            raise unsupported("background")


class EmbeddingsBody(Model, kw_only=True):
    """The body of a request for embeddings."""

    input: Text | Annotated[list[Text], Meta(min_length=1, max_length=MOST_TEXTS)]
    encoding_format: Literal["float", "base64"] | None = None
    dimensions: Annotated[int, Meta(ge=1, le=2**31 - 1)] | None = None


UNSUPPORTED = {
    **dict.fromkeys(("n", "tools", "functions", "tool_choice", "function_call"), "leave it out"),
    **dict.fromkeys(("presence_penalty", "frequency_penalty", "logit_bias"), "leave it out"),
    **dict.fromkeys(("modalities", "audio", "tool_calls", "previous_response_id"), "leave it out"),
    **dict.fromkeys(("conversation", "prompt"), "leave it out"),
    **dict.fromkeys(("response_format", "format"), "ask for the form in words, or leave it out"),
    "type": "send text only",
    "include": f"nothing but {TRACE} and {LOGPROBS} can be included",
}
"""What to do about fields that have other values in OpenAI's API."""


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
    if last in UNSUPPORTED:
        return unsupported(name, UNSUPPORTED[last])
    what = "is missing" if missing else f"is wrong: {text[:1].lower()}{text[1:]}"
    return ApiError(400, f"{name} {what}", code="invalid_value", param=name)


def _ignored(body: Any, found: Any, name: str = "") -> Iterator[str]:
    if isinstance(found, list):
        for number, (value, element) in enumerate(zip(body, found, strict=True)):
            yield from _ignored(value, element, f"{name}[{number}]")
    elif isinstance(found, Struct):
        for each, value in body.items():
            inner = f"{name}.{each}" if name else each
            if each in found.__struct_fields__:
                yield from _ignored(value, getattr(found, each), inner)
            elif value is not None:
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
