"""Convert a request's JSON body, in any API, to an ApiRequest, or reject it with an ApiError.

An unsupported field is ignored; the response warns of it unless it is harmless, such as `user`. A
request for another kind of reply, such as audio, is rejected. A null counts as a missing field.
"""

import json
import math
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Annotated, Any, Literal, NamedTuple, TypeVar

import msgspec
from msgspec import Meta, Struct
from starlette.responses import JSONResponse

from dragonrt.backends.model import LanguageModel
from dragonrt.errors import DragonError
from dragonrt.modes.question import Question, Ranked, Turn
from dragonrt.sampling.samplers import Temperature
from dragonrt.service.chat import HISTORY
from dragonrt.service.prompts import READERS, is_background
from dragonrt.service.view import without_sources
from dragonrt.settings import U64, SettingError, Share
from dragonrt.settings import read as checked

MAX_WARNED = 16  # ignored fields that a response names
MAX_NAME = 64  # characters of an ignored field's name in the response's warning

Json = dict[str, Any]
T = TypeVar("T", bound=Struct)


class ApiError(DragonError):
    """A rejected request, or an answer that failed.

    `status` is the HTTP status, `code` OpenAI's error code, `param` the name of the faulty field,
    `retry_after_s` the seconds until the request may be sent again, 0 if that is unknown.
    """

    def __init__(
        self, status: int, text: str, *, code: str = "", param: str = "", retry_after_s: float = 0
    ) -> None:
        super().__init__(text)
        self.status, self.code, self.param = status, code, param
        self.headers: dict[str, str] = {}
        if status == 401:
            self.headers["WWW-Authenticate"] = "Bearer"
        if status in (408, 413):
            self.headers["Connection"] = "close"  # the body that follows is not read
        if retry_after_s:
            self.headers["Retry-After"] = str(max(1, math.ceil(retry_after_s)))

    def to_json(self) -> Json:
        usual = "invalid_request_error" if self.status < 500 else "server_error"
        kind = {401: "authentication_error", 429: "rate_limit_error"}.get(self.status, usual)
        about = {"param": self.param or None, "code": self.code or None}
        return {"error": {"message": str(self), "type": kind, **about}}

    @property
    def response(self) -> JSONResponse:
        return JSONResponse(self.to_json(), self.status, self.headers)


def unsupported(name: str, instead: str = "leave it out", value: str = "") -> ApiError:
    """Return an ApiError: a field, or its `value`, is unsupported; `instead` says what to do."""
    text = f"{name} {value}".strip() + f" is not supported here: {instead}"
    return ApiError(400, text, code="unsupported_parameter", param=name)


def wrong(text: str, name: str = "") -> ApiError:
    """Return an ApiError with this text; `name` is the invalid field, "" if there are several."""
    return ApiError(400, text, code="invalid_value", param=name)


def invalid(name: str, must: str) -> ApiError:
    """Return an ApiError: the field `name` is invalid; `must` says what its value must be."""
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
    """Parse a body; 256.0 becomes the integer 256. Raises ApiError unless it is a JSON object."""
    try:
        value = DECODER.decode(data)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        raise ApiError(400, "the body must be JSON", code="invalid_json") from None
    if not isinstance(value, dict):
        raise ApiError(400, "the body must be a JSON object", code="invalid_json")
    return value


DECODER = msgspec.json.Decoder(float_hook=lambda text: int(n) if (n := float(text)) % 1 == 0 else n)


def read(body: Json, kind: type[T]) -> tuple[T, list[str]]:
    """Convert a request's JSON body to a Struct `kind`; also return names of its unused fields.

    Raises ApiError for a wrong or unsupported value.
    """
    try:
        found = msgspec.convert(body, kind)
    except msgspec.ValidationError as error:
        raise _rejected(str(error)) from None
    return found, list(_ignored(body, found))


def warning_lines(ignored: Sequence[str]) -> list[str]:
    """Return the lines that warn a client about fields of its request without effect."""
    last = {name: name.rpartition(".")[2] for name in ignored}
    plain = [name for name in last if last[name] not in UNKEPT][:MAX_WARNED]
    unkept = [f"{name}: {UNKEPT[last[name]][0]}" for name in last if last[name] in UNKEPT]
    return [*([f"ignored: {', '.join(plain)}"] if plain else []), *unkept[:MAX_WARNED]]


def warning(lines: Sequence[str]) -> dict[str, str]:
    """Return the HTTP header `Warning` (RFC 7234, 5.5) with these lines; {} if there are none."""
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
            elif not (value is None or each in IDLE or value in UNKEPT.get(each, ("", ()))[1]):
                yield inner[:MAX_NAME]


