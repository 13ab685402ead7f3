"""The body of a request: every field of it is taken, or refused by its name."""

import asyncio
import json
from collections.abc import AsyncIterable, AsyncIterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Self

from dragonrt.errors import DragonError
from dragonrt.modes.question import Question, Turn
from dragonrt.sampling.samplers import Sampler
from dragonrt.service.conversation import HISTORY
from dragonrt.service.http.api_errors import ApiError, invalid, unsupported
from dragonrt.service.http.sources_text import without_sources
from dragonrt.setting import assemble, flat
from dragonrt.wire.limits import MAX_64

MAX_STOPS = 16
"""Stop strings of one request, each of at most MAX_STOP_LENGTH characters."""
MAX_STOP_LENGTH = 256
SILENCE_S = 30.0
"""A client that sends nothing of its body for so long is sent away."""

ANSWERED = ("assistant",)
ASKED = ("user",)
INSTRUCTED = ("system", "developer")


async def bounded(data: AsyncIterable[bytes], largest: int) -> AsyncIterator[bytes]:
    """The pieces of a body; ApiError where there are too many bytes, or none for too long."""
    size, pieces = 0, aiter(data)
    while True:
        try:
            async with asyncio.timeout(SILENCE_S):
                piece = await anext(pieces)
        except StopAsyncIteration:
            return
        except TimeoutError:
            raise ApiError(408, f"nothing came for {SILENCE_S:g} s", code="timeout") from None
        size += len(piece)
        if size > largest:
            raise ApiError(413, f"at most {largest} bytes are taken here", code="too_large")
        yield piece


class RequestBody:
    """A JSON object of which fields are taken one by one; `close` refuses what is left.

    A field that is null counts as left out.
    """

    def __init__(self, fields: Mapping[str, Any], where: str = "") -> None:
        self._where = where
        self._fields = {name: value for name, value in fields.items() if value is not None}

    @classmethod
    def parse(cls, data: bytes) -> Self:
        """Raises ApiError for what is not a JSON object."""
        try:
            value = json.loads(data)
        except (ValueError, RecursionError):
            raise ApiError(400, "the body must be JSON", code="invalid_json") from None
        if not isinstance(value, dict):
            raise ApiError(400, "the body must be a JSON object", code="invalid_json")
        return cls(value)

    def name(self, field: str) -> str:
        """What the field is called in errors."""
        return f"{self._where}{field}"

    def take(self, field: str) -> Any:
        """The value, whatever it is."""
        return self._fields.pop(field, None)

    def text(self, field: str) -> str | None:
        value = self.take(field)
        if value is not None and not isinstance(value, str):
            raise invalid(self.name(field), "text")
        return value

    def flag(self, field: str, default: bool) -> bool:
        value = self.take(field)
        if value is not None and not isinstance(value, bool):
            raise invalid(self.name(field), "true or false")
        return default if value is None else value

    def number(self, field: str, low: float, high: float) -> float | None:
        value = self.take(field)
        if value is None:
            return None
        if (
            isinstance(value, bool)
            or not isinstance(value, int | float)
            or not low <= value <= high
        ):
            raise invalid(self.name(field), f"a number from {low:g} to {high:g}")
        return float(value)

    def integer(self, field: str, low: int, high: int) -> int | None:
        value = self.take(field)
        if value is None:
            return None
        if isinstance(value, bool) or not isinstance(value, int) or not low <= value <= high:
            raise invalid(self.name(field), f"an integer from {low} to {high}")
        return value

    def inner(self, field: str) -> "RequestBody":
        """The fields of an object within this one; of none if it is left out."""
        value = self.take(field)
        if value is not None and not isinstance(value, dict):
            raise invalid(self.name(field), "an object")
        return RequestBody(value or {}, f"{self.name(field)}.")

    def entries(self, field: str) -> "list[RequestBody]":
        """The objects of a list."""
        value = self.take(field)
        if not isinstance(value, list):
            raise invalid(self.name(field), "a list")
        found = []
        for number, each in enumerate(value):
            where = f"{self.name(field)}[{number}]"
            if not isinstance(each, dict):
                raise invalid(where, "an object")
            found.append(RequestBody(each, f"{where}."))
        return found

    def has_text(self, field: str) -> bool:
        """Whether the field is a text, where it may be something else, too."""
        return isinstance(self._fields.get(field), str)

    def pass_over(self, fields: Sequence[str]) -> None:
        """Fields that change nothing of an answer."""
        for field in fields:
            self.take(field)

    def allow(self, neutral: Mapping[str, Sequence[Any]]) -> None:
        """Fields that are supported in so far as they ask for what happens anyhow."""
        for field, values in neutral.items():
            value = self.take(field)
            if value is not None and not any(_same(value, each) for each in values):
                raise unsupported(self.name(field))

    def close(self) -> None:
        """Refuse the first field that nobody took."""
        for field in self._fields:
            raise unsupported(self.name(field))


