"""The body of a request: its fields are taken, refused by name, or ignored with a warning."""

import asyncio
import json
from collections.abc import AsyncIterable, AsyncIterator, Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Self

from dragonrt.backends.model import LanguageModel
from dragonrt.errors import DragonError
from dragonrt.modes.question import Question, Turn
from dragonrt.sampling.samplers import Sampler
from dragonrt.service.conversation import HISTORY
from dragonrt.service.http.api_errors import ApiError, invalid, unsupported
from dragonrt.service.http.sources_text import without_sources
from dragonrt.settings import assemble, flat
from dragonrt.wire.limits import MAX_64, MAX_TOKENS

MAX_WARNED = 16
"""Ignored fields that a response names, each with at most MAX_NAME characters."""
MAX_NAME = 64
MAX_STOPS = 16
"""Stop strings of one request, each of at most MAX_STOP_LENGTH characters."""
MAX_STOP_LENGTH = 256

ANSWERED = ("assistant",)
ASKED = ("user",)
INSTRUCTED = ("system", "developer")


async def bounded(data: AsyncIterable[bytes], largest: int) -> AsyncIterator[bytes]:
    """The pieces of a body; ApiError where there are too many bytes."""
    size = 0
    async for piece in data:
        size += len(piece)
        if size > largest:
            raise ApiError(413, f"at most {largest} bytes are taken here", code="too_large")
        yield piece


WITHOUT_EFFECT = (
    *("user", "metadata", "safety_identifier", "prompt_cache_key", "prompt_cache_retention"),
    *("service_tier", "parallel_tool_calls"),
)
"""What a client may say of itself and of its bill: nothing of an answer depends on it."""

UNLIKE_HERE: dict[str, Sequence[Any]] = {
    "n": (1,),
    "best_of": (1,),
    "tools": ([],),
    "tool_choice": ("none", "auto"),
    "functions": ([],),
    "function_call": ("none", "auto"),
    "logit_bias": ({},),
    "presence_penalty": (0,),
    "frequency_penalty": (0,),
    "modalities": (["text"],),
    "audio": (),
}
"""What no API does here, with the values by which it is not asked for."""


class RequestBody:
    """A JSON object of which fields are taken one by one; `close` notes what is left as ignored.

    A field that is null counts as left out. `name` says what errors call a field, if not by its
    place.
    """

    def __init__(
        self,
        fields: Mapping[str, Any],
        where: str = "",
        ignored: list[str] | None = None,
        names: Mapping[str, str] | None = None,
    ) -> None:
        self._where = where
        self._fields = {name: value for name, value in fields.items() if value is not None}
        self.ignored = [] if ignored is None else ignored
        self._names = names or {}

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
        return self._names.get(field, f"{self._where}{field}")

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

    def length(self, *fields: str) -> "Asked | None":
        """The first of these fields: a number of tokens, -1 for as many as there is room for."""
        given = {field: self.take(field) for field in fields}
        for field, value in given.items():
            if value is None:
                continue
            if type(value) is not int or (value < 1 and value != -1):
                raise invalid(self.name(field), "an integer from 1 on, or -1 for all there is room")
            return Asked(self.name(field), min(value, MAX_TOKENS))
        return None

    def inner(self, field: str) -> "RequestBody":
        """The fields of an object within this one; of none if it is left out."""
        value = self.take(field)
        if value is not None and not isinstance(value, dict):
            raise invalid(self.name(field), "an object")
        return RequestBody(value or {}, f"{self.name(field)}.", self.ignored)

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
            found.append(RequestBody(each, f"{where}.", self.ignored))
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

    def plain_text(self, field: str) -> None:
        """A format of the answer: text, since nothing here holds an answer to a grammar."""
        wanted = self.inner(field)
        kind = wanted.text("type")
        if kind not in (None, "text"):
            raise unsupported(self.name(field), "ask for the form in words, or leave it out", kind)
        wanted.close()

    def close(self) -> None:
        """Note the fields that nobody took as ignored."""
        self.ignored += (self.name(field)[:MAX_NAME] for field in self._fields)


def _same(value: Any, other: Any) -> bool:
    return bool(value == other) and isinstance(value, bool) == isinstance(other, bool)


