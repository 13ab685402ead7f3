"""Controllers: the two baselines, the network, and the bundled one."""

import math

import numpy as np
import pytest
from numpy.typing import NDArray

from dragonrt import bundled
from dragonrt.control.learned import Encoding, Learned, controller
from dragonrt.control.policies import Action, ControlState, Heuristic, Static
from dragonrt.errors import ControlError

ENCODING = Encoding((1, 4), (10, 50, 100), confidences=3, log_rate_mean=10.0, log_rate_deviation=2)
SHAPES = {"hidden": (5, 5), "hidden_bias": (5,), "output": (6, 5), "output_bias": (6,)}


def weights(seed: int) -> dict[str, NDArray[np.float32]]:
    random = np.random.default_rng(seed)
    return {name: random.standard_normal(s).astype(np.float32) for name, s in SHAPES.items()}


@pytest.mark.parametrize(
    ("accepted", "drafted", "length"), [(0, 0, 4), (4, 4, 5), (3, 4, 3), (1, 9, 1), (0, 3, 1)]
)
def test_baselines(accepted: int, drafted: int, length: int) -> None:
    state = ControlState((0.5,), 0.6, 1e5, accepted, drafted)
    assert (controller("heuristic:50"), controller("static:5:100")) == (
        Heuristic(50),
        Static(Action(5, 100)),
    )
    assert Heuristic(50).choose(state) == Action(length, 50)
    assert Static(Action(5, 100)).choose(state) == Action(5, 100)


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


@pytest.mark.parametrize(
    ("state", "features"),
    [
        (ControlState((0.1, 0.2, 0.3, 0.4), 0.7, math.exp(13.0), 1, 2), [0.2, 0.3, 0.4, 0.7, 1.5]),
        (ControlState((), 0.5, math.exp(13.0), 0, 0), [-1, -1, -1, 0.5, 1.5]),
        (ControlState((0.5,), 1.0, math.inf, 0, 0), [-1, -1, 0.5, 1, 3]),
        (ControlState((0.5,), 0.75, 0.0, 0, 0), [-1, -1, 0.5, 0.75, -3]),
    ],
)
def test_features(state: ControlState, features: list[float]) -> None:
    assert ENCODING.features(state).tolist() == pytest.approx(features)


def test_it_chooses_the_action_of_the_highest_value_of_two_layers() -> None:
    state = ControlState((0.1, 0.9, 0.4), 0.8, 5e4, 1, 2)
    x = ENCODING.features(state)
    for seed in range(10):
        w = weights(seed)
        made = Learned(ENCODING, w)
        hidden = np.array([max(0.0, w["hidden"][h] @ x + w["hidden_bias"][h]) for h in range(5)])
        values = [w["output"][a] @ hidden + w["output_bias"][a] for a in range(6)]
        assert made.values(state) == pytest.approx(values, rel=1e-5, abs=1e-5)
        assert made.choose(state) == ENCODING.actions[int(np.argmax(values))]
    assert ENCODING.actions[4] == Action(4, 50)


@pytest.mark.parametrize("name", bundled.controllers())
def test_the_bundled_one_of_a_draft_is_its_default(name: str) -> None:
    made = controller("default", name.split("--")[0])
    assert isinstance(made, Learned)
    assert made.trained_on == Learned.load(bundled.controller_path(name)).trained_on
    assert f"{made.trained_on['draft']}--{made.trained_on['target']}" == name
    untrained, learned, fixed, heuristic = made.trained_on["held_out_tokens_per_s"].values()
    assert learned > max(untrained, heuristic)
    assert learned > 0.99 * fixed  # the best of 56, chosen on these episodes
    for rate in (1.0, 20e3, math.inf):
        assert made.choose(ControlState((), 1.0, rate, 0, 0)) in made.encoding.actions
    with pytest.raises(bundled.BundledError):
        controller("default", "mine")
