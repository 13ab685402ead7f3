"""Mix the distributions of one side's rows, weighted by the relevance of their documents."""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from dragonrt.backends.agreement import BEFORE, LOST, NUMBER, Agreement, ValueState
from dragonrt.backends.backend import RowLogits

SUREST = 1 - 1e-6
"""The largest probability of a refusal: keeps a row's weight above 0."""

LEAST_SAID = 1e-4
"""A row that lost its weight says no token with a smaller probability, times its weight."""

Relevances = NDArray[np.float64]
"""Document relevances [rows], already divided by their temperature."""


@dataclass(frozen=True, slots=True)
class Weighing:
    """The relevances of one side's documents to the question, and how they change in an answer.

    `initial` has a relevance per row. After every `every` tokens of the answer (0: never),
    `again(tokens)` replaces it, given all tokens so far and nothing else, so rollbacks change no
    draft. `refusal` is the id of the first token of the model's refusal to answer, if known; each
    row's relevance then gains `doubt` times log(1 - P(refusal)) (SPEC 1).
    """

    initial: Relevances
    every: int = 0
    again: Callable[[list[int]], Relevances] | None = None
    refusal: int | None = None
    doubt: float = 0.0

    def doubts(self, rows: RowLogits) -> Relevances:
        """Return what to add to each row's relevance: `doubt` · log(1 - P(refusal)), at most 0.

        P is what `rows`, the distributions after the prompt, give the first token of a refusal.
        """
        if self.refusal is None:
            return np.zeros_like(self.initial)
        refused = np.minimum(rows.probability(self.refusal), SUREST)
        found: Relevances = self.doubt * np.log1p(-refused)
        return found


class RowWeights:
    """The weights of one side's rows: the softmax of their relevances (DRAGON Eq. 2).

    `weights` (ω̃) are float64 [rows], of sum 1, and `logs` their logarithms, float32. `relevance`
    is h̃ = logsumexp(relevances), by which a side's own weight in the two sides' mixture is set.
    """

    def __init__(self, relevances: Sequence[float] | Relevances) -> None:
        found = np.asarray(relevances, dtype=np.float64)
        scores = found.tolist()
        highest: float = max(scores)
        self.relevance: float = highest + math.log(
            sum(math.exp(score - highest) for score in scores)
        )
        self.weights: NDArray[np.float64] = np.exp(found - found.max())
        self.weights /= self.weights.sum()
        self.logs = np.array([score - self.relevance for score in scores], np.float32)


@dataclass(eq=False)
class Mixture:
    """A side's prediction after one prefix: its rows, mixed by relevance (DRAGON Eq. 2).

    `rows` are the distributions, and `weigh()` returns their weights when a property needs them.
    Rows that disagree with the number or name at the prefix's end, as `state` says, lose theirs.
    """

    rows: RowLogits
    weigh: Callable[[], RowWeights]
    state: ValueState = BEFORE
    agreement: Agreement | None = None

    @property
    def p(self) -> NDArray[np.float32]:
        """Return the mixture of this side's rows [vocabulary], before any sampler (sum about 1)."""
        return self._mixed[0]

    @cached_property
    def relevance(self) -> float:
        """Return h̃, the log-sum-exp of the documents' relevances; it sets this side's weight."""
        return self._weighed.relevance

    @property
    def kept(self) -> float:
        """Return κ, the log of the share that this side keeps of its weight in the two sides' mix.

        It is below 0 only if some rows disagree with the number or name that the prefix ends in.
        """
        return self._mixed[1]

    @cached_property
    def hidden(self) -> NDArray[np.float32]:
        """Return the rows' hidden states (the output layer's input), summed by weight: [hidden]."""
        hidden: NDArray[np.float32] = (self.weights @ self.rows.hidden()).astype(np.float32)
        return hidden

    @cached_property
    def weights(self) -> NDArray[np.float64]:
        """Return ω̃, the weight of each row [rows]: its share of p."""
        weights = self._weighed.weights
        if not self.state.lost:
            return weights
        parts = np.exp(self.rows.log_probabilities(self._said).astype(np.float64)).sum(axis=1)
        parts = np.where(self._lost, math.exp(-LOST) + parts, 1.0) * weights
        found: NDArray[np.float64] = parts / parts.sum()
        return found

    def shares(self, tokens: NDArray[np.int64]) -> NDArray[np.float64]:
        """Return what each row contributes to `p` of each token id: [rows, len(tokens)]."""
        p = np.exp(self.rows.log_probabilities(tokens).astype(np.float64))
        shares: NDArray[np.float64] = p * self._weighed.weights[:, None]
        if self.state.lost:
            said = np.isin(tokens, self._said)
            shares[self._lost] *= np.where(said, 1.0, math.exp(-LOST))
            shares /= math.exp(self.kept)
        return shares

    @cached_property
    def _weighed(self) -> RowWeights:
        return self.weigh()

    @cached_property
    def _lost(self) -> NDArray[np.bool_]:
        return self.state.rows(len(self._weighed.logs))

    @cached_property
    def _mixed(self) -> tuple[NDArray[np.float32], float]:
        """Return p, and the logarithm of what it summed to before it was normalised."""
        logs = self._weighed.logs
        if not self.state.lost:
            return self.rows.mixed(logs), 0.0
        p = self.rows.mixed(logs - np.float32(LOST) * self._lost.astype(np.float32)).copy()
        p[self._said] += self._of_lost[self._said]
        kept = float(p.sum(dtype=np.float64))
        p /= np.float32(kept)
        return p, min(0.0, math.log(kept))

    @cached_property
    def _of_lost(self) -> NDArray[np.float32]:
        """Return what the rows that lost would add to p."""
        logs = np.where(self._lost, self._weighed.logs, np.float32(-np.inf))
        return self.rows.mixed(logs.astype(np.float32))

    @cached_property
    def _said(self) -> NDArray[np.int64]:
        """Return the tokens that the rows that lost may still say."""
        if self.state.phase == NUMBER or self.agreement is None:
            return np.empty(0, np.int64)
        tokens = np.flatnonzero(self._of_lost >= LEAST_SAID)
        return tokens[self.agreement.are_words(tokens)]
