"""Formats a document and a question as the model's prompt.

The document comes first and does not depend on the question, so its keys and values can be computed
in advance. The rest is the question part, shared by all rows.
"""

import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from dragonrt.backends.backend import Tokenizer
from dragonrt.errors import ModelError
from retrieval.files import read_text

Turn = tuple[str, str]  # an earlier question and its answer

_DOCUMENT, _QUESTION = "{document}", "{question}"
# Placeholder of the document in a rendered chat template; no template contains it.
_PLACEHOLDER = "\u241edocument\u241e"


@dataclass(frozen=True, slots=True)
class PromptTemplate:
    """The words around a document and a question.

    Attributes:
        user: the first message, with {document}, then {question}. Later questions repeat the part
            after {document}.
        system: the system message of a chat model.
        refusal: the model's answer if a document does not have the answer; empty if unknown.
        stops: strings that end an answer, in addition to the model's own stop tokens.
        languages: the languages that the model reads, by English names; empty if unknown.
    """

    user: str
    system: str = ""
    refusal: str = ""
    stops: tuple[str, ...] = ()
    languages: tuple[str, ...] = field(default=(), repr=False)  # changes nothing that is read

    @property
    def before(self) -> str:
        """Return the text of `user` before {document}."""
        return self.user.partition(_DOCUMENT)[0]

    @property
    def gap(self) -> str:
        """Return the white space that directly follows {document} in `user`."""
        behind = self.user.partition(_DOCUMENT)[2]
        return behind[: len(behind) - len(behind.lstrip())]

    @property
    def lead(self) -> str:
        """Return the text of `user` between {document} and {question}, stripped at its end."""
        return self.user.partition(_DOCUMENT)[2].partition(_QUESTION)[0].rstrip()

    def question_part(self, question: str, instructions: str = "") -> str:
        """Return the text of `user` after {document}, with instructions and question filled in."""
        behind = self.user.partition(_DOCUMENT)[2].lstrip()
        before = f"{instructions}\n\n" if instructions else ""
        return behind.replace(_QUESTION, f"{before}{question}", 1)

    @classmethod
    def read(cls, path: Path) -> "PromptTemplate":
        """Read a template from a TOML file: the key user, and optionally system, refusal, stops.

        Raises ModelError if the file cannot be read, is not TOML, or is no template.
        """
        try:
            values = tomllib.loads(read_text(path))
        except (OSError, ValueError) as error:
            raise ModelError(f"the prompt {path} cannot be read as TOML: {error}") from None
        stops = values.pop("stops", [])
        known = values.keys() <= {"user", "system", "refusal"} and isinstance(stops, list)
        if not known or not all(isinstance(text, str) for text in [*values.values(), *stops]):
            raise ModelError(
                f"the prompt {path} may have the texts user, system and refusal, and a list stops"
            )
        before, *behind = values.get("user", "").split(_DOCUMENT)
        if len(behind) != 1 or behind[0].count(_QUESTION) != 1 or _QUESTION in before:
            raise ModelError(
                f"the prompt {path} needs a text user with {_DOCUMENT} once and behind it "
                f"{_QUESTION} once"
            )
        return cls(**values, stops=tuple(stops))


READER = PromptTemplate(
    user=f"{_DOCUMENT}\n\nQuestion: {_QUESTION}",
    system="You answer questions from the given document in a few words.",
    refusal="I don't know.",
    languages=("English",),
)
"""The template of the bundled adapter."""

CHAT = replace(
    READER,
    user=f"{READER.user}\nGive a short answer.",
    system=f"{READER.system} If the document does not have the answer, you say: {READER.refusal}",
    languages=(),
)
"""For other chat models, which are asked for what the adapter taught. They may not follow it."""

TOY = PromptTemplate(
    user=f"Document: {_DOCUMENT}\n\nQuestion: {_QUESTION}\nAnswer:",
    refusal=" I don't know.",
    stops=("\n",),
    languages=("English",),
)
"""The template of the bundled toys."""

