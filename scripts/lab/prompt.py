"""The prompts that pairs of models are trained and measured on."""

from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from dragonrt import bundled
from dragonrt.backends.model import LanguageModel
from retrieval.documents import load

TextKind = Literal["answers", "chat", "prose"]


@dataclass(frozen=True, slots=True)
class Prompt:
    """The tokens that a text goes on from, and the tokens that end it.

    Answers and chat end where a model says so, prose never: it has a length.
    """

    kind: TextKind
    tokens: tuple[int, ...]
    stops: tuple[int, ...] = ()

    @property
    def adapted(self) -> bool:
        """Return whether models run with their adapters, which answer from documents only."""
        return self.kind != "chat"


def answer_prompt(model: LanguageModel, text: str) -> Prompt:
    """Return the prompt of an answer."""
    return Prompt("answers", tuple(model.encode(text)), model.answer_stops)


PROMPT_TOKENS = 64
"""How much of a text is given to be continued."""


def bundled_prompts(model: LanguageModel) -> tuple[Prompt, ...]:
    """The sample questions, each with a document that helps, and the sample documents' beginnings.

    In the form that the model is asked in. There are about as many of either kind: the questions
    come several times.
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
