"""Samples of an adapter as rows of tokens: the chat prompt, and which token sees which."""

import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from transformers import PreTrainedTokenizerBase

from .sample import Reading

SYSTEM = "You answer questions from the given document in a few words."


@dataclass(frozen=True, slots=True)
class Encoded:
    """One row; the document's tokens are of branch 0.

    A target is the position before it, its token, and whether it is an answer's first.
    """

    tokens: list[int]
    positions: list[int]
    branches: list[int]
    targets: list[tuple[int, int, bool]]


class Encoder:
    """Renders readings in the chat prompt."""

    def __init__(self, tokenizer: PreTrainedTokenizerBase, longest: int = 900) -> None:
        self._tokenizer = tokenizer
        self._longest = longest

    def _ids(self, text: str) -> list[int]:
        return list(self._tokenizer(text, add_special_tokens=False).input_ids)

    def encoded(self, reading: Reading) -> Encoded | None:
        """One row of a reading; what does not fit is left out, None if nothing is left."""
        head = f"<|im_start|>system\n{SYSTEM}<|im_end|>\n<|im_start|>user\n{reading.document}"
        tokens = self._ids(head)
        begin = len(tokens)
        positions, branches = list(range(begin)), [0] * begin
        targets: list[tuple[int, int, bool]] = []
        for number, turns in enumerate(reading.branches, 1):
            own: list[int] = []
            for i, (question, answer) in enumerate(turns):
                before = "\n<|im_start|>user\n" if i else "\n\n"
                own += self._ids(
                    f"{before}Question: {question}\nGive a short answer.<|im_end|>\n"
                    "<|im_start|>assistant\n"
                )
                said = self._ids(f"{answer}<|im_end|>")
                at = len(tokens) + len(own) - 1
                targets += [(at + j, token, j == 0) for j, token in enumerate(said)]
                own += said
            own.pop()
            if len(tokens) + len(own) > self._longest:
                targets = [t for t in targets if t[0] < len(tokens)]
                break
            positions += range(begin, begin + len(own))
            branches += [number] * len(own)
            tokens += own
        return Encoded(tokens, positions, branches, targets) if targets else None


def read_samples(path: Path) -> Iterator[Reading]:
    """The readings of a file."""
    with path.open(encoding="utf-8") as lines:
        for line in lines:
            document, branches = json.loads(line)
            yield Reading(document, [[(q, a) for q, a in turns] for turns in branches])