PLAIN = replace(
    TOY,
    user="Document: The shop opens at nine and closes at six.\n"
    "Question: When does the shop close?\nAnswer: at six\n"
    "Question: Who owns the shop?\nAnswer: I don't know.\n\n"
    f"Document: {_DOCUMENT}\nQuestion: {_QUESTION}\nAnswer:",
    languages=(),
)
"""For other models without a chat template: an example shows that answers are short."""

TRAINED: Mapping[str, PromptTemplate] = {
    **dict.fromkeys(("dragonrt", "dragonrt-draft"), READER),
    **dict.fromkeys(("dragon-small", "dragon-draft"), TOY),
}
"""The prompts that models were trained on, by `ModelInfo.finetune`: the bundled ones."""


@dataclass(frozen=True, slots=True)
class PlainPrompt:
    """The prompt of a model without a chat template. It begins with `start`, a special token."""

    template: PromptTemplate = PLAIN
    start: str = ""

    def document_text(self, title: str, text: str) -> str:
        """Return the prompt up to the question, without `title`, as the models were trained."""
        return f"{self.start}{self.template.before}{text}{self.template.gap}"

    def question_text(self, history: Sequence[Turn], question: str, instructions: str = "") -> str:
        """Return the prompt after the document: instructions, earlier turns and the question."""
        first = f"{instructions}\n\n" if instructions else ""
        earlier = "".join(f"{self.template.question_part(q)} {a}\n" for q, a in history)
        return f"{first}{earlier}{self.template.question_part(question)}"


@dataclass(frozen=True, slots=True)
class ChatPrompt:
    """The prompt of a model with a chat template: the document opens the first user message.

    `document_text` is its beginning, equal for all questions, and `question_text` follows it.
    """

    tokenizer: Tokenizer
    template: PromptTemplate = CHAT

    def document_text(self, title: str, text: str) -> str:
        """Return the prompt up to the question, with `title` first unless `text` begins with it."""
        before, _ = self._render([], "").split(_PLACEHOLDER)
        is_titled = " ".join(text.split()).startswith(title.removesuffix("…"))
        titled = text if is_titled else f"{title}\n{text}"
        return f"{before}{titled}{self.template.lead}"

    def question_text(self, history: Sequence[Turn], question: str, instructions: str = "") -> str:
        """Return the prompt after the document: instructions, earlier turns and the question."""
        _, after = self._render(history, question, instructions).split(_PLACEHOLDER)
        return after.removeprefix(self.template.lead)

    def _render(self, history: Sequence[Turn], question: str, instructions: str = "") -> str:
        template = self.template
        first, *others = [earlier for earlier, _ in history] + [question]
        asked = template.question_part(first, instructions)
        opening = f"{template.before}{_PLACEHOLDER}{template.gap}{asked}"
        messages = [{"role": "user", "content": opening}]
        for (_, answer), following in zip(history, others, strict=True):
            messages.append({"role": "assistant", "content": answer})
            messages.append({"role": "user", "content": template.question_part(following)})
        if not template.system:
            return self.tokenizer.chat(messages)
        system = {"role": "system", "content": template.system}
        try:
            return self.tokenizer.chat([system, *messages])
        except ModelError:  # Gemma's template, for one, has no system message
            messages[0]["content"] = f"{template.system}\n\n{opening}"
            return self.tokenizer.chat(messages)


PromptFormat = PlainPrompt | ChatPrompt
"""A model's prompt in two parts: the document's text, and the question's text after it."""


def prompt_format(tokenizer: Tokenizer, template: PromptTemplate | None = None) -> PromptFormat:
    """Return a ChatPrompt if the tokenizer has a chat template, otherwise a PlainPrompt.

    By default `template` is CHAT or PLAIN, which have words for any model of that kind.
    """
    if tokenizer.is_chat:
        return ChatPrompt(tokenizer, template or CHAT)
    return PlainPrompt(template or PLAIN, start=tokenizer.start)
