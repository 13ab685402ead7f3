"""A request in any API, and the conversation that it asks with."""

import json
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Annotated, Any, Literal, NamedTuple

from msgspec import Meta, Struct

from dragonrt.backends.model import LanguageModel
from dragonrt.errors import DragonError
from dragonrt.modes.question import Question, Ranked, Turn
from dragonrt.sampling.samplers import Temperature, TopK, TopP
from dragonrt.service.chat import HISTORY
from dragonrt.service.http.request_body import ApiError, invalid, unsupported
from dragonrt.service.view import without_sources
from dragonrt.settings import U64, SettingError, Share, read

SAMPLER = ("temperature", "top_p", "top_k", "min_p")
MAX_WARNED = 16
"""Ignored fields that a response names."""

Stop = Annotated[str, Meta(min_length=1, max_length=256)]
Length = Annotated[int, Meta(ge=-1)] | None
"""The most tokens of an answer; -1: all for which there is room."""


class Part(Struct, kw_only=True):
    """A part of a message."""

    type: Literal["text", "input_text", "output_text"]
    text: str | None = None
    logprobs: Any = None


class ChatMessage(Struct, kw_only=True):
    """A message of a conversation."""

    role: Literal["system", "developer", "user", "assistant"]
    content: str | list[Part] | None = None

    @property
    def text(self) -> str:
        if isinstance(self.content, list):
            return "".join(part.text or "" for part in self.content)
        return self.content or ""


class StreamOptions(Struct, kw_only=True):
    """The options of a stream."""

    include_usage: bool | None = None


class Asked(Struct, kw_only=True):
    """The fields of a question in every API."""

    temperature: Temperature | None = None
    top_p: TopP | None = None
    top_k: TopK | None = None
    min_p: Share | None = None
    seed: U64 | None = None
    stop: Stop | Annotated[list[Stop], Meta(max_length=16)] | None = None
    sources_in_text: bool | None = None
    document: str | None = None
    disclose: str | None = None
    stream: bool | None = None
    stream_options: StreamOptions | None = None
    top_logprobs: Ranked | None = None


NOTHING = Asked()


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
    texts that end the answer, `longest` its most tokens. `unranked` is why there are no
    probabilities to return, else None. If `traced`, the stream has the events of decoding.
    """

    question: Question
    seed: int | None
    stops: tuple[str, ...]
    sources_in_text: bool
    longest: int
    unranked: str | None = None
    body: Asked = NOTHING
    traced: bool = False
    asked_in: str = ""
    length: Wanted | None = None
    ignored: tuple[str, ...] = ()

    def asked(
        self,
        body: Asked,
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
        given = {name: each for name in SAMPLER if (each := getattr(body, name)) is not None}
        numbers = (Wanted(name, getattr(body, name)) for name in lengths)
        length = next((each for each in numbers if each.number is not None), None)
        if length is not None and not length.number:
            raise invalid(length.field, "at least 1, or -1 for all for which there is room")
        if ranked is not None and self.unranked is not None:
            raise unsupported(ranked.field, self.unranked)
        most = self.question.max_tokens
        if length is not None:
            most = self.longest if length.number < 0 else min(length.number, self.longest)
        usual = self.question
        try:
            seed = self.seed if body.seed is None else read(U64, body.seed, "seed")
            question = replace(
                usual,
                prompt=dialogue.prompt,
                history=dialogue.history,
                instructions=dialogue.instructions,
                document=usual.document if body.document is None else body.document,
                sampler=replace(usual.sampler, **given),
                max_tokens=most,
                top_logprobs=None if ranked is None else ranked.number,
            )
        except SettingError as error:
            name = dialogue.asked_in if error.name == "prompt" else error.name
            text = f"{name} {error.problem}"
            raise ApiError(400, text, code="invalid_value", param=name) from None
        except DragonError as error:
            raise ApiError(400, str(error), code="invalid_value") from None
        stops = [body.stop] if isinstance(body.stop, str) else body.stop or ()
        in_text = body.sources_in_text
        return replace(
            self,
            question=question,
            seed=seed,
            stops=(*self.stops, *stops),
            sources_in_text=self.sources_in_text if in_text is None else in_text,
            body=body,
            traced=traced,
            asked_in=dialogue.asked_in,
            length=length,
            ignored=tuple(ignored),
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


def dialogue(messages: str | Sequence[ChatMessage], field: str, instructions: str = "") -> Dialogue:
    """Return the turns of the messages in a field; consecutive ones of one role are joined.

    A text is one message. Raises ApiError unless a question is last.
    """
    if isinstance(messages, str):
        only = [ChatMessage(role="user", content=messages)]
        return dialogue(only, field, instructions)._replace(asked_in=field)
    asked_in, system = field, [instructions] if instructions else []
    turns: list[tuple[list[str], list[str]]] = []
    for number, message in enumerate(messages):
        role, content = message.role, message.text
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
