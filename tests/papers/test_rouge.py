"""ROUGE-n, by hand."""

import pytest

from scripts.papers.rouge import rouge_l, rouge_n


def test_common_bigrams_count_as_often_as_both_texts_have_them() -> None:
    # ours: a-b b-a a-b; theirs: a-b b-c: one in common.
    assert rouge_n("a b a b", "a b c", 2) == pytest.approx(2 * 1 / (3 + 2))


def test_the_longest_common_subsequence_may_have_gaps() -> None:
    # b and d are in both, in this order: of 4 and of 3 words.
    assert rouge_l("a b c d", "b x d") == pytest.approx(2 * 2 / (4 + 3))
    assert rouge_l("d b", "b x d") == pytest.approx(2 * 1 / (2 + 3))
    assert rouge_l("a a b", "a b b") == pytest.approx(2 * 2 / (3 + 3))
    assert rouge_l("Press green", "press GREEN!") == 1.0
    assert rouge_l("", "") == 0.0