SAMPLER = ("temperature", "top_p", "top_k", "min_p")
LENGTHS = "max_completion_tokens", "max_tokens", "max_output_tokens", "num_predict"
LEAST_P = 1e-9  # replaces a `top_p` of 0: the likeliest token alone
TEXTS = ("text", "input_text", "output_text")  # the types of a message's parts that are read

PROBABILITIES = "[probabilities](#probabilities)"
LEVEL = "[level](privacy.md#levels), that of `--disclose` or one that discloses less"

Stop = Annotated[str, Meta(max_length=256)]
Stops = Annotated[list[Stop], Meta(max_length=16)]
Most = Annotated[int, Meta(ge=-1, le=2**31 - 1)] | None


class Part(Struct, kw_only=True):
    """One element of a message's `content` list; only elements of a text type are read."""

    type: str = "text"
    text: str | None = None
    logprobs: Any = None


class ChatMessage(Struct, kw_only=True):
    """A message of a conversation, or an item without a role, such as a tool call."""

    role: Literal["system", "developer", "user", "assistant", "tool", "function"] | None = None
    type: str | None = None
    content: str | list[Part] | None = None
    images: list[Any] | None = None

    @property
    def parts(self) -> list[Part]:
        content = self.content or []
        return [Part(text=content)] if isinstance(content, str) else content


class StreamOptions(Struct, kw_only=True):
    """The field `stream_options`; with `include_usage` the stream ends with token counts."""

    include_usage: bool | None = None


class CommonBody(Struct, kw_only=True):
    """The fields of a request's body that all APIs share, each annotated with its meaning."""

    temperature: Annotated[Temperature | None, "0: always the likeliest token"] = None
    top_p: Annotated[Share | None, "likeliest tokens of this probability"] = None
    top_k: Annotated[Most, "extension: the likeliest K tokens; 0 or -1: all"] = None
    min_p: Annotated[Share | None, "extension: tokens of this share of the likeliest one's"] = None
    seed: Annotated[int | None, "equal seeds give equal texts; below 0: a new one"] = None
    stop: Annotated[Stop | Stops | None, "up to 16 texts that end the answer; empty: none"] = None
    sources_in_text: Annotated[bool | None, "extension: name the sources behind the text"] = None
    document: Annotated[
        str | None, "extension: as [`--document`](reference.md#dragonrt-device)"
    ] = None
    disclose: Annotated[str | None, f"extension: the answer's {LEVEL}"] = None
    stream: Annotated[bool | None, "send pieces when they are decided"] = None
    stream_options: Annotated[StreamOptions | None, "`include_usage`"] = None
    top_logprobs: Annotated[Ranked | None, PROBABILITIES] = None


NOTHING = CommonBody()


