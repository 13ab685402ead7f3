"""What a model says along a text: the one place that knows its cache, prefixes and rows (SPEC 1).

All of it belongs to the model's thread, or for what is computed of the rows to a thread of heads:
never to the event loop.
"""

import math
import threading
from collections.abc import Callable, Iterator
from collections.abc import Sequence as Tokens
from dataclasses import dataclass
from functools import cached_property
from typing import Self

import numpy as np
from numpy.typing import NDArray

from dragonrt.backends.backend import Preemption, RowLogits
from dragonrt.backends.batch import Reading, read_alone
from dragonrt.backends.sequence import Extension, Sequence

REMEMBERED_WEIGHINGS = 8
"""Weighings kept for prefixes that a rollback may come back to."""

LONGEST_RUN = 256
"""Tokens without a prediction that are fed together with others; more are fed by themselves."""

SUREST = 1 - 1e-6
"""No row is surer than that of not knowing: its weight stays above 0."""

Relevances = NDArray[np.float64]
"""Document relevances [rows], already divided by their temperature."""


@dataclass(frozen=True, slots=True)
class Weighing:
    """The documents' relevances, taken again every `every` tokens (0: never) by `again`.

    They depend on the text alone, never on when they were computed, so rollbacks cannot change
    what is drafted (SPEC section 0). Where the model has words for not knowing, which begin with
    the token `refusal`, `doubt` says how much they count against a row (see `doubts`).
    """

    initial: Relevances
    every: int = 0
    again: Callable[[list[int]], Relevances] | None = None
    refusal: int | None = None
    doubt: float = 0.0

    def doubts(self, rows: RowLogits) -> Relevances:
        """Return what to add to the relevances, from what the rows predict after the prompt.

        A row that is about to say that it does not know is no witness: doubt * log(1 - P(refusal)),
        for the whole answer.
        """
        if self.refusal is None:
            return np.zeros_like(self.initial)
        refused = np.minimum(rows.probability(self.refusal), SUREST)
        found: Relevances = self.doubt * np.log1p(-refused)
        return found


class RowWeights:
    """The weights of one side's rows: the softmax of their relevances (DRAGON Eq. 2).

    Made once for all the steps that they hold for. `weights` are ω̃, float64 [rows]; `logs` are
    their logarithms, float32; `relevance` is h̃ = logsumexp(relevances), by which the other side
    weighs this one.
    """

    def __init__(self, relevances: Tokens[float] | Relevances) -> None:
        """One number per row, already divided by the temperature."""
        found = np.asarray(relevances, dtype=np.float64)
        scores = found.tolist()
        self.relevance = log_sum_exp(scores)
        self.weights: NDArray[np.float64] = np.exp(found - found.max())
        self.weights /= self.weights.sum()
        self.logs = np.array([score - self.relevance for score in scores], np.float32)


def log_sum_exp(relevances: Tokens[float]) -> float:
    """Return h = log Σ exp(relevance), by which a side's distribution is weighed."""
    highest = max(relevances)
    return highest + math.log(sum(math.exp(score - highest) for score in relevances))


class Mixture:
    """What a side predicts after one prefix: its rows, mixed by relevance (DRAGON Eq. 2).

    Nothing is computed before it is asked for, and nothing twice.
    """

    def __init__(self, rows: RowLogits, weigh: Callable[[], RowWeights]) -> None:
        """`weigh` gives the weights of the rows after the prefix."""
        self._rows = rows
        self._weigh = weigh

    @cached_property
    def p(self) -> NDArray[np.float32]:
        """The locally aggregated distribution [vocabulary], before any sampler.

        It sums to 1 up to float32's rounding; a codec makes the sum exact.
        """
        return self._rows.mixed(self._weighed.logs)

    @property
    def relevance(self) -> float:
        """h̃, by which the other side weighs this one."""
        return self._weighed.relevance

    @cached_property
    def hidden(self) -> NDArray[np.float32]:
        """What the output layer read [hidden], the rows weighed like their distributions."""
        hidden: NDArray[np.float32] = (self.weights @ self._rows.hidden()).astype(np.float32)
        return hidden

    @property
    def weights(self) -> NDArray[np.float64]:
        """ω̃, the weight of each row [rows]."""
        return self._weighed.weights

    def shares(self, tokens: NDArray[np.int64]) -> NDArray[np.float64]:
        """Return what each row gives to the probabilities of these tokens [rows, tokens]."""
        p = np.exp(self._rows.at(tokens).astype(np.float64))
        shares: NDArray[np.float64] = p * self.weights[:, None]
        return shares

    @cached_property
    def _weighed(self) -> RowWeights:
        return self._weigh()


