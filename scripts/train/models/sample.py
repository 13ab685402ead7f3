"""What every generator returns: a text in segments that know their role in training."""

import json
import re
from dataclasses import dataclass
from random import Random
from typing import Literal, NamedTuple

from .values import read_blocks

UNKNOWN = "I don't know."

# document, passage before a continuation, question, answer, running text, end of a sample
Role = Literal["document", "passage", "question", "answer", "text", "end"]
Segment = tuple[str, Role]
Sample = list[Segment]
# What to ask: only what the document answers, only what it does not, or (None) a mixture.
Asking = Literal["answer", "unknown"] | None

_PARAPHRASES = [(re.compile(p), forms) for p, forms in read_blocks("paraphrases.txt").items()]
_LEADS = ("According to the document, ", "According to the note, ", "Please tell me: ",
          "Quick question: ", "One more thing: ", "In the text, ")  # fmt: skip


Turn = tuple[str, str]  # question, answer


class Branch(NamedTuple):
    """A question after earlier turns, and the cosine that retrieval gives each document for it."""

    turns: list[Turn]
    scores: list[float]


@dataclass(frozen=True, slots=True)
class Reading:
    """Documents of both sides, and questions about them that do not see each other."""

    documents: list[str]
    branches: list[Branch]

    @classmethod
    def read(cls, line: str) -> "Reading":
        """Read what `line` wrote."""
        documents, branches = json.loads(line)
        return cls(documents, [Branch(*branch) for branch in branches])

    def line(self) -> str:
        """Return it as a line of JSON."""
        return json.dumps([self.documents, self.branches], ensure_ascii=False)


@dataclass(frozen=True, slots=True)
class Fact:
    """A sentence and the (question, answer) pairs about it.

    `general` questions name nothing of this sentence alone ("When is the meeting?" of no topic)
    and are ambiguous beside another fact of the same kind.
    """

    kind: str
    text: str
    questions: tuple[tuple[str, str], ...]
    general: frozenset[str] = frozenset()


def answering(document: str, turns: list[tuple[str, str]]) -> Sample:
    """The prompt format of the models, with one or more question turns."""
    sample: Sample = [(f"Document: {document}\n\n", "document")]
    for question, answer in turns:
        sample += [(f"Question: {question}\nAnswer:", "question"), (f" {answer}\n", "answer")]
    return sample


def text_of(sample: Sample) -> str:
    """Return the whole text."""
    return "".join(text for text, _ in sample)


def asked(r: Random, question: str) -> str:
    """The question, sometimes in other words or with a few words before it."""
    if r.random() < 0.35:
        question = _paraphrased(r, question)
    if r.random() < 0.80:
        return question
    keeps_case = re.match(r"(I |[A-Z][a-z]+'s)", question)
    low = question if keeps_case else question[0].lower() + question[1:]
    return r.choice([low, question.rstrip("?"), *[lead + low for lead in _LEADS]])


def _paraphrased(r: Random, question: str) -> str:
    for pattern, forms in _PARAPHRASES:
        match = pattern.match(question)
        if match and r.random() < 0.8:
            text = r.choice(forms).format(*[group or "" for group in match.groups()])
            return text[0].upper() + text[1:]
    return question


def token_estimate(text: str) -> int:
    """Words and punctuation marks."""
    return len(re.findall(r"\w+|[^\w\s]", text))
