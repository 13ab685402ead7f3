"""What the documents say next."""

import pytest

from dragonrt.modes.dragon.planner import Lookup


@pytest.mark.parametrize(
    ("tokens", "guess"),
    [
        ([5, 6], [7, 8]),  # a pair decides, and half of the longest guess is the first one
        ([9, 7], [8, 5]),  # no such pair; 7 stands only once
        ([9, 5], []),  # 5 stands twice
        ([], []),
        ([99], []),
    ],
)
def test_lookup_guesses_what_the_documents_say_next(tokens: list[int], guess: list[int]) -> None:
    assert Lookup([[5, 6, 7, 8, 5, 3, 6]]).guess(tokens, room=10) == guess


def test_luck_sets_the_length_and_room_bounds_it() -> None:
    lookup = Lookup([list(range(20))])
    for _ in range(20):
        lookup.learn(4, 4)
    assert lookup.guess([3], room=10) == [4, 5, 6, 7]
    assert lookup.guess([3], room=2) == [4, 5]
    assert lookup.guess([18], room=10) == [19]
    lookup.learn(0, 0)  # no guess is neither luck nor bad luck
    assert lookup.guess([3], room=10) == [4, 5, 6, 7]
    for _ in range(20):
        lookup.learn(4, 0)
    assert lookup.guess([3], room=10) == [4]