class Reader:
    """The KV cache of one text, for the thread that runs the model.

    Texts go on from a prompt and are named by the hashes of their prefixes. With `in_blocks`
    several tokens are fed in one forward, otherwise one by one: not every machine computes the
    same bits for a block.
    """

    def __init__(
        self,
        rows: Sequence,
        last: int,
        prompt: RowLogits | None,
        weighing: Weighing,
        doubts: Relevances,
        start: int,
        *,
        in_blocks: bool,
    ) -> None:
        """`rows` have read the prompt, whose `last` token this is; `prompt` is what follows it.

        `doubts` are what the weighing makes of that; `start` is the empty text.
        """
        self._rows = rows
        self._last = last
        self._prompt_length = rows.length
        self._weighing = weighing
        self._doubts = doubts
        self._initial = RowWeights(weighing.initial + doubts)
        self._weighed: dict[int, RowWeights] = {}
        self._weighing_lock = threading.Lock()
        self._hashes = [start]  # of the prefixes in the KV cache, and perhaps more
        self._prompt = prompt
        self.in_blocks = in_blocks

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
        """A reader of texts behind `prompt`, which `rows` read now; all alike without `weighing`.

        Raises:
            ModelError: see `Sequence.extend`.
        """
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
        """Like `behind`, in forwards that may be shared; Preempted is raised if requested."""
        said = yield Extension(rows, prompt, False, preemption or Preemption(), prompt=True)
        weighing, after = weighing or Weighing(np.zeros(rows.rows)), said[0].copy()
        doubts = weighing.doubts(after)
        return cls(rows, prompt[-1], after, weighing, doubts, start, in_blocks=in_blocks)

    def fork(self) -> "Reader":
        """A reader of another text behind the same prompt, which goes its own way from here."""
        other = Reader(
            self._rows.fork(),
            self._last,
            None,
            self._weighing,
            self._doubts,
            self._hashes[0],
            in_blocks=self.in_blocks,
        )
        other._prompt_length, other._hashes = self._prompt_length, list(self._hashes)
        return other

    @property
    def context(self) -> int:
        """The tokens before the texts, of the longest row: its document and the prompt."""
        return self._rows.longest_document + self._prompt_length

    @property
    def relevance(self) -> float:
        """h̃ of the documents as they were found."""
        return self._initial.relevance

    def read(
        self, tokens: Tokens[int], hashes: Tokens[int], first: int, preemption: Preemption
    ) -> list[Mixture]:
        """What the model says after each prefix of `tokens`, from length `first` on.

        `hashes` are those of all prefixes, one more than `tokens`. Raises Preempted.
        """
        return read_alone(self.reading(tokens, hashes, first, preemption))

    def reading(
        self, tokens: Tokens[int], hashes: Tokens[int], first: int, preemption: Preemption
    ) -> Reading[list[Mixture]]:
        """Like `read`, in forwards that may be shared. One at a time."""
        tokens, hashes = list(tokens), list(hashes)
        if self._rows.length < self._prompt_length or (first == 0 and self._prompt is None):
            self._rows.truncate(self._prompt_length - 1)
            said = yield Extension(self._rows, [self._last], False, preemption, prompt=True)
            self._prompt = said[0].copy()
        keep = self.kept(hashes, first)
        self._rows.truncate(self._prompt_length + keep)
        self._hashes = hashes
        if self.in_blocks and first - 1 - keep > LONGEST_RUN:
            # An answer is resumed: without this, each of its tokens would give [rows, vocabulary].
            yield Extension(self._rows, tokens[keep : first - 1], False, preemption)
            keep = first - 1
        after = {} if self._prompt is None else {0: self._prompt}
        for start, block in self._blocks(tokens, keep):
            said = yield Extension(self._rows, block, True, preemption)
            after.update(enumerate(said, start + 1))
        if first:  # where answers go on; [rows, vocabulary] is much to keep for who begins again
            self._prompt = None
        return [
            self._mixture(after[length], tokens, hashes, length)
            for length in range(first, len(tokens) + 1)
        ]

    def kept(self, hashes: Tokens[int], first: int) -> int:
        """How many tokens of the text with these hashes `read` would not feed again."""
        length = max(0, min(self._rows.length - self._prompt_length, len(hashes) - 1))
        while self._hashes[length] != hashes[length]:
            length -= 1
        return min(length, max(first - 1, 0))

    def _mixture(self, rows: RowLogits, tokens: list[int], hashes: list[int], step: int) -> Mixture:
        """What `rows` say after `step` tokens, weighed as the text up to there asks for."""
        weighing = self._weighing
        again = weighing.again
        length = step - step % weighing.every if weighing.every else 0
        if again is None or length == 0:
            return Mixture(rows, lambda: self._initial)
        return Mixture(rows, lambda: self._weigh_again(again, tokens[:length], hashes[length]))

    def _weigh_again(
        self, again: Callable[[list[int]], Relevances], tokens: list[int], key: int
    ) -> RowWeights:
        with self._weighing_lock:
            if key not in self._weighed:
                if len(self._weighed) >= REMEMBERED_WEIGHINGS:
                    self._weighed.clear()
                self._weighed[key] = RowWeights(again(tokens) + self._doubts)
            return self._weighed[key]

    def _blocks(self, tokens: list[int], keep: int) -> Iterator[tuple[int, list[int]]]:
        """(start, tokens) of what to feed behind the first `keep`, in one piece or singly."""
        size = max(len(tokens) - keep, 1) if self.in_blocks else 1
        for start in range(keep, len(tokens), size):
            yield start, tokens[start : start + size]
