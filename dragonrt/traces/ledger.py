"""What left the device in one answer (SPEC 1.10): a fold over its records. Observed, no guarantee.

What the device's documents know leaves it in other ways in each mode:

    dragon        drafts with distributions; or decided tokens alone (`disclose`)
    speculative   drafted tokens, with the distributions that the codec sends; the cloud's text
    federated     drafted tokens, to every worker; the workers' text
    sprinter      the tokens that stand, and one doubtful token a block with its distribution
"""

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

from dragonrt.traces.events import (
    BlockJudged,
    BlockOutrun,
    BlockSent,
    Disclosed,
    QuestionSent,
    Record,
    TokenDecided,
)


@dataclass(slots=True)
class Ledger:
    """Bytes are of text; of `tokens` sent, some went with `distributions`.

    `evidence_bits` and that of each file, in the order of `Answer.passages`, sum over the
    `weighed` tokens: those for which the cloud's distribution was known here. `revealed` is what
    the cloud learned from the tokens that it was told, None where it reads more than these.
    """

    question_bytes: int = 0
    history_bytes: int = 0
    tokens: int = 0
    distributions: int = 0
    withheld: int = 0
    weighed: int = 0
    revealed: float | None = None
    evidence_bits: float = 0.0
    file_bits: list[float] = field(default_factory=list)
    _drafted: list[tuple[int, int]] = field(default_factory=list)
    _decided: dict[int, int] = field(default_factory=dict)
    _refused: int = 0

    @classmethod
    def of(cls, records: Iterable[Record]) -> "Ledger":
        """The ledger of one answer, from the device's records."""
        found = cls()
        for record in records:
            found.take(record)
        return found

    def take(self, record: Record) -> None:
        """The next record; most say nothing of what leaves."""
        match record.event:
            case QuestionSent() as sent:
                self.question_bytes += sent.question
                self.history_bytes += sent.history
                self.tokens += sent.accepted
            case Disclosed() as told:
                self.tokens += 1
                self.distributions += told.distribution
                self._drafted.append((told.step, told.token))
            case BlockSent() as block:
                self.tokens += block.tokens + block.decided
                self.distributions += block.tokens * block.distributions
                self._refused += block.tokens
            case BlockJudged() as judged:
                self._refused -= judged.accepted
            case BlockOutrun() as outrun:
                self._refused -= outrun.tokens
            case TokenDecided() as decided:
                self._decide(decided)
            case _:
                pass

    def _decide(self, decided: TokenDecided) -> None:
        self._decided[decided.step] = decided.token
        self.withheld += decided.withheld
        if decided.revealed is not None:
            self.revealed = (self.revealed or 0.0) + decided.revealed
        if decided.evidence is None:
            return
        self.weighed += 1
        self.evidence_bits += decided.evidence
        for place, bits in enumerate(decided.files):
            if place == len(self.file_bits):
                self.file_bits.append(0.0)
            self.file_bits[place] += bits

    @property
    def unused(self) -> int:
        """Tokens that were drafted and sent, and are not in the answer at their place."""
        dead = sum(self._decided.get(step) != token for step, token in self._drafted)
        return dead + self._refused

    def to_json(self) -> dict[str, Any]:
        """As `--json` and `dragonrt trace --json` tell it; files by their number."""
        known = self.weighed > 0
        return {
            "question_bytes": self.question_bytes,
            "history_bytes": self.history_bytes,
            "tokens_sent": self.tokens,
            "distributions_sent": self.distributions,
            "tokens_not_in_answer": self.unused,
            "tokens_withheld": self.withheld,
            "revealed_bits": None if self.revealed is None else round(self.revealed, 2),
            "evidence_bits": round(self.evidence_bits, 2) if known else None,
            "evidence_of_tokens": self.weighed,
            "evidence_bits_of_files": [round(bits, 2) for bits in self.file_bits],
        }
