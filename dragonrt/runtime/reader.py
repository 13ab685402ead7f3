"""What a model says along a text: rows of documents in a KV cache that follows the text's turns."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from dragonrt.language.preemption import Preemption
from dragonrt.language.relevance import aggregate_locally
from dragonrt.language.sequence import Sequence
from dragonrt.runtime.draft import start_hash

REMEMBERED_WEIGHINGS = 8
"""Weighings kept for prefixes that a rollback may come back to."""

LONGEST_RUN = 256
"""Tokens without a prediction that are fed together with others; more are fed by themselves."""

Relevances = NDArray[np.float64]
"""Document relevances [rows], already divided by their temperature."""


@dataclass(frozen=True, slots=True)
class Weighing:
    """The documents' relevances, taken again every `every` tokens (0: never) by `again`.

    They depend on the text alone, never on when they were computed, so rollbacks cannot change
    what is drafted (SPEC section 0).
    """

    initial: Relevances
    every: int = 0
    again: Callable[[list[int]], Relevances] | None = None


@dataclass(frozen=True, slots=True)
class Reading:
    """What the model says after one prefix, row by row.

    `log_probabilities` float32 [rows, vocabulary]; `hidden` float32 [rows, hidden], what the output
    layer read.
    """

    log_probabilities: Tensor
    hidden: Tensor


class Reader:
    """The KV cache of one answer, for the thread that runs the model.

    `sequence` already holds the question, `prompt` is what the model says after it. Texts are
    answers, named by their prefix hashes. With `in_blocks` several tokens are fed in one forward,
    otherwise one by one: not every machine computes the same bits for a block.
    """

    def __init__(
        self,
        sequence: Sequence,
        prompt: Reading,
        weighing: Weighing,
        seed: int,
        *,
        in_blocks: bool,
    ) -> None:
        self._sequence = sequence
        self._prompt = prompt
        self._prompt_length = sequence.length
        self._weighing = weighing
        self._weighed: dict[int, Relevances] = {}
        self._hashes = [start_hash(seed)]  # of the prefixes in the KV cache, and perhaps more
        self.in_blocks = in_blocks

    def read(
        self, tokens: list[int], hashes: list[int], first: int, preemption: Preemption
    ) -> list[Reading]:
        """What the model says after each prefix of `tokens`, from length `first` on.

        `hashes` are those of all prefixes, one more than `tokens`. Raises Preempted.
        """
        keep = self.kept(hashes, first)
        self._sequence.truncate(self._prompt_length + keep)
        self._hashes = list(hashes)
        if self.in_blocks and first - 1 - keep > LONGEST_RUN:
            # An answer is resumed: without this, each of its tokens would give [rows, vocabulary].
            self._sequence.extend_hidden(tokens[keep : first - 1], preemption, every=False)
            keep = first - 1
        after = {0: self._prompt}
        for start, block in self._blocks(tokens, keep):
            rows, hidden = self._sequence.extend_hidden(block, preemption)
            pairs = zip(rows.unbind(dim=1), hidden.unbind(dim=1), strict=True)
            after.update(enumerate((Reading(*pair) for pair in pairs), start=start + 1))
        return [after[length] for length in range(first, len(tokens) + 1)]

    def kept(self, hashes: list[int], first: int) -> int:
        """How many tokens of the text with these hashes `read` would not feed again."""
        length = min(self._sequence.length - self._prompt_length, len(hashes) - 1)
        while self._hashes[length] != hashes[length]:
            length -= 1
        return min(length, max(first - 1, 0))

    def relevances(self, tokens: list[int], step: int) -> Relevances:
        """The documents' relevances after the first `step` of the `tokens` last read."""
        weighing = self._weighing
        length = step - step % weighing.every if weighing.every else 0
        if weighing.again is None or length == 0:
            return weighing.initial
        key = self._hashes[length]
        if key not in self._weighed:
            if len(self._weighed) >= REMEMBERED_WEIGHINGS:
                self._weighed.clear()
            self._weighed[key] = weighing.again(tokens[:length])
        return self._weighed[key]

    def aggregate(
        self, reading: Reading, tokens: list[int], step: int
    ) -> tuple[NDArray[np.float32], float]:
        """The locally aggregated distribution [vocabulary] after `step` tokens, and its h̃."""
        relevances = self.relevances(tokens, step)
        return aggregate_locally(reading.log_probabilities, relevances.tolist())

    def _blocks(self, tokens: list[int], keep: int) -> Iterator[tuple[int, list[int]]]:
        """(start, tokens) of what to feed behind the first `keep`, in one piece or singly."""
        size = max(len(tokens) - keep, 1) if self.in_blocks else 1
        for start in range(keep, len(tokens), size):
            yield start, tokens[start : start + size]
