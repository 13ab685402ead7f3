"""Evidence of documents and files, against the mixture computed again without them."""

import math

import numpy as np
import pytest

from dragonrt.distributions import Distribution
from dragonrt.privacy.evidence import MOST_BITS, RowShares, evidence_bits, likely
from dragonrt.sampling.rules import side_weights


class Rows:
    """A prediction: the rows' distributions, weighed by relevance."""

    def __init__(self, rows: list[list[float]], relevances: list[float]) -> None:
        self._rows = np.array(rows)
        self.weights = np.exp(relevances) / np.exp(relevances).sum()
        self.relevance = math.log(np.exp(relevances).sum())
        self.p = self.weights @ self._rows

    def shares(self, files: list[int], token: int) -> RowShares:
        tokens = likely(Distribution.from_dense(self.p), token)
        return RowShares(files, tokens, self.weights, self.weights[:, None] * self._rows[:, tokens])


ROWS = [[0.7, 0.2, 0.1], [0.1, 0.8, 0.1], [0.3, 0.3, 0.4]]
RELEVANCES = [1.0, 0.5, -0.5]
FILES = [0, 1, 0]
CLOUD, H_CLOUD = np.array([0.05, 0.05, 0.9]), 0.2


@pytest.mark.parametrize("token", range(3))
def test_a_files_evidence_is_that_of_the_answer_without_it(token: int) -> None:
    said = Rows(ROWS, RELEVANCES)
    shares = said.shares(FILES, token)
    assert shares.carrier(token) == [0, 1, 0][token]
    eta = side_weights(said.relevance, H_CLOUD)
    p = eta[0] * said.p[token] + eta[1] * CLOUD[token]
    found = shares.without_each(token, eta[0], float(CLOUD[token]))
    for file, bits in enumerate(found):
        kept = [row for row, own in enumerate(FILES) if own != file]
        rest = Rows([ROWS[row] for row in kept], [RELEVANCES[row] for row in kept])
        without = side_weights(rest.relevance, H_CLOUD)
        q = without[0] * rest.p[token] + without[1] * CLOUD[token]
        assert bits == pytest.approx(math.log2(p / q), abs=1e-5)


def test_what_no_file_said_counts_for_none_and_a_cut_off_probability_is_bounded() -> None:
    said = Rows([[1.0, 0.0, 0.0]], [0.0])
    shares = said.shares([0], 0)
    (bits,) = shares.without_each(2, 0.5, 0.9)
    assert bits == pytest.approx(-1.0), "without it the token would have been twice as likely"
    assert shares.without_each(0, 0.5, 0.0) == (MOST_BITS,)
    shares = said.shares([], 0)
    assert shares.without_each(0, 0.5, 0.1) == ()
    assert evidence_bits(0.8, 0.1) == pytest.approx(3.0)
    assert evidence_bits(0.8, 0.0) == evidence_bits(0.8, 1e-30) == MOST_BITS
    assert evidence_bits(1e-30, 0.8) == -MOST_BITS
    assert evidence_bits(0.0, 0.0) == 0.0
