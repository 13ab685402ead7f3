"""The baselines and the specifications that controllers are made from."""

import pytest

from dragonrt.control.learned import controller
from dragonrt.control.policies import Action, ControlState, Heuristic, Static
from dragonrt.errors import ControlError


def state(accepted: int, drafted: int) -> ControlState:
    return ControlState((0.5,), 0.6, 1e5, accepted, drafted)


def test_static() -> None:
    made = controller("static:5:100")
    assert made == Static(Action(5, 100))
    assert {made.choose(state(n, 5)) for n in range(6)} == {Action(5, 100)}


@pytest.mark.parametrize(
    ("accepted", "drafted", "length"), [(0, 0, 4), (4, 4, 5), (3, 4, 3), (1, 9, 1), (0, 3, 1)]
)
def test_heuristic(accepted: int, drafted: int, length: int) -> None:
    made = controller("heuristic:50")
    assert made == Heuristic(50)
    assert made.choose(state(accepted, drafted)) == Action(length, 50)


@pytest.mark.parametrize(
    "spec",
    [
        *("static:5", "static:5:x", "static:0:10", "static:1:0"),
        *("heuristic:0", "heuristic:1:2", "heuristic:-1", "/nowhere/at/all"),
    ],
)
def test_what_is_wrong_is_one_line(spec: str) -> None:
    with pytest.raises(ControlError) as caught:
        controller(spec)
    assert "\n" not in str(caught.value)