class Dialogue(NamedTuple):
    """The conversation in a body: `prompt` is the question, `history` the turns before it.

    `asked_in` names the body's field with the question, `unread` those with tool calls or results.
    """

    prompt: str
    asked_in: str
    history: tuple[Turn, ...] = ()
    instructions: str = ""
    unread: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class ApiRequest:
    """A parsed request for an answer, the same for every API; also the service's defaults.

    `question` has the words and settings; if `seed` is None the answer draws one. `stops` are texts
    that end the answer, `longest` is the most tokens to ask for. `no_probabilities_because` says
    why the service cannot return token probabilities, or is None. If `traced`, the stream has trace
    events. `asked_in` and `length` name the body's fields with question and limit, for errors.
    `background` marks a chat page's own task, such as a title. `instructions_ignored_by` is the
    model's name if it ignores the request's instructions, else "".
    """

    question: Question
    seed: int | None
    stops: tuple[str, ...]
    sources_in_text: bool
    longest: int
    no_probabilities_because: str | None = None
    body: CommonBody = NOTHING
    traced: bool = False
    asked_in: str = ""
    length: str = ""
    ignored: tuple[str, ...] = ()
    background: bool = False
    instructions_ignored_by: str = ""

    def asked(
        self, body: CommonBody, ignored: Sequence[str], dialogue: Dialogue, ranked: str
    ) -> "ApiRequest":
        """Return a request: these defaults, overridden by the values in `body` and by `dialogue`.

        `ignored` are fields without effect, to warn of. `ranked` is the field of `body` that asks
        for probabilities, "" if none does. Raises ApiError for invalid values.
        """
        given = {name: each for name in SAMPLER if (each := getattr(body, name)) is not None}
        for name, least in (("top_k", 0), ("top_p", LEAST_P)):
            if name in given:
                given[name] = max(least, given[name])
        usual, most = self.question, self.question.max_tokens
        field = next((each for each in LENGTHS if getattr(body, each, None) is not None), "")
        if field:
            number: int = getattr(body, field)
            if not number:
                raise invalid(field, "at least 1, or -1 for all for which there is room")
            most = self.longest if number < 0 else min(number, self.longest)
        if ranked and self.no_probabilities_because is not None:
            raise unsupported(ranked, self.no_probabilities_because)
        if background := not dialogue.history and is_background(dialogue.prompt):
            usual = replace(usual, documents=0, document="", parts="off")
        try:
            seed = self.seed if body.seed is None else None
            if body.seed is not None and body.seed >= 0:
                seed = checked(U64, body.seed, "seed")
            question = replace(
                usual,
                prompt=dialogue.prompt,
                history=dialogue.history,
                instructions=dialogue.instructions,
                document=usual.document if body.document is None else body.document,
                sampler=replace(usual.sampler, **given),
                max_tokens=most,
                top_logprobs=body.top_logprobs or 0 if ranked else None,
            )
        except SettingError as error:
            name = dialogue.asked_in if error.name == "prompt" else error.name
            raise wrong(f"{name} {error.problem}", name) from None
        except DragonError as error:
            raise wrong(str(error)) from None
        stops = [body.stop] if isinstance(body.stop, str) else body.stop or ()
        in_text = False if background else body.sources_in_text
        within = tuple(f"{each}." for each in dialogue.unread)
        return replace(
            self,
            question=question,
            seed=seed,
            stops=(*self.stops, *filter(None, stops)),
            sources_in_text=self.sources_in_text if in_text is None else in_text,
            body=body,
            asked_in=dialogue.asked_in,
            length=field,
            ignored=(*dialogue.unread, *(name for name in ignored if not name.startswith(within))),
            background=background,
        )

    def fitted(self, usual: int, model: LanguageModel) -> "ApiRequest":
        """Return the request with its token limit lowered to the room in the model's context.

        Half of the context is for documents. `usual`, the service's default limit, is always
        allowed. A model that follows no instructions gets none. Tokenizing blocks: use a thread.
        """
        question, most = self.question, self.question.max_tokens
        if deaf := (model.name if question.instructions and model.name in READERS else ""):
            question = replace(question, instructions="")
        if most > usual:
            text = model.prompt.question_text([], question.prompt, question.instructions)
            room = model.context_length // 2 - len(model.encode(text))
            most = min(most, max(room, usual))
        question = replace(question, max_tokens=most)
        return replace(self, question=question, instructions_ignored_by=deaf)

    @property
    def warnings(self) -> list[str]:
        """Return warnings for the response: fields without effect, and a lowered token limit."""
        lines, most = warning_lines(self.ignored), self.question.max_tokens
        if self.length and most < getattr(self.body, self.length):
            lines.append(f"{self.length}: {most} is the most")
        if deaf := self.instructions_ignored_by:
            lines.append(f"instructions have no effect: {deaf} follows none")
        return lines


def dialogue(messages: str | Sequence[ChatMessage], field: str, instructions: str = "") -> Dialogue:
    """Return the conversation in a body's `field`; consecutive messages of one role are joined.

    A str is the user's only message. `instructions` are put before those of the messages. Tool
    calls and results are not read. Raises ApiError unless the last message is a question.
    """
    if isinstance(messages, str):
        only = [ChatMessage(role="user", content=messages)]
        return dialogue(only, field, instructions)._replace(asked_in=field)
    asked_in, system, unread = field, [instructions] if instructions else [], list[str]()
    turns: list[tuple[list[str], list[str]]] = []
    for number, message in enumerate(messages):
        role, name = message.role, f"{field}[{number}]"
        if role in ("tool", "function") or (role is None and message.type):
            unread.append(name)
            continue
        if role is None:
            raise invalid(f"{name}.role", "user, assistant, system or developer")
        if message.images:
            raise unsupported(f"{name}.images", "send text only")
        for place, part in enumerate(message.parts):
            if part.type not in TEXTS and role == "user":
                where = f"{name}.content[{place}].type"
                raise unsupported(where, "send text only", part.type)
            if part.type not in TEXTS:
                unread.append(f"{name}.content[{place}]")
        content = "".join(part.text or "" for part in message.parts if part.type in TEXTS)
        if role in ("system", "developer"):
            system.append(content)
        elif role == "user":
            if not turns or turns[-1][1]:
                turns.append(([], []))
            turns[-1][0].append(content)
            asked_in = f"{name}.content"
        elif content:
            turns = turns or [([], [])]
            turns[-1][1].append(without_sources(content))
    if not turns or turns[-1][1] or not "".join(turns[-1][0]).strip():
        raise invalid(field, "a conversation that ends with a question")
    *earlier, (question, _) = turns
    history = tuple(("\n".join(asked), "\n".join(answered)) for asked, answered in earlier)
    recent, rules = history[-HISTORY:], "\n".join(system)
    return Dialogue("\n".join(question), asked_in, recent, rules, tuple(unread))
