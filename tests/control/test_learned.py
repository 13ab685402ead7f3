"""The learned controller: its inputs, its network, and the bundled one."""

import math

import numpy as np
import pytest

from dragonrt import bundled
from dragonrt.control.learned import Encoding, Learned, NetworkWeights, controller
from dragonrt.control.policies import Action, ControlState

ENCODING = Encoding((1, 4), (10, 50, 100), confidences=3, log_rate_mean=10.0, log_rate_deviation=2)


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
        random = np.random.default_rng(seed)
        shapes = ((5, 5), (5,), (6, 5), (6,))
        made = NetworkWeights(*(random.standard_normal(each).astype(np.float32) for each in shapes))
        hidden = np.array([max(0.0, made.hidden[h] @ x + made.hidden_bias[h]) for h in range(5)])
        values = [made.output[a] @ hidden + made.output_bias[a] for a in range(6)]
        assert made.values(x) == pytest.approx(values, rel=1e-5, abs=1e-5)
        chosen = Learned(ENCODING, made).choose(state)
        assert chosen == ENCODING.actions[int(np.argmax(values))]
    assert ENCODING.actions[4] == Action(4, 50)


def test_the_bundled_one_is_loaded_by_its_name() -> None:
    assert bundled.controllers() == ("default",)
    made = controller("default")
    assert isinstance(made, Learned)
    assert made.trained_on["link"] == "nb-iot-markov"
    untrained, learned, fixed, heuristic = made.trained_on["held_out_tokens_per_s"].values()
    assert learned > max(untrained, heuristic)
    assert learned > 0.99 * fixed  # the best of 56, chosen on these episodes
    for rate in (1.0, 20e3, math.inf):
        assert made.choose(ControlState((), 1.0, rate, 0, 0)) in made.encoding.actions
    with pytest.raises(bundled.BundledError):
        bundled.controller_path("mine")
