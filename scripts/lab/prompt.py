"""The prompts on which pairs of models are trained and measured."""

from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from dragonrt import bundled
from dragonrt.backends.model import LanguageModel
from retrieval.documents import load

TextKind = Literal["answers", "chat", "prose"]


@dataclass(frozen=True, slots=True)
class Prompt:
    """The tokens of a prompt, and the tokens that end its continuation.

    Continuations of kind "answers" and "chat" have `stops`; "prose" ends at a given length.
    """

    kind: TextKind
    tokens: tuple[int, ...]
    stops: tuple[int, ...] = ()

    @property
    def adapted(self) -> bool:
        """Return whether models use their adapters, which answer from documents and do not chat."""
        return self.kind != "chat"


def answer_prompt(model: LanguageModel, text: str) -> Prompt:
    """Return the Prompt of an answer to `text`, which already has the model's form."""
    return Prompt("answers", tuple(model.encode(text)), model.answer_stops)


PROMPT_TOKENS = 64
"""How much of a text is given to be continued."""


def bundled_prompts(model: LanguageModel) -> tuple[Prompt, ...]:
    """Return a model's prompts of the sample questions, and the beginnings of sample documents.

    Each question comes with a document that helps to answer. Questions are repeated until they are
    about as many as documents.
    """
    asked = [
        _document(model, bundled.documents(side) / name)
        + model.prompt.question_text((), question.text)
        for question in bundled.questions()
        for side, name in question.evidence
    ]
    begun = [
        Prompt("prose", tuple(model.encode(_document(model, path))[:PROMPT_TOKENS]))
        for side in ("device", "cloud")
        for path in sorted(bundled.documents(side).iterdir())
    ]
    answers = [answer_prompt(model, text) for text in asked * max(1, len(begun) // len(asked))]
    return (*answers, *begun)


def _document(model: LanguageModel, path: Path) -> str:
    document = load(path)
    return model.prompt.document_text(document.title, document.text)
