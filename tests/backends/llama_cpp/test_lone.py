"""Which tokens of a batch llama.cpp computes alone."""

import pytest

from dragonrt.backends.llama_cpp.lone import lone_places


@pytest.mark.parametrize(
    ("sequences", "alone"),
    [
        ([], []),
        ([3], [0]),
        ([3, 3], []),
        ([3, 4], []),
        ([3, 5], [0, 1]),
        ([4, 3], [0, 1]),
        ([0, 1, 0], [2]),
        ([0, 1, 0, 0], []),
        ([0, 0, 1, 1, 1], [4]),
        ([0, 1, 2, 0, 2], [3, 4]),
        ([0, 1, 2, 0, 1, 0], [5]),
        ([7, 0, 1, 0, 1], [0]),
        ([3, 5, 4, 5], [3]),
    ],
    ids=str,
)
def test_lone_tokens_of_a_batch(sequences: list[int], alone: list[int]) -> None:
    assert lone_places(sequences) == alone
