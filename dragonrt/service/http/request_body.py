"""The body of a request: its fields are taken, refused by name, or ignored with a warning."""

import asyncio
import json
from collections.abc import AsyncIterable, AsyncIterator, Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple, Self

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

WITHOUT_EFFECT = (
    *("user", "metadata", "safety_identifier", "prompt_cache_key", "prompt_cache_retention"),
    *("service_tier", "parallel_tool_calls"),
)
"""What a client may say of itself and of its bill: no answer depends on it."""

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


class Kind(NamedTuple):
    """What a field may hold: the words for errors, and the test."""

    must: str
    fits: Callable[[Any], bool]


def number(low: float, high: float, whole: bool = False) -> Kind:
    """Return the kind of numbers in a range; of integers only if `whole`."""
    types = (int,) if whole else (int, float)
    must = f"an integer from {low} to {high}" if whole else f"a number from {low:g} to {high:g}"
    return Kind(must, lambda value: type(value) in types and low <= value <= high)


ANYTHING = Kind("anything", lambda value: True)
TEXT = Kind("text", lambda value: isinstance(value, str))
FLAG = Kind("true or false", lambda value: isinstance(value, bool))
OBJECT = Kind("an object", lambda value: isinstance(value, dict))
LIST = Kind("a list", lambda value: isinstance(value, list))
LENGTH = Kind(
    "an integer from 1 on, or -1 for all there is room",
    lambda value: type(value) is int and (value >= 1 or value == -1),
)
STOPS = Kind(
    f"a text or up to {MAX_STOPS}, each of 1 to {MAX_STOP_LENGTH} characters",
    lambda value: (
        len(stops := value if isinstance(value, list) else [value]) <= MAX_STOPS
        and all(isinstance(stop, str) and 1 <= len(stop) <= MAX_STOP_LENGTH for stop in stops)
    ),
)
SAMPLER = {
    "temperature": number(0, 100),
    "top_p": number(0, 1),
    "top_k": number(0, 2**31 - 1, whole=True),
    "min_p": number(0, 1),
}


async def bounded(data: AsyncIterable[bytes], largest: int) -> AsyncIterator[bytes]:
    """Yield the pieces of a body; ApiError where there are too many bytes."""
    size = 0
    async for piece in data:
        size += len(piece)
        if size > largest:
            raise ApiError(413, f"at most {largest} bytes are taken here", code="too_large")
        yield piece


class RequestBody:
    """A JSON object whose fields are taken one by one; `close` notes what is left as ignored.

    A field that is null counts as left out.
    """

    def __init__(
        self, fields: Mapping[str, Any], where: str = "", ignored: list[str] | None = None
    ) -> None:
        self._where = where
        self._fields = {name: value for name, value in fields.items() if value is not None}
        self.ignored = [] if ignored is None else ignored

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
        """Return what errors call the field."""
        return f"{self._where}{field}"

    def take(self, field: str, kind: Kind = ANYTHING, default: Any = None) -> Any:
        """Return the value, or the default if it is left out; ApiError for another kind."""
        value = self._fields.pop(field, None)
        if value is not None and not kind.fits(value):
            raise invalid(self.name(field), kind.must)
        return default if value is None else value

    def text(self, field: str) -> str | None:
        """Take the field if it is a text; else leave it."""
        return self._fields.pop(field) if isinstance(self._fields.get(field), str) else None

    def asked(self, *fields: str) -> "Asked | None":
        """Return the first of these lengths that is given."""
        given = [(self.name(field), self.take(field, LENGTH)) for field in fields]
        found = (Asked(name, min(value, MAX_TOKENS)) for name, value in given if value is not None)
        return next(found, None)

    def inner(self, field: str) -> "RequestBody":
        """Return the fields of an object within this one; of none if it is left out."""
        return RequestBody(self.take(field, OBJECT, {}), f"{self.name(field)}.", self.ignored)

    def entries(self, field: str) -> "list[RequestBody]":
        """Return the objects of a list."""
        found = []
        if field not in self._fields:
            raise invalid(self.name(field), LIST.must)
        for place, each in enumerate(self.take(field, LIST)):
            where = f"{self.name(field)}[{place}]"
            if not isinstance(each, dict):
                raise invalid(where, OBJECT.must)
            found.append(RequestBody(each, f"{where}.", self.ignored))
        return found

    def pass_over(self, fields: Sequence[str]) -> None:
        """Drop fields that change nothing of an answer."""
        for field in fields:
            self.take(field)

    def allow(self, neutral: Mapping[str, Sequence[Any]]) -> None:
        """Refuse these fields unless they ask for what happens anyhow."""
        for field, values in neutral.items():
            value = self.take(field)
            # 0 is not False, but 0.0 is 0.
            same = (
                each == value and isinstance(each, bool) == isinstance(value, bool)
                for each in values
            )
            if value is not None and not any(same):
                raise unsupported(self.name(field))

    def plain_text(self, field: str) -> None:
        """Refuse every format but text: nothing here holds an answer to a grammar."""
        wanted = self.inner(field)
        kind = wanted.take("type", TEXT, "text")
        if kind != "text":
            raise unsupported(self.name(field), "ask for the form in words, or leave it out", kind)
        wanted.close()

    def close(self) -> None:
        """Note the fields that nobody took as ignored."""
        self.ignored += (self.name(field)[:MAX_NAME] for field in self._fields)


