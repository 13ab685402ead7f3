"""A sample of an adapter: documents of both sides, and questions about them."""

import json
from dataclasses import dataclass
from typing import NamedTuple

UNKNOWN = "I don't know."

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

    def apart(self) -> list["Reading"]:
        """Return each document alone, with the questions that it is nearest to."""
        return [
            Reading([document], [b for b in self.branches if b.scores[i] == max(b.scores)])
            for i, document in enumerate(self.documents)
        ]
