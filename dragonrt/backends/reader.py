"""A model's predictions along a text: with its cache, prefixes and rows (SPEC 1)."""

import math
import threading
from collections.abc import Callable
from collections.abc import Sequence as Tokens
from dataclasses import dataclass
from functools import cached_property, partial
from typing import Self

import numpy as np
from numpy.typing import NDArray

from dragonrt.backends.backend import Preemption, RowLogits
from dragonrt.backends.sequence import Extension, Reading, Sequence, read_alone

REMEMBERED_WEIGHINGS = 8
"""Weights kept for prefixes, in case of a rollback."""

LONGEST_RUN = 16
"""The most tokens without a prediction that are read as part of an answer's block."""

SUREST = 1 - 1e-6
"""The largest probability of a refusal: keeps a row's weight above 0."""

Relevances = NDArray[np.float64]
"""Document relevances [rows], already divided by their temperature."""


@dataclass(frozen=True, slots=True)
class Weighing:
    """The documents' relevances, recomputed by `again` after every `every` tokens (0: never).

    They depend only on the text, so rollbacks cannot change drafts (SPEC section 0). `refusal` is
    the first token of the model's refusal, if known; `doubt` is its weight against a row.
    """

    initial: Relevances
    every: int = 0
    again: Callable[[list[int]], Relevances] | None = None
    refusal: int | None = None
    doubt: float = 0.0

    def doubts(self, rows: RowLogits) -> Relevances:
        """Return the change of relevances by the prompt's logits: doubt * log(1 - P(refusal))."""
        if self.refusal is None:
            return np.zeros_like(self.initial)
        refused = np.minimum(rows.probability(self.refusal), SUREST)
        found: Relevances = self.doubt * np.log1p(-refused)
        return found


class RowWeights:
    """The weights of one side's rows: the softmax of their relevances (DRAGON Eq. 2).

    `weights` are ω̃, float64 [rows]; `logs` are their logarithms, float32; `relevance` is
    h̃ = logsumexp(relevances), by which the other side weighs this one.
    """

    def __init__(self, relevances: Tokens[float] | Relevances) -> None:
        found = np.asarray(relevances, dtype=np.float64)
        scores = found.tolist()
        highest: float = max(scores)
        self.relevance: float = highest + math.log(
            sum(math.exp(score - highest) for score in scores)
        )
        self.weights: NDArray[np.float64] = np.exp(found - found.max())
        self.weights /= self.weights.sum()
        self.logs = np.array([score - self.relevance for score in scores], np.float32)


class Mixture:
    """A side's prediction after one prefix: its rows, mixed by relevance (DRAGON Eq. 2).

    Values are computed at first use, once.
    """

    def __init__(self, rows: RowLogits, weigh: Callable[[], RowWeights]) -> None:
        """`weigh` returns the weights of the rows after the prefix."""
        self._rows = rows
        self._weigh = weigh

    @cached_property
    def p(self) -> NDArray[np.float32]:
        """Return the locally aggregated distribution [vocabulary], before any sampler.

        It sums to 1 up to float32's rounding; a codec makes the sum exact.
        """
        return self._rows.mixed(self._weighed.logs)

    @property
    def relevance(self) -> float:
        """Return h̃, by which the other side weighs this one."""
        return self._weighed.relevance

    @cached_property
    def hidden(self) -> NDArray[np.float32]:
        """Return the input of the output layer [hidden], mixed with the rows' weights."""
        hidden: NDArray[np.float32] = (self.weights @ self._rows.hidden()).astype(np.float32)
        return hidden

    @property
    def weights(self) -> NDArray[np.float64]:
        """Return ω̃, the weight of each row [rows]."""
        return self._weighed.weights

    def shares(self, tokens: NDArray[np.int64]) -> NDArray[np.float64]:
        """Return each row's part of the probabilities of these tokens [rows, tokens]."""
        p = np.exp(self._rows.at(tokens).astype(np.float64))
        shares: NDArray[np.float64] = p * self.weights[:, None]
        return shares

    @cached_property
    def _weighed(self) -> RowWeights:
        return self._weigh()


