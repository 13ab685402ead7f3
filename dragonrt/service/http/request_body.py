"""The body of a request: fields are checked, rejected by name, or ignored with a warning."""

import json
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

from starlette.requests import Request

from dragonrt.backends.model import LanguageModel
from dragonrt.errors import DragonError
from dragonrt.modes.question import MAX_RANKED, Question, Turn
from dragonrt.sampling.samplers import Sampler
from dragonrt.service.chat import HISTORY
from dragonrt.service.http.api_errors import ApiError, invalid, unsupported
from dragonrt.service.view import without_sources
from dragonrt.settings import SettingError
from dragonrt.wire.limits import MAX_64

MAX_WARNED = 16
"""Ignored fields that a response names, each with at most MAX_NAME characters."""
MAX_NAME = 64
MAX_STOPS = 16
"""Stop strings of one request, each of at most MAX_STOP_LENGTH characters."""
MAX_STOP_LENGTH = 256
MOST_TEXTS = 2048
"""Texts of one request for embeddings, as in OpenAI's API."""

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


def alone(value: Any) -> Any:
    """Return the element of a list of one, and anything else unchanged."""
    return value[0] if isinstance(value, list) and len(value) == 1 else value


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
    **dict.fromkeys(("n", "best_of"), only(1)),
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
COMPLETION: Spec = {
    "prompt": Kind(
        lambda value: isinstance(alone(value), str) and alone(value).strip(),
        "one text, a question",
        needed=True,
    ),
    "echo": only(False),
    "suffix": only(""),
    "logprobs": number(0, 5, whole=True),
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
    "dimensions": ANY,
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
    """Yield the pieces of a body. Raises ApiError if there are, or will be, too many bytes."""
    size, announced = 0, int(request.headers.get("content-length", 0))
    error = ApiError(413, f"at most {largest} bytes are taken here", code="too_large")
    if announced > largest:
        raise error
    async for piece in request.stream():
        size += len(piece)
        if size > largest:
            raise error
        yield piece


class Wanted(NamedTuple):
    """A number, and the field that requests it."""

    field: str
    number: int


class Dialogue(NamedTuple):
    """A conversation as its client sends it; the field `asked_in` has the question."""

    prompt: str
    asked_in: str
    history: tuple[Turn, ...] = ()
    instructions: str = ""


@dataclass(frozen=True, slots=True)
class ApiRequest:
    """A request in any API, with defaults.

    `question` has the words and the settings; without a `seed` each answer draws one. `stops` are
    texts that end the answer, `longest` its most tokens. `level` is that of disclosure, if it is
    not the device's. `unranked` is why a sampler has no probabilities to return, else None. If
    `traced`, the stream has the events of decoding.
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
    level: str | None = None
    ignored: tuple[str, ...] = ()

    def asked(
        self,
        fields: Json,
        ignored: Sequence[str],
        dialogue: Dialogue,
        lengths: Sequence[str],
        ranked: Wanted | None,
        *,
        traced: bool = False,
    ) -> "ApiRequest":
        """Return the request with these fields; the first given one of `lengths` counts.

        Raises ApiError for invalid values.
        """
        usual, most = self.question.sampler, self.question.max_tokens
        sampler = {name: fields.get(name, getattr(usual, name)) for name in SAMPLER}
        length = next((Wanted(name, fields[name]) for name in lengths if name in fields), None)
        if length is not None:
            most = self.longest if length.number < 0 else min(length.number, self.longest)
        try:
            question = replace(
                self.question,
                prompt=dialogue.prompt,
                history=dialogue.history,
                instructions=dialogue.instructions,
                document=fields.get("document", self.question.document),
                sampler=Sampler(
                    **{name: type(getattr(usual, name))(each) for name, each in sampler.items()}
                ),
                max_tokens=most,
                top_logprobs=None if ranked is None else ranked.number,
            )
        except SettingError as error:
            name = {"prompt": dialogue.asked_in}.get(error.name, error.name)
            text = f"{name} {error.problem}"
            raise ApiError(400, text, code="invalid_value", param=name) from None
        except DragonError as error:
            raise ApiError(400, str(error), code="invalid_value") from None
        if ranked is not None and (because := self.unranked(question.sampler)):
            raise unsupported(ranked.field, because)
        return replace(
            self,
            question=question,
            seed=fields.get("seed", self.seed),
            stops=(*self.stops, *many(fields.get("stop", []))),
            sources_in_text=fields.get("sources_in_text", self.sources_in_text),
            stream=fields.get("stream", False),
            include_usage=fields.get("stream_options", {}).get("include_usage", False),
            traced=traced,
            asked_in=dialogue.asked_in,
            length=length,
            level=fields.get("disclose"),
            ignored=tuple(dict.fromkeys(ignored)),
        )

    def fitted(self, usual: int, model: LanguageModel) -> "ApiRequest":
        """Shorten the answer to the model's room beside the documents.

        Documents take at most half of its context. An answer keeps at least `usual` tokens. It
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
        """The header `Warning` of the response, if a part of the request is ignored."""
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


def dialogue(messages: str | Sequence[Json], field: str, instructions: str = "") -> Dialogue:
    """Return the turns of the messages in a field; consecutive ones of one role are joined.

    A text is one message. Raises ApiError unless a question is last.
    """
    if isinstance(messages, str):
        only = [{"role": "user", "content": messages}]
        return dialogue(only, field, instructions)._replace(asked_in=field)
    asked_in, system = field, [instructions] if instructions else []
    turns: list[tuple[list[str], list[str]]] = []
    for number, message in enumerate(messages):
        role, content = message.get("role"), message.get("content", [])
        if not isinstance(content, str):
            content = "".join(part.get("text", "") for part in content)
        if role in ("system", "developer"):
            system.append(content)
            continue
        if not turns or (role == "user" and turns[-1][1]):
            turns.append(([], []))
        asked, answered = turns[-1]
        if role == "user":
            asked.append(content)
            asked_in = f"{field}[{number}].content"
        else:
            answered.append(without_sources(content))
    if not turns or turns[-1][1] or not "".join(turns[-1][0]).strip():
        must = f"{field} must end with a question"
        raise ApiError(400, must, code="invalid_value", param=field)
    *earlier, (question, _) = turns
    history = tuple(("\n".join(asked), "\n".join(answered)) for asked, answered in earlier)
    return Dialogue("\n".join(question), asked_in, history[-HISTORY:], "\n".join(system))
