"""How many alternatives pay: by what a wait costs, what a row costs, and where targets land."""

from dragonrt.control.branching import EXPLORE, MOST, Branching


def seen(single_s: float, row_s: float) -> Branching:
    """What was seen where a forward takes so long, and each further row so much longer."""
    branching = Branching(None)
    for rows in (0, 0, 1, 2):
        branching.took(rows, single_s + rows * row_s)
    return branching


def test_a_number_is_a_number() -> None:
    assert Branching(3).count(0.0, None) == 3
    assert Branching(3).on
    assert not Branching(0).on


def test_without_a_wait_there_is_nothing_to_save() -> None:
    assert seen(0.05, 0.0).count(0.01, None) == 0
    assert seen(0.05, 0.0).count(0.3, None) == MOST


def test_a_side_whose_rows_cost_as_much_as_forwards_is_let_be() -> None:
    assert seen(0.05, 0.05).count(0.3, None) == 0
    assert 0 < seen(0.05, 0.004).count(0.3, None) < MOST


def test_what_a_row_costs_is_tried_now_and_then() -> None:
    branching = Branching(None)
    assert branching.count(0.3, None) == 0, "before one forward was seen"
    branching.took(0, 0.05)
    assert branching.count(0.3, None) == 1
    branching.took(1, 0.1)
    assert branching.count(0.3, None) == 0
    for _ in range(EXPLORE - 2):
        branching.took(0, 0.05)
    assert branching.count(0.3, None) == 1, "again, for it may have changed"


def test_where_targets_land_decides() -> None:
    second, first = seen(0.05, 0.01), seen(0.05, 0.01)
    for _ in range(50):
        second.decided(1)
        first.decided(0)
    assert second.count(0.3, None) >= 1
    assert first.count(0.3, None) == 0


def test_the_rate_is_wanted_where_it_may_decide() -> None:
    assert seen(0.05, 0.0).wants_rate(0.3)
    assert not seen(0.05, 0.0).wants_rate(0.05), "there is no wait to save"
    assert not Branching(None).wants_rate(0.3), "before one forward was seen"
    assert not Branching(4).wants_rate(0.3)


def test_a_draft_more_costs_the_time_in_which_the_link_carries_it() -> None:
    branching = seen(0.05, 0.0)
    assert branching.count(0.3, None) == MOST, "what is not sent costs nothing"
    branching.sent(100)
    assert branching.count(0.3, None) == MOST, "nor does it until the link is known"
    assert branching.count(0.3, 1e9) == MOST
    assert branching.count(0.3, 150e3) == 2, "5 ms each; the third saves 200 ms in 1 of 50"
    assert branching.count(0.3, 100e3) == 1


def test_a_link_that_the_line_fills_carries_nothing_beside_it() -> None:
    branching = seen(0.05, 0.0)
    branching.sent(100)
    for rank in (1, 2) * 100:  # however often that would come true
        branching.decided(rank)
    assert branching.count(0.3, 50e3) == 2, "16 ms each: three in the time of a forward"
    assert branching.count(0.3, 40e3) == 1
    assert branching.count(0.3, 20e3) == 0
    assert branching.count(0.3, 10e3) == 0
