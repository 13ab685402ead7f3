"""How a document and a question become the text a model reads.

The document comes first and its text does not depend on the question, so its keys and values can be
computed when it is indexed; everything else is the question part, shared by all rows.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal, Protocol

Turn = tuple[str, str]  # an earlier question and its answer
TextKind = Literal["answers", "prose"]


@dataclass(frozen=True, slots=True)
class Prompt:
    """What a text goes on from, as tokens, and the tokens that end it.

    Answers end where a model says so, prose never: it has a length.
    """

    kind: TextKind
    tokens: tuple[int, ...]
    stops: tuple[int, ...] = ()


# Stands for the document while a chat template is rendered; no template contains it.
_PLACEHOLDER = "\u241edocument\u241e"


class PromptFormat(Protocol):
    """A model's prompt, cut in two. `stops` end an answer, beside the model's stop tokens."""

    @property
    def stops(self) -> tuple[str, ...]:
        """Strings that end an answer."""

    @property
    def refusal(self) -> str:
        """What the model answers if the document has no answer; empty if that is not known."""

    def document_text(self, title: str, text: str) -> str:
        """What precedes the question."""

    def question_text(self, history: Sequence[Turn], question: str, instructions: str = "") -> str:
        """Earlier questions with their answers, then this one, up to where the answer begins.

        Before them all the `instructions`, if there are any.
        """


@dataclass(frozen=True, slots=True)
class PlainPrompt:
    """`Document: ... Question: ... Answer:`, the form the bundled models were trained on.

    `start` is the text of the model's first token, if it expects one.
    """

    start: str = ""
    stops: tuple[str, ...] = ("\n",)
    refusal: str = " I don't know."

    def document_text(self, title: str, text: str) -> str:
        """The document without its title, for the bundled models never saw one."""
        return f"{self.start}Document: {text}\n\n"

    def question_text(self, history: Sequence[Turn], question: str, instructions: str = "") -> str:
        """One line per question and answer."""
        before = f"{instructions}\n\n" if instructions else ""
        earlier = "".join(f"Question: {q}\nAnswer: {a}\n" for q, a in history)
        return f"{before}{earlier}Question: {question}\nAnswer:"


@dataclass(frozen=True, slots=True)
class ChatPrompt:
    """The prompt of a model with a chat template: the document opens the first user message."""

    tokenizer: Any
    stops: tuple[str, ...] = ()
    refusal: str = ""

    def document_text(self, title: str, text: str) -> str:
        """The template up to and including the document."""
        before, _ = self._render([], "").split(_PLACEHOLDER)
        heading = f"{title}\n" if title else ""
        return f"{before}Document: {heading}{text}"

    def question_text(self, history: Sequence[Turn], question: str, instructions: str = "") -> str:
        """The template behind the document, up to where the answer begins."""
        _, after = self._render(history, question, instructions).split(_PLACEHOLDER)
        return after

    def _render(self, history: Sequence[Turn], question: str, instructions: str = "") -> str:
        questions = [earlier for earlier, _ in history] + [question]
        parts = ("Answer from the document.", *([instructions] if instructions else []))
        questions[0] = "\n\n".join((_PLACEHOLDER, *parts, questions[0]))
        messages = [{"role": "user", "content": questions[0]}]
        for (_, answer), following in zip(history, questions[1:], strict=True):
            messages.append({"role": "assistant", "content": answer})
            messages.append({"role": "user", "content": following})
        rendered: str = self.tokenizer.apply_chat_template(
            messages, tokenize=False, add_generation_prompt=True
        )
        return rendered


def prompt_format(tokenizer: Any) -> PromptFormat:
    """The chat format if the tokenizer has a chat template, else the plain one."""
    if tokenizer.chat_template:
        return ChatPrompt(tokenizer)
    starts = tokenizer.bos_token_id is not None and tokenizer.bos_token_id in tokenizer.encode("")
    return PlainPrompt(start=tokenizer.bos_token if starts else "")
