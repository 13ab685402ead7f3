"""A request in any API, and the conversation that it asks with."""

import json
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

from dragonrt.backends.model import LanguageModel
from dragonrt.errors import DragonError
from dragonrt.modes.question import Question, Turn
from dragonrt.sampling.samplers import Sampler
from dragonrt.service.chat import HISTORY
from dragonrt.service.http.api_errors import ApiError, unsupported
from dragonrt.service.http.request_body import SAMPLER, Json, many
from dragonrt.service.view import without_sources
from dragonrt.settings import SettingError

MAX_WARNED = 16
"""Ignored fields that a response names."""


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
    not the device's. `unranked` is why there are no probabilities to return, else None. If
    `traced`, the stream has the events of decoding.
    """

    question: Question
    seed: int | None
    stops: tuple[str, ...]
    sources_in_text: bool
    longest: int
    unranked: str | None = None
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
        if ranked is not None and self.unranked is not None:
            raise unsupported(ranked.field, self.unranked)
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
