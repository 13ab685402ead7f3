"""Texts whose prefixes train a verifier, split into training, validation and test."""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, NamedTuple

import numpy as np

from dragonrt.backends.model import LanguageModel
from dragonrt.errors import TrainingError
from retrieval import DocumentError
from retrieval.documents import SUFFIXES, load

Part = Literal["training", "validation", "test"]
SHARES: dict[Part, float] = {"training": 0.7, "validation": 0.1, "test": 0.2}

PASSAGE = 192
"""Tokens of a passage at most: with a document and a question, about what an answer follows."""
SHORTEST = 16
"""Tokens of a passage at least; a prefix has at least half as many."""
ENOUGH_FILES = 10
"""From so many files on, whole files are held out; of fewer, passages."""

_DOCUMENT = re.compile(r"(?:Document: )?(.*?)\n*(?=^Question: )", re.DOTALL | re.MULTILINE)
_TURN = re.compile(r"^Question: (.*)\nAnswer: ?(.*)$", re.MULTILINE)
_SPLIT_STREAM = 1  # keeps the split apart from other uses of the seed


class CutPassage(NamedTuple):
    """A `prefix`, the `rest` of the original text after it, and whether the rest is an answer."""

    prefix: list[int]
    rest: list[int]
    is_answer: bool


@dataclass(frozen=True, slots=True)
class Passage:
    """A piece of original text; its first `prompt` tokens are a prompt for the others, if not 0."""

    tokens: tuple[int, ...]
    prompt: int = 0

    def cut(self, random: np.random.Generator) -> CutPassage:
        """Cut the passage behind its prompt or, if it has none, at a random place."""
        at = self.prompt or int(random.integers(SHORTEST // 2, len(self.tokens)))
        return CutPassage(list(self.tokens[:at]), list(self.tokens[at:]), self.prompt > 0)


Texts = dict[Part, list[Passage]]


def read_texts(path: Path, model: LanguageModel, seed: int) -> Texts:
    """Return the passages of a file or of all files below a directory, split by part at random.

    A text with questions is read as prompts in the model's form, each with its answer, as a
    verifier sees them at run time. Raises TrainingError if there is too little text.
    """
    groups = [_passages(text, model) for text in read_corpus(path)]
    if len(groups) < ENOUGH_FILES:
        groups = [[passage] for group in groups for passage in group]
    groups = [group for group in groups if group]
    if len(groups) < ENOUGH_FILES:
        raise TrainingError(
            f"{path} holds {len(groups)} passages of at least {SHORTEST} tokens; "
            f"a corpus needs {ENOUGH_FILES} or more"
        )
    return split(groups, seed)


def split(groups: Sequence[list[Passage]], seed: int) -> Texts:
    """Return training, validation and test passages, drawn by `seed`; each group is in one part."""
    order = np.random.default_rng((seed, _SPLIT_STREAM)).permutation(len(groups))
    ends = np.cumsum([round(share * len(groups)) for share in SHARES.values()])
    return {
        part: [passage for number in numbers for passage in groups[number]]
        for part, numbers in zip(SHARES, np.split(order, ends[:-1]), strict=True)
    }


def read_corpus(path: Path) -> list[str]:
    """Return the texts of a file, or of all files below a directory. Raises TrainingError."""
    files = [path]
    if path.is_dir():
        files = sorted(
            file for file in path.rglob("*") if file.is_file() and file.suffix.lower() in SUFFIXES
        )
    elif not path.exists():
        raise TrainingError(f"there is no file or directory {path}")
    texts = []
    for file in files:
        try:
            texts.append(load(file).text)
        except DocumentError as error:
            raise TrainingError(f"{file} {error}") from None
    return texts


def questions(text: str, model: LanguageModel) -> list[tuple[str, str]]:
    """Return (prompt, answer) for each question in `text`; prompts have the model's form.

    The text may begin with `Document:`. Lines of `Question:` and `Answer:` follow.
    """
    turns = _TURN.findall(text)
    document = _DOCUMENT.match(text)
    begun = model.prompt.document_text("", document[1] if document else "")
    return [
        (begun + model.prompt.question_text(turns[:number], question), answer)
        for number, (question, answer) in enumerate(turns)
    ]


def _passages(text: str, model: LanguageModel) -> list[Passage]:
    if asked := questions(text, model):
        return [answered(model, prompt, answer) for prompt, answer in asked]
    tokens = model.encode(text)
    pieces = (tokens[start : start + PASSAGE] for start in range(0, len(tokens), PASSAGE))
    return [Passage(tuple(piece)) for piece in pieces if len(piece) >= SHORTEST]


def answered(model: LanguageModel, asked: str, answer: str) -> Passage:
    """Return a Passage of the prompt `asked` and its answer, ended by the model's stop token."""
    prompt, text = model.encode(asked), answer if model.prompt.template.system else f" {answer}"
    return Passage((*prompt, *model.encode(text), model.answer_stops[-1]), len(prompt))