@dataclass(frozen=True, slots=True, kw_only=True)
class ApiRequest:
    """What a client asks for, by whichever API. Without a `seed` the answer draws its own.

    `question` has the words and the settings, `stops` the texts that end the answer. The question
    stands in the field `asked_in`. With `traced` the stream also says how the answer comes about.
    """

    question: Question
    seed: int | None
    stops: tuple[str, ...]
    stream: bool
    sources_in_text: bool
    asked_in: str = "messages"
    length: "Asked | None" = None
    ignored: tuple[str, ...] = ()
    include_usage: bool = True
    traced: bool = False

    @property
    def warnings(self) -> dict[str, str]:
        """The header `Warning` of the response, if anything of the request does not count."""
        most, length = self.question.max_tokens, self.length
        if length is not None and most < length.number:
            return warning(self.ignored, f"{length.field}: {most} is the most")
        return warning(self.ignored)


def warning(ignored: Sequence[str], other: str = "") -> dict[str, str]:
    """Return the header `Warning` that names ignored fields, or none (RFC 7234, 5.5)."""
    names = ", ".join(ignored[:MAX_WARNED])
    found = "; ".join(part for part in (names and f"ignored: {names}", other) if part)
    # JSON's quoted text is ASCII without control characters, as a header needs it.
    return {"Warning": f"299 - {json.dumps(found)}"} if found else {}


@dataclass(frozen=True, slots=True)
class Asked:
    """A number, and the field that asks for it."""

    field: str
    number: int


@dataclass(frozen=True, slots=True)
class Defaults:
    """What holds where a request says nothing, and the `longest` answer in tokens.

    `unranked` says why probabilities cannot be told with a sampler, None if they can.
    """

    question: Question
    seed: int | None
    stops: tuple[str, ...]
    sources_in_text: bool
    longest: int
    unranked: Callable[[Sampler], str | None] = lambda sampler: None

    def request(
        self,
        body: RequestBody,
        said: "Dialogue",
        length: "Asked | None",
        *,
        asked_in: str,
        ranked: "Asked | None" = None,
        include_usage: bool = True,
        traced: bool = False,
    ) -> ApiRequest:
        """The rest of a request, which all APIs have alike; closes the body."""
        body.pass_over(WITHOUT_EFFECT)
        body.allow(UNLIKE_HERE)
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
        most = self.question.max_tokens if length is None else length.number
        try:
            question = replace(
                self.question,
                prompt=said.prompt,
                history=said.history,
                instructions=said.instructions,
                sampler=assemble(Sampler, flat(self.question.sampler) | given),
                max_tokens=self.longest if most < 0 else min(most, self.longest),
                top_logprobs=None if ranked is None else ranked.number,
            )
        except DragonError as error:
            raise ApiError(400, str(error), code="invalid_value") from None
        if ranked is not None and (because := self.unranked(question.sampler)):
            raise unsupported(ranked.field, because)
        return ApiRequest(
            question=question,
            seed=self.seed if seed is None else seed,
            stops=(*self.stops, *stops),
            stream=stream,
            sources_in_text=sources_in_text,
            asked_in=asked_in,
            length=length,
            ignored=tuple(dict.fromkeys(body.ignored)),
            include_usage=include_usage,
            traced=traced,
        )

    async def fitted(self, request: ApiRequest, model: LanguageModel) -> ApiRequest:
        """The request with no longer an answer than the model has room for beside its documents.

        They have at most half of what it reads. A shorter answer than the default is never made.
        """
        question = request.question
        if question.max_tokens <= self.question.max_tokens:
            return request
        text = model.prompt.question_text([], question.prompt, question.instructions)
        room = model.context_length // 2 - len(await asyncio.to_thread(model.encode, text))
        most = min(question.max_tokens, max(room, self.question.max_tokens))
        return replace(request, question=replace(question, max_tokens=most))


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


def said(messages: Sequence[RequestBody], asked_in: str) -> Dialogue:
    """Turns of the client's messages; several of one side in a row are joined.

    They stand in the field `asked_in`. Raises ApiError for other kinds of messages, and unless a
    question comes last.
    """
    instructions: list[str] = []
    turns: list[tuple[list[str], list[str]]] = []
    for message in messages:
        message.pass_over(("id", "name", "status", "type", "annotations", "refusal"))
        message.allow({"tool_calls": ([],), "function_call": (), "audio": ()})
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
        raise ApiError(
            400, f"{asked_in} must end with a question", code="invalid_value", param=asked_in
        )
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
