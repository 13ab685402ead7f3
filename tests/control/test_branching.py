"""How many alternatives pay: by what a wait costs, what a row costs, and where targets land."""

from dragonrt.control.branching import EXPLORE, MOST, Branching


def seen(single_s: float, row_s: float) -> Branching:
    """What was seen where a forward takes so long, and each further row so much longer."""
    branching = Branching(None)
    for rows in (0, 0, 1, 2):
        branching.took(rows, single_s + rows * row_s)
    return branching


def test_a_number_is_a_number() -> None:
    assert Branching(3).count(0.0) == 3
    assert Branching(3).on
    assert not Branching(0).on


def test_without_a_wait_there_is_nothing_to_save() -> None:
    assert seen(0.05, 0.0).count(0.01) == 0
    assert seen(0.05, 0.0).count(0.3) == MOST


def test_a_side_whose_rows_cost_as_much_as_forwards_is_let_be() -> None:
    assert seen(0.05, 0.05).count(0.3) == 0
    assert 0 < seen(0.05, 0.004).count(0.3) < MOST


def test_what_a_row_costs_is_tried_now_and_then() -> None:
    branching = Branching(None)
    assert branching.count(0.3) == 0, "before one forward was seen"
    branching.took(0, 0.05)
    assert branching.count(0.3) == 1
    branching.took(1, 0.1)
    assert branching.count(0.3) == 0
    for _ in range(EXPLORE - 2):
        branching.took(0, 0.05)
    assert branching.count(0.3) == 1, "again, for it may have changed"


def test_where_targets_land_decides() -> None:
    second, first = seen(0.05, 0.01), seen(0.05, 0.01)
    for _ in range(50):
        second.decided(1)
        first.decided(0)
    assert second.count(0.3) >= 1
    assert first.count(0.3) == 0
    first.decided(None)
    assert sum(first.probabilities) < 1