def _same(value: Any, other: Any) -> bool:
    return bool(value == other) and isinstance(value, bool) == isinstance(other, bool)


@dataclass(frozen=True, slots=True, kw_only=True)
class ApiRequest:
    """What a client asks for, by whichever API. Without a `seed` the answer draws its own.

    `question` has the words and the settings, `stops` the texts that end the answer. With `traced`
    the stream also says how the answer comes about.
    """

    question: Question
    seed: int | None
    stops: tuple[str, ...]
    stream: bool
    sources_in_text: bool
    include_usage: bool = True
    traced: bool = False


@dataclass(frozen=True, slots=True)
class Defaults:
    """What holds where a request says nothing, and the bound of its `max_tokens`."""

    question: Question
    seed: int | None
    stops: tuple[str, ...]
    sources_in_text: bool
    longest: int

    def request(
        self,
        body: RequestBody,
        said: "Dialogue",
        max_tokens: int | None,
        *,
        include_usage: bool = True,
        traced: bool = False,
    ) -> ApiRequest:
        """The rest of a request, which both APIs have alike; closes the body."""
        sampler = {
            "temperature": body.number("temperature", 0, 100),
            "top_p": body.number("top_p", 0, 1),
            "top_k": body.integer("top_k", 0, 2**31 - 1),
            "min_p": body.number("min_p", 0, 1),
        }
        seed = body.integer("seed", 0, MAX_64)
        stops = _stops(body)
        stream = body.flag("stream", False)
        sources_in_text = body.flag("sources_in_text", self.sources_in_text)
        body.close()
        given = {name: value for name, value in sampler.items() if value is not None}
        try:
            question = replace(
                self.question,
                prompt=said.prompt,
                history=said.history,
                instructions=said.instructions,
                sampler=assemble(Sampler, flat(self.question.sampler) | given),
                max_tokens=min(max_tokens or self.question.max_tokens, self.longest),
            )
        except DragonError as error:
            raise ApiError(400, str(error), code="invalid_value") from None
        return ApiRequest(
            question=question,
            seed=self.seed if seed is None else seed,
            stops=(*self.stops, *stops),
            stream=stream,
            sources_in_text=sources_in_text,
            include_usage=include_usage,
            traced=traced,
        )


def _stops(body: RequestBody) -> tuple[str, ...]:
    name, value = body.name("stop"), body.take("stop")
    stops = [] if value is None else value if isinstance(value, list) else [value]
    if len(stops) > MAX_STOPS or not all(
        isinstance(stop, str) and 1 <= len(stop) <= MAX_STOP_LENGTH for stop in stops
    ):
        raise invalid(
            name, f"a text or up to {MAX_STOPS}, each of 1 to {MAX_STOP_LENGTH} characters"
        )
    return tuple(stops)


@dataclass(frozen=True, slots=True)
class Dialogue:
    """A conversation as its client tells it: the question, the turns before, what holds for all."""

    prompt: str
    history: tuple[Turn, ...]
    instructions: str = ""


def said(messages: Sequence[RequestBody]) -> Dialogue:
    """Turns of the client's messages; several of one side in a row are joined.

    Raises ApiError for other kinds of messages, and unless a question comes last.
    """
    instructions: list[str] = []
    turns: list[tuple[list[str], list[str]]] = []
    for message in messages:
        message.pass_over(("id", "name", "status", "type", "annotations", "refusal"))
        name, role = message.name("role"), message.text("role")
        content = _content(message)
        message.close()
        if role in INSTRUCTED:
            instructions.append(content)
        elif role in ASKED:
            if not turns or turns[-1][1]:
                turns.append(([], []))
            turns[-1][0].append(content)
        elif role in ANSWERED:
            if not turns:
                turns.append(([], []))
            turns[-1][1].append(without_sources(content))
        else:
            raise invalid(name, "system, developer, user or assistant")
    if not turns or turns[-1][1] or not "".join(turns[-1][0]).strip():
        raise ApiError(400, "the last message must be the user's question", code="invalid_value")
    *earlier, (question, _) = turns
    history = tuple(("\n".join(asked), "\n".join(answered)) for asked, answered in earlier)
    return Dialogue("\n".join(question), history[-HISTORY:], "\n".join(instructions))


def _content(message: RequestBody) -> str:
    if message.has_text("content"):
        return message.text("content") or ""
    texts = []
    for part in message.entries("content"):
        part.pass_over(("annotations", "logprobs"))
        name, kind = part.name("type"), part.text("type")
        if kind not in ("text", "input_text", "output_text"):
            raise unsupported(name, "send text only")
        texts.append(part.text("text") or "")
        part.close()
    return "".join(texts)