class Asked(NamedTuple):
    """A number, and the field that asks for it."""

    field: str
    number: int


class Dialogue(NamedTuple):
    """A conversation as its client sends it: the question, the turns before, the instructions.

    The question stands in the field `asked_in`.
    """

    prompt: str
    asked_in: str
    history: tuple[Turn, ...] = ()
    instructions: str = ""


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
    asked_in: str
    length: Asked | None
    ignored: tuple[str, ...]
    include_usage: bool
    traced: bool

    @property
    def warnings(self) -> dict[str, str]:
        """The header `Warning` of the response, if a part of the request does not count."""
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
class Defaults:
    """What holds where a request says nothing, and the `longest` answer in tokens.

    `unranked` says why a sampler has no probabilities to return, None if it has.
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
        dialogue: Dialogue,
        length: Asked | None,
        ranked: Asked | None,
        *,
        traced: bool = False,
    ) -> ApiRequest:
        """Parse the rest of a request, which all APIs have alike; closes the body."""
        options = body.inner("stream_options")
        options.allow({"include_obfuscation": (False,)})
        include_usage = options.take("include_usage", FLAG, False)
        options.close()
        body.pass_over(WITHOUT_EFFECT)
        body.allow(UNLIKE_HERE)
        given = {name: body.take(name, kind) for name, kind in SAMPLER.items()}
        sampler = {
            name: value if name == "top_k" else float(value)
            for name, value in given.items()
            if value is not None
        }
        seed = body.take("seed", number(0, MAX_64, whole=True), self.seed)
        stops = body.take("stop", STOPS, [])
        stream = body.take("stream", FLAG, False)
        sources_in_text = body.take("sources_in_text", FLAG, self.sources_in_text)
        body.close()
        most = self.question.max_tokens if length is None else length.number
        try:
            question = replace(
                self.question,
                prompt=dialogue.prompt,
                history=dialogue.history,
                instructions=dialogue.instructions,
                sampler=assemble(Sampler, flat(self.question.sampler) | sampler),
                max_tokens=self.longest if most < 0 else min(most, self.longest),
                top_logprobs=None if ranked is None else ranked.number,
            )
        except DragonError as error:
            raise ApiError(400, str(error), code="invalid_value") from None
        if ranked is not None and (because := self.unranked(question.sampler)):
            raise unsupported(ranked.field, because)
        return ApiRequest(
            question=question,
            seed=seed,
            stops=(*self.stops, *([stops] if isinstance(stops, str) else stops)),
            stream=stream,
            sources_in_text=sources_in_text,
            asked_in=dialogue.asked_in,
            length=length,
            ignored=tuple(dict.fromkeys(body.ignored)),
            include_usage=include_usage,
            traced=traced,
        )

    async def fitted(self, request: ApiRequest, model: LanguageModel) -> ApiRequest:
        """Shorten the answer to what the model has room for beside its documents.

        They have at most half of its context. No answer gets shorter than the default.
        """
        question = request.question
        if question.max_tokens <= self.question.max_tokens:
            return request
        text = model.prompt.question_text([], question.prompt, question.instructions)
        room = model.context_length // 2 - len(await asyncio.to_thread(model.encode, text))
        most = min(question.max_tokens, max(room, self.question.max_tokens))
        return replace(request, question=replace(question, max_tokens=most))


Message = tuple[str, str]
"""The role and the text."""


def messages(body: RequestBody, field: str) -> list[Message]:
    """Return the messages of a list. Raises ApiError for other roles, and for all but text."""
    found = []
    for message in body.entries(field):
        message.pass_over(("id", "name", "status", "type", "annotations", "refusal"))
        message.allow({"tool_calls": ([],), "function_call": (), "audio": ()})
        role, content = message.take("role", TEXT), _content(message)
        message.close()
        if role not in ("system", "developer", "user", "assistant"):
            raise invalid(message.name("role"), "system, developer, user or assistant")
        found.append((role, content))
    return found


def dialogue(messages: Sequence[Message], asked_in: str) -> Dialogue:
    """Return the turns of messages; several of one side in a row are joined.

    Raises ApiError unless a question comes last.
    """
    instructions: list[str] = []
    turns: list[tuple[list[str], list[str]]] = []
    for role, content in messages:
        if role in ("system", "developer"):
            instructions.append(content)
            continue
        if not turns or (role == "user" and turns[-1][1]):
            turns.append(([], []))
        asked, answered = turns[-1]
        if role == "user":
            asked.append(content)
        else:
            answered.append(without_sources(content))
    if not turns or turns[-1][1] or not "".join(turns[-1][0]).strip():
        must = f"{asked_in} must end with a question"
        raise ApiError(400, must, code="invalid_value", param=asked_in)
    *earlier, (question, _) = turns
    history = tuple(("\n".join(asked), "\n".join(answered)) for asked, answered in earlier)
    return Dialogue("\n".join(question), asked_in, history[-HISTORY:], "\n".join(instructions))


def _content(message: RequestBody) -> str:
    if (content := message.text("content")) is not None:
        return content
    texts = []
    for part in message.entries("content"):
        part.pass_over(("annotations", "logprobs"))
        kind = part.take("type", TEXT)
        if kind not in ("text", "input_text", "output_text"):
            raise unsupported(part.name("type"), "send text only")
        texts.append(part.take("text", TEXT, ""))
        part.close()
    return "".join(texts)
