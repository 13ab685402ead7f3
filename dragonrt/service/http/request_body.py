"""The body of a request: its fields are taken, rejected by name, or ignored with a warning."""

import json
from collections.abc import AsyncIterable, AsyncIterator, Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple, Self

from dragonrt.backends.model import LanguageModel
from dragonrt.errors import DragonError
from dragonrt.modes.question import MAX_RANKED, Question, Turn
from dragonrt.sampling.samplers import Sampler
from dragonrt.service.conversation import HISTORY
from dragonrt.service.http.api_errors import ApiError, invalid, unsupported
from dragonrt.service.view import without_sources
from dragonrt.wire.limits import MAX_64, MAX_TOKENS

MAX_WARNED = 16
"""Ignored fields that a response names, each with at most MAX_NAME characters."""
MAX_NAME = 64
MAX_STOPS = 16
"""Stop strings of one request, each of at most MAX_STOP_LENGTH characters."""
MAX_STOP_LENGTH = 256

ANY = None
"""In place of the accepted values of a field: all, because no answer depends on it."""
Accepted = Mapping[str, Sequence[Any] | None]
"""Fields by their names, with the values that ask for nothing."""

WITHOUT_EFFECT: Accepted = {
    **dict.fromkeys(("user", "metadata", "safety_identifier", "service_tier"), ANY),
    **dict.fromkeys(("prompt_cache_key", "prompt_cache_retention", "parallel_tool_calls"), ANY),
}
"""What a client may say of itself and of its bill."""
NO_API: Accepted = {
    **WITHOUT_EFFECT,
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
"""What no API does here."""
MESSAGE: Accepted = {
    **dict.fromkeys(("id", "name", "status", "type", "annotations", "refusal"), ANY),
    "tool_calls": ([],),
    "function_call": (),
    "audio": (),
}


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
TOP = number(0, MAX_RANKED, whole=True)
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
    """Yield the pieces of a body. Raises ApiError if there are too many bytes."""
    size = 0
    async for piece in data:
        size += len(piece)
        if size > largest:
            raise ApiError(413, f"at most {largest} bytes are taken here", code="too_large")
        yield piece


class RequestBody:
    """A JSON object whose fields are taken one by one; those left over are ignored.

    A field that is null counts as left out.
    """

    def __init__(self, fields: Mapping[str, Any], where: str = "") -> None:
        self._where = where
        self._fields = {name: value for name, value in fields.items() if value is not None}
        self._within: list[RequestBody] = []

    @classmethod
    def parse(cls, data: bytes) -> Self:
        """Return the body. Raises ApiError for what is not a JSON object."""
        try:
            value = json.loads(data)
        except (ValueError, RecursionError):
            raise ApiError(400, "the body must be JSON", code="invalid_json") from None
        if not isinstance(value, dict):
            raise ApiError(400, "the body must be a JSON object", code="invalid_json")
        return cls(value)

    def name(self, field: str) -> str:
        """Return the name of the field in errors."""
        return f"{self._where}{field}"

    def take(self, field: str, kind: Kind = ANYTHING, default: Any = None) -> Any:
        """Return the value, or the default if it is left out. Raises ApiError for another kind."""
        value = self._fields.pop(field, None)
        if value is not None and not kind.fits(value):
            raise invalid(self.name(field), kind.must)
        return default if value is None else value

    def length(self, *fields: str) -> "Wanted | None":
        """Take the first of these lengths of an answer that is given."""
        given = [(self.name(field), self.take(field, LENGTH)) for field in fields]
        found = (Wanted(name, min(value, MAX_TOKENS)) for name, value in given if value is not None)
        return next(found, None)

    def inner(self, field: str) -> "RequestBody":
        """Take an object within this one; one without fields if it is left out."""
        return self._inner(self.take(field, OBJECT, {}), f"{self.name(field)}.")

    def entries(self, field: str, value: Any) -> "list[RequestBody]":
        """Return the objects of a list, the value of `field`."""
        if not LIST.fits(value):
            raise invalid(self.name(field), LIST.must)
        found = []
        for place, each in enumerate(value):
            where = f"{self.name(field)}[{place}]"
            if not OBJECT.fits(each):
                raise invalid(where, OBJECT.must)
            found.append(self._inner(each, f"{where}."))
        return found

    def _inner(self, fields: Mapping[str, Any], where: str) -> "RequestBody":
        self._within.append(RequestBody(fields, where))
        return self._within[-1]

    def allow(self, accepted: Accepted) -> None:
        """Reject these fields unless they ask for nothing."""
        for field, values in accepted.items():
            value = self.take(field)
            if value is None or values is ANY:
                continue
            # 0 is not False, but 0.0 is 0.
            if not any(
                each == value and isinstance(each, bool) == isinstance(value, bool)
                for each in values
            ):
                raise unsupported(self.name(field))

    def plain_text(self, field: str) -> None:
        """Reject every format but text: nothing here makes an answer follow a grammar."""
        kind = self.inner(field).take("type", TEXT, "text")
        if kind != "text":
            raise unsupported(self.name(field), "ask for the form in words, or leave it out", kind)

    @property
    def ignored(self) -> list[str]:
        """The names of the fields that nobody took."""
        inner = [name for each in self._within for name in each.ignored]
        return [*inner, *(self.name(field)[:MAX_NAME] for field in self._fields)]


class Wanted(NamedTuple):
    """A number, and the field that asks for it."""

    field: str
    number: int


class Dialogue(NamedTuple):
    """A conversation as its client sends it; the question stands in the field `asked_in`."""

    prompt: str
    asked_in: str
    history: tuple[Turn, ...] = ()
    instructions: str = ""


@dataclass(frozen=True, slots=True)
class ApiRequest:
    """What a client asks for in any API; without a body, what holds if it does not say.

    `question` has the words and the settings; without a `seed` the answer draws its own. `stops`
    are the texts that end the answer, of `longest` tokens at most. `unranked` says why a sampler
    has no probabilities to return; None if it has. With `traced` the stream also tells how the
    answer is computed.
    """

    question: Question
    seed: int | None
    stops: tuple[str, ...]
    sources_in_text: bool
    longest: int
    unranked: Callable[[Sampler], str | None] = lambda sampler: None
    stream: bool = False
    include_usage: bool = False
    traced: bool = False
    asked_in: str = ""
    length: Wanted | None = None
    ignored: tuple[str, ...] = ()

    def asked(
        self,
        body: RequestBody,
        dialogue: Dialogue,
        length: Wanted | None,
        ranked: Wanted | None,
        *,
        traced: bool = False,
    ) -> "ApiRequest":
        """Take the rest of a body, which is the same in all APIs. Raises ApiError."""
        options = body.inner("stream_options")
        options.allow({"include_obfuscation": (False,)})
        include_usage = options.take("include_usage", FLAG, False)
        body.allow(NO_API)
        usual, most = self.question.sampler, self.question.max_tokens
        sampler = {
            name: type(value)(body.take(name, kind, value))
            for name, kind in SAMPLER.items()
            for value in [getattr(usual, name)]
        }
        if length is not None:
            most = self.longest if length.number < 0 else min(length.number, self.longest)
        stops = body.take("stop", STOPS, [])
        try:
            question = replace(
                self.question,
                prompt=dialogue.prompt,
                history=dialogue.history,
                instructions=dialogue.instructions,
                sampler=Sampler(**sampler),
                max_tokens=most,
                top_logprobs=None if ranked is None else ranked.number,
            )
        except DragonError as error:
            raise ApiError(400, str(error), code="invalid_value") from None
        if ranked is not None and (because := self.unranked(question.sampler)):
            raise unsupported(ranked.field, because)
        return replace(
            self,
            question=question,
            seed=body.take("seed", number(0, MAX_64, whole=True), self.seed),
            stops=(*self.stops, *([stops] if isinstance(stops, str) else stops)),
            sources_in_text=body.take("sources_in_text", FLAG, self.sources_in_text),
            stream=body.take("stream", FLAG, False),
            include_usage=include_usage,
            traced=traced,
            asked_in=dialogue.asked_in,
            length=length,
            ignored=tuple(dict.fromkeys(body.ignored)),
        )

    def fitted(self, usual: int, model: LanguageModel) -> "ApiRequest":
        """Shorten the answer to what the model has room for beside its documents.

        They have at most half of its context. No answer gets shorter than the `usual` tokens. It
        encodes the question, so do not call it on the event loop.
        """
        question = self.question
        if question.max_tokens <= usual:
            return self
        text = model.prompt.question_text([], question.prompt, question.instructions)
        room = model.context_length // 2 - len(model.encode(text))
        most = min(question.max_tokens, max(room, usual))
        return replace(self, question=replace(question, max_tokens=most))

    @property
    def warnings(self) -> dict[str, str]:
        """The header `Warning` of the response, if a part of the request does not count."""
        most, length = self.question.max_tokens, self.length
        short = length is not None and most < length.number
        return warning(
            self.ignored, f"{length.field}: {most} is the most" if length and short else ""
        )


def warning(ignored: Sequence[str], other: str = "") -> dict[str, str]:
    """Return the header `Warning` that names ignored fields, or none (RFC 7234, 5.5)."""
    names = ", ".join(ignored[:MAX_WARNED])
    found = "; ".join(part for part in (names and f"ignored: {names}", other) if part)
    # JSON's quoted text is ASCII without control characters, as a header needs it.
    return {"Warning": f"299 - {json.dumps(found)}"} if found else {}


def dialogue(body: RequestBody, field: str, messages: Any, instructions: str = "") -> Dialogue:
    """Return the turns of a list of messages; several of one role in a row are joined.

    Raises ApiError for other roles, for all but text, and unless a question comes last.
    """
    system = [instructions] if instructions else []
    turns: list[tuple[list[str], list[str]]] = []
    for message in body.entries(field, messages):
        message.allow(MESSAGE)
        role, content = message.take("role", TEXT), _content(message)
        if role in ("system", "developer"):
            system.append(content)
        elif role in ("user", "assistant"):
            if not turns or (role == "user" and turns[-1][1]):
                turns.append(([], []))
            asked, answered = turns[-1]
            if role == "user":
                asked.append(content)
            else:
                answered.append(without_sources(content))
        else:
            raise invalid(message.name("role"), "system, developer, user or assistant")
    if not turns or turns[-1][1] or not "".join(turns[-1][0]).strip():
        must = f"{field} must end with a question"
        raise ApiError(400, must, code="invalid_value", param=field)
    *earlier, (question, _) = turns
    history = tuple(("\n".join(asked), "\n".join(answered)) for asked, answered in earlier)
    return Dialogue("\n".join(question), field, history[-HISTORY:], "\n".join(system))


def _content(message: RequestBody) -> str:
    content = message.take("content")
    if isinstance(content, str):
        return content
    texts = []
    for part in message.entries("content", content):
        part.allow({"annotations": ANY, "logprobs": ANY})
        if part.take("type", TEXT) not in ("text", "input_text", "output_text"):
            raise unsupported(part.name("type"), "send text only")
        texts.append(part.take("text", TEXT, ""))
    return "".join(texts)
