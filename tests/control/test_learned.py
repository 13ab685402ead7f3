"""The learned controller: its network, its files, and files that are not its own."""

import json
import math
from pathlib import Path

import numpy as np
import pytest
from safetensors.numpy import load_file, save_file

from dragonrt import bundled
from dragonrt.control import (
    Action,
    ControlError,
    ControlState,
    Encoding,
    Learned,
    NetworkWeights,
    controller,
)

ENCODING = Encoding((1, 4), (10, 50, 100), confidences=3, log_rate_mean=10.0, log_rate_deviation=2)


def weights(seed: int = 0, width: int = 5) -> NetworkWeights:
    generator = np.random.default_rng(seed)
    shapes = ((width, ENCODING.inputs), (width,), (6, width), (6,))
    return NetworkWeights(
        *(generator.standard_normal(shape).astype(np.float32) for shape in shapes)
    )


def learned(seed: int = 0) -> Learned:
    return Learned("mine", ENCODING, weights(seed), {"link": "nb-iot-markov", "seed": 3})


def test_features() -> None:
    rate = math.exp(13.0)
    assert ENCODING.features(
        ControlState((0.1, 0.2, 0.3, 0.4), 0.7, rate, 1, 2)
    ).tolist() == pytest.approx([0.2, 0.3, 0.4, 0.7, 1.5])
    assert ENCODING.features(ControlState((), 0.5, rate, 0, 0)).tolist() == [-1, -1, -1, 0.5, 1.5]
    assert ENCODING.features(ControlState((0.5,), 1.0, math.inf, 0, 0)).tolist() == [
        -1,
        -1,
        0.5,
        1,
        3,
    ]
    assert ENCODING.features(ControlState((0.5,), 0.6, 0.0, 0, 0))[-1] == -3


def test_the_network_is_two_layers() -> None:
    made = weights()
    x = np.array([0.1, 0.7, 0.9, 0.4, -1.0], np.float32)
    expected = [
        sum(
            made.output[a, h]
            * max(0.0, sum(made.hidden[h, i] * x[i] for i in range(5)) + made.hidden_bias[h])
            for h in range(5)
        )
        + made.output_bias[a]
        for a in range(6)
    ]
    assert made.values(x) == pytest.approx(expected, rel=1e-5, abs=1e-6)


def test_it_chooses_the_action_of_the_highest_value() -> None:
    for seed in range(10):
        made = learned(seed)
        state = ControlState((0.1, 0.9, 0.4), 0.8, 5e4, 1, 2)
        best = int(made.weights.values(ENCODING.features(state)).argmax())
        assert made.choose(state) == ENCODING.actions[best]
    assert ENCODING.actions[4] == Action(4, 50)


@pytest.mark.parametrize("given", ["mine", "mine.json", "mine.safetensors"])
def test_saved_and_loaded_it_is_equal_to_the_bit(tmp_path: Path, given: str) -> None:
    made = learned()
    made.save(tmp_path / "new" / "mine")
    again = controller(str(tmp_path / "new" / given))
    assert isinstance(again, Learned)
    assert (again.name, again.encoding, again.trained_on) == (
        made.name,
        made.encoding,
        made.trained_on,
    )
    for name in NetworkWeights.__slots__:
        assert getattr(again.weights, name).tobytes() == getattr(made.weights, name).tobytes()


def test_the_bundled_one_is_loaded_by_its_name() -> None:
    assert bundled.controllers() == ("default",)
    made = controller("default")
    assert isinstance(made, Learned)
    assert made.name == "default"
    assert made.trained_on["link"] == "nb-iot-markov"
    untrained, learned, fixed, heuristic = made.trained_on["held_out_tokens_per_s"].values()
    assert learned > max(untrained, heuristic)
    assert learned > 0.99 * fixed  # the best of 56, chosen on these episodes
    for rate in (1.0, 20e3, math.inf):
        assert made.choose(ControlState((), 1.0, rate, 0, 0)) in made.encoding.actions
    with pytest.raises(bundled.BundledError, match="no bundled controller 'mine'; there are def"):
        bundled.controller_path("mine")


def test_a_name_may_have_dots(tmp_path: Path) -> None:
    learned().save(tmp_path / "v1.5")
    assert Learned.load(tmp_path / "v1.5").name == "v1.5"


def test_a_folder_that_cannot_be_written(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(ControlError, match="cannot write the controller"):
        learned().save(tmp_path / "file" / "mine")


@pytest.mark.parametrize(
    ("key", "value", "line"),
    [
        ("format", "something else", "its format is 'something else'"),
        ("lengths", [1, 0], "0 is not a whole number above 0"),
        ("lengths", 3, "not iterable"),
        ("resolutions", [1, 2], "do not fit together"),
        ("confidences", 2, "do not fit together"),
        ("confidences", True, "True is not a whole number"),
        ("log_rate_deviation", 0, "must be finite and above 0"),
        ("log_rate_mean", "high", "could not convert"),
        ("trained_on", None, "is not a controller"),
        ("lengths", None, "is not a controller"),
    ],
)
def test_a_wrong_record_is_refused(tmp_path: Path, key: str, value: object, line: str) -> None:
    learned().save(tmp_path / "mine")
    path = tmp_path / "mine.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), key: value}))
    with pytest.raises(ControlError) as caught:
        Learned.load(tmp_path / "mine")
    assert line in str(caught.value)
    assert "\n" not in str(caught.value)


def test_other_files_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "mine"
    learned().save(path)
    arrays = load_file(tmp_path / "mine.safetensors")
    for wrong in (
        {**arrays, "more": np.zeros(1, np.float32)},
        {"hidden": arrays["hidden"]},
        {**arrays, "hidden": np.full_like(arrays["hidden"], np.nan)},
        {**arrays, "hidden": arrays["hidden"].astype(np.float64)},
        {**arrays, "output_bias": np.zeros((), np.float32)},
        {**arrays, "hidden_bias": np.zeros((), np.float32)},
    ):
        save_file(wrong, tmp_path / "mine.safetensors")
        with pytest.raises(ControlError, match="is not a controller"):
            Learned.load(path)
    for name, content in (("mine.safetensors", "not tensors"), ("mine.json", "{")):
        learned().save(path)
        (tmp_path / name).write_text(content)
        with pytest.raises(ControlError, match="is not a controller"):
            Learned.load(path)
    learned().save(path)
    (tmp_path / "mine.json").write_text("[]")
    with pytest.raises(ControlError, match="its record is not a JSON object"):
        Learned.load(path)
    (tmp_path / "mine.json").unlink()
    learned().save(path)
    (tmp_path / "mine.json").unlink()
    with pytest.raises(ControlError, match=r"mine\.json is missing"):
        Learned.load(path)