class Reader:
    """The KV cache of one text, for the thread that runs the model.

    Texts continue a prompt and are named by the hashes of their prefixes. If `in_blocks`, several
    tokens are fed in one forward, otherwise one: some machines compute other bits for a block.
    """

    def __init__(
        self,
        rows: Sequence,
        last: int,
        prompt: RowLogits,
        weighing: Weighing,
        start: int,
        *,
        in_blocks: bool,
    ) -> None:
        """`prompt` is what `rows` predict after it, `last` its last token, `start` the empty text.

        See `reading_prompt`.
        """
        self.in_blocks = in_blocks
        self._rows, self._prompt_length = rows, rows.length
        self._last = last
        self._prompt: RowLogits | None = prompt
        self._weighing, self._doubts = weighing, weighing.doubts(prompt)
        self._initial = RowWeights(weighing.initial + self._doubts)
        self._weighed: dict[int, RowWeights] = {}
        self._weighing_lock = threading.Lock()
        self._hashes = [start]  # of the prefixes in the KV cache, and perhaps more

    @classmethod
    def behind(
        cls,
        rows: Sequence,
        prompt: Tokens[int],
        start: int,
        weighing: Weighing | None = None,
        *,
        in_blocks: bool = True,
    ) -> Self:
        """Return the reader of `reading_prompt`. Raises like `Sequence.extend`."""
        return read_alone(cls.reading_prompt(rows, prompt, start, weighing, in_blocks=in_blocks))

    @classmethod
    def reading_prompt(
        cls,
        rows: Sequence,
        prompt: Tokens[int],
        start: int,
        weighing: Weighing | None = None,
        *,
        in_blocks: bool = True,
        preemption: Preemption | None = None,
    ) -> Reading[Self]:
        """Read a prompt; return the reader after it. Without `weighing` rows weigh the same."""
        after = yield Extension(rows, prompt, False, preemption or Preemption(), prompt=True)
        weighing = weighing or Weighing(np.zeros(rows.rows))
        return cls(rows, prompt[-1], after[0].copy(), weighing, start, in_blocks=in_blocks)

    @property
    def context(self) -> int:
        """Return the tokens before the texts, of the longest row: its document and the prompt."""
        return self._rows.longest_document + self._prompt_length

    @property
    def relevance(self) -> float:
        """Return h̃ of the documents as retrieved."""
        return self._initial.relevance

    def read(
        self, tokens: Tokens[int], hashes: Tokens[int], first: int, preemption: Preemption
    ) -> list[Mixture]:
        """Return the predictions after each prefix of `tokens`, from length `first` on.

        `hashes` are those of all prefixes, one more than `tokens`. Raises Preempted.
        """
        return read_alone(self.reading(tokens, hashes, first, preemption))

    def reading(
        self, tokens: Tokens[int], hashes: Tokens[int], first: int, preemption: Preemption
    ) -> Reading[list[Mixture]]:
        """Return `read` as a reading, whose forwards may be shared. One at a time."""
        tokens, hashes = list(tokens), list(hashes)
        if self._rows.length < self._prompt_length or (first == 0 and self._prompt is None):
            self._rows.truncate(self._prompt_length - 1)
            logits = yield Extension(self._rows, [self._last], False, preemption, prompt=True)
            self._prompt = logits[0].copy()
        keep = self.kept(hashes, first)
        self._rows.truncate(self._prompt_length + keep)
        self._hashes = hashes
        if self.in_blocks and first - 1 - keep > LONGEST_RUN:
            # An answer is resumed: its text takes turns, and gives no [rows, vocabulary] per token.
            yield Extension(self._rows, tokens[keep : first - 1], False, preemption)
            keep = first - 1
        after = {} if self._prompt is None else {0: self._prompt}
        size = max(len(tokens) - keep, 1) if self.in_blocks else 1
        for start in range(keep, len(tokens), size):
            logits = yield Extension(self._rows, tokens[start : start + size], True, preemption)
            after.update(enumerate(logits, start + 1))
        if first:  # [rows, vocabulary] is large, and needed only to start over
            self._prompt = None
        return [
            Mixture(after[length], partial(self._weigh, tokens, hashes, length))
            for length in range(first, len(tokens) + 1)
        ]

    def kept(self, hashes: Tokens[int], first: int) -> int:
        """Return how many tokens of the text with these hashes `read` need not feed again."""
        length = max(0, min(self._rows.length - self._prompt_length, len(hashes) - 1))
        while self._hashes[length] != hashes[length]:
            length -= 1
        return min(length, max(first - 1, 0))

    def _weigh(self, tokens: list[int], hashes: list[int], step: int) -> RowWeights:
        """Return the weights of the rows after `step` tokens."""
        again, every = self._weighing.again, self._weighing.every
        length = step - step % every if every else 0
        if again is None or length == 0:
            return self._initial
        with self._weighing_lock:
            if hashes[length] not in self._weighed:
                if len(self._weighed) >= REMEMBERED_WEIGHINGS:
                    self._weighed.clear()
                relevances = again(tokens[:length]) + self._doubts
                self._weighed[hashes[length]] = RowWeights(relevances)
            return self._weighed[hashes[length]]


class LateReader:
    """A reader that reads its prompt when it is first asked for predictions."""

    def __init__(self, prefill: Callable[[Preemption], Reading[Reader]]) -> None:
        self._prefill = prefill
        self._reader: Reader | None = None

    def reading(
        self, tokens: Tokens[int], hashes: Tokens[int], first: int, preemption: Preemption
    ) -> Reading[list[Mixture]]:
        """Return the reading of `Reader.reading`."""
        if self._reader is None:
            self._reader = yield from self._prefill(preemption)
        return (yield from self._reader.reading(tokens, hashes, first, preemption))
