"""What was trained: it comes back to the bit, what is none is one line, and what it predicts."""

import json
import math
import shutil
from collections.abc import Callable
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from safetensors.numpy import load_file, save_file

from dragonrt import bundled
from dragonrt.backends.llama_cpp.model_file import fingerprint
from dragonrt.control.trained import (
    Action,
    ControlState,
    Heuristic,
    Learned,
    Static,
    TrainedPair,
    Verifier,
    confidences,
    controller,
    files,
    fitting_verifier,
    trained_verifiers,
)
from dragonrt.errors import ControlError
from scripts.train.artefact import save_verifier


def copy_controller(path: Path) -> None:
    for file in files(bundled.controller_path("default")):
        shutil.copy(file, path.with_suffix(file.suffix))


def verifier() -> Verifier:
    pair = TrainedPair("small", "large", "d" * 64, "t" * 64)
    weight = np.array((0.5, -1.0, 2.0, 0.25, -0.75), np.float32)
    return Verifier("hidden+confidence", pair, weight, 0.125, 0.4, 1.2, {"seed": 3})


@dataclass(frozen=True)
class Kind:
    write: Callable[[Path], object]
    load: Callable[[Path], Any]


KINDS = {
    "controller": Kind(copy_controller, Learned.load),
    "verifier": Kind(lambda path: save_verifier(verifier(), path), Verifier.load),
}
kinds = pytest.mark.parametrize("kind", KINDS.values(), ids=KINDS)


@pytest.mark.parametrize("name", ["v1.5", "mine.json", "mine.safetensors"])
def test_a_saved_verifier_is_loaded_to_the_bit(tmp_path: Path, name: str) -> None:
    path = tmp_path / "new" / name
    save_verifier(verifier(), path)
    np.testing.assert_equal(asdict(Verifier.load(path)), asdict(verifier()))


@pytest.mark.parametrize(
    ("kind", "key", "value"),
    [
        *(("controller", "format", "dragonrt controller 1"), ("verifier", "format", "other 1")),
        *(("controller", "lengths", value) for value in ([1, 0], 3, None)),
        ("controller", "resolutions", [1, 2]),
        *(("controller", "confidences", value) for value in (2, True)),
        *(("controller", "log_rate_deviation", value) for value in (0, math.inf)),
        *(("controller", "log_rate_mean", "high"), ("controller", "trained_on", None)),
        *(("verifier", "kind", "oracle"), ("verifier", "features", "text")),
        ("verifier", "threshold", "high"),
    ],
)
def test_a_wrong_record_is_refused(tmp_path: Path, kind: str, key: str, value: object) -> None:
    KINDS[kind].write(tmp_path / "mine")
    path = tmp_path / "mine.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), key: value}))
    with pytest.raises(ControlError) as caught:
        KINDS[kind].load(tmp_path / "mine")
    assert "\n" not in str(caught.value)


def nan(array: NDArray[Any]) -> NDArray[Any]:
    return np.full_like(array, np.nan)


@pytest.mark.parametrize(
    ("kind", "name", "change"),
    [
        ("controller", "more", lambda array: np.zeros(1, np.float32)),
        ("controller", "hidden", nan),
        ("controller", "hidden", lambda array: array.astype(np.float64)),
        ("controller", "hidden_bias", lambda array: np.zeros((), np.float32)),
        ("controller", "output_bias", lambda array: np.zeros(7, np.float32)),
        ("verifier", "weight", nan),
        ("verifier", "weight", lambda array: array.reshape(1, -1)),
    ],
)
def test_wrong_weights_are_refused(
    tmp_path: Path, kind: str, name: str, change: Callable[[NDArray[Any] | None], NDArray[Any]]
) -> None:
    KINDS[kind].write(tmp_path / "mine")
    arrays = load_file(tmp_path / "mine.safetensors")
    save_file({**arrays, name: change(arrays.get(name))}, tmp_path / "mine.safetensors")
    with pytest.raises(ControlError):
        KINDS[kind].load(tmp_path / "mine")


@kinds
@pytest.mark.parametrize(
    ("name", "content"), [("mine.safetensors", b"no"), ("mine.json", b"{"), ("mine.json", b"[]")]
)
def test_damaged_and_missing_files_are_refused(
    tmp_path: Path, kind: Kind, name: str, content: bytes
) -> None:
    kind.write(tmp_path / "mine")
    (tmp_path / name).write_bytes(content)
    with pytest.raises(ControlError):
        kind.load(tmp_path / "mine")
    (tmp_path / name).unlink()
    with pytest.raises(ControlError):
        kind.load(tmp_path / "mine")


def test_a_folder_that_cannot_be_written_is_one_line(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(ControlError):
        save_verifier(verifier(), tmp_path / "file" / "mine")


ACTIONS = tuple(Action(length, finest) for length in (1, 4) for finest in (10, 50, 100))
SHAPES = {"hidden": (5, 5), "hidden_bias": (5,), "output": (6, 5), "output_bias": (6,)}


def learned(seed: int = 0) -> Learned:
    random = np.random.default_rng(seed)
    weights = {name: random.standard_normal(s).astype(np.float32) for name, s in SHAPES.items()}
    return Learned(ACTIONS, 3, 10.0, 2.0, weights)


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
    assert learned().features(state).tolist() == pytest.approx(features)


def test_it_chooses_the_action_of_the_highest_value() -> None:
    state = ControlState((0.1, 0.9, 0.4), 0.8, 5e4, 1, 2)
    for seed in range(10):
        made = learned(seed)
        w, x = made.weights, made.features(state)
        hidden = np.array([max(0.0, w["hidden"][h] @ x + w["hidden_bias"][h]) for h in range(5)])
        values = [w["output"][a] @ hidden + w["output_bias"][a] for a in range(6)]
        assert made.choose(state) == ACTIONS[int(np.argmax(values))]


@pytest.mark.parametrize("name", bundled.controllers())
def test_the_bundled_one_of_a_draft_is_its_default(name: str) -> None:
    made = controller("default", name.split("--")[0])
    assert isinstance(made, Learned)
    assert made.trained_on == Learned.load(bundled.controller_path(name)).trained_on
    assert f"{made.trained_on['draft']}--{made.trained_on['target']}" == name
    untrained, own, fixed, heuristic = made.trained_on["held_out_tokens_per_s"].values()
    assert own > max(untrained, heuristic)
    assert own > 0.99 * fixed  # the best of 56, chosen on these episodes
    for rate in (1.0, 20e3, math.inf):
        assert made.choose(ControlState((), 1.0, rate, 0, 0)) in made.actions
    with pytest.raises(bundled.BundledError):
        controller("default", "mine")


Q = np.array((0.125, 0.5, 0.375, 0.0), np.float32)


def test_it_is_one_linear_layer_and_a_sigmoid() -> None:
    hidden = np.array((1.5, -2.0), np.float32)
    logit = 0.5 * 1.5 + 2.0 + 2.0 * 0.375 + 0.25 * math.log(0.375) - 0.75 * 0.5 + 0.125
    assert verifier().probability(hidden, Q, 2) == pytest.approx(1 / (1 + math.exp(-logit)))
    plain = replace(verifier(), features="hidden", weight=np.array((0.5, -1.0), np.float32))
    assert plain.probability(hidden, Q, 2) == pytest.approx(1 / (1 + math.exp(-2.875)))


def test_every_number_is_a_probability() -> None:
    assert confidences(Q, 1).tolist() == pytest.approx([0.5, math.log(0.5), 0.5])
    assert np.isfinite(confidences(Q, 3)).all(), "of a token without probability, too"
    for bias in (-1e6, 1e6):
        made = replace(verifier(), bias=bias)
        assert made.probability(np.zeros(2, np.float32), Q, 0) in (0.0, 1.0)


def test_another_pair_is_refused() -> None:
    made = verifier()
    made.check_pair("d" * 64, "t" * 64)
    for other in (("x" * 64, "t" * 64), ("d" * 64, "x" * 64)):
        with pytest.raises(ControlError):
            made.check_pair(*other)


@pytest.fixture(scope="module")
def fingerprints() -> dict[str, str]:
    return {name: fingerprint(bundled.model_path(name)) for name in bundled.models()}


def test_the_bundled_pair_has_a_verifier(fingerprints: dict[str, str]) -> None:
    found = Verifier.for_pair(fingerprints["dragon-draft"], fingerprints["dragon-small"])
    assert (found.pair.draft, found.pair.target) == ("dragon-draft", "dragon-small")
    assert found.weight.size < 1000
    assert found.trained_on["test"]["auc"] > 0.8
    assert found.trained_on["test"]["eta_fp"] < found.trained_on["test"]["eta_tp"]


def test_a_broken_file_of_the_user_is_skipped(
    fingerprints: dict[str, str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path))
    trained_verifiers().mkdir(parents=True)
    (trained_verifiers() / "broken.json").write_text("{")
    found = Verifier.for_pair(fingerprints["dragon-draft"], fingerprints["dragon-small"])
    assert found.pair.draft == "dragon-draft"


def test_the_file_that_is_named_must_fit(fingerprints: dict[str, str]) -> None:
    pair = fingerprints["dragon-draft"], fingerprints["dragon-small"]
    found = Verifier.for_pair(*pair)
    name = str(bundled.verifier_path(f"{found.pair.draft}--{found.pair.target}--sprinter"))
    for file in (name, None):
        assert fitting_verifier(file, *pair).trained_on == found.trained_on
        with pytest.raises(ControlError):
            fitting_verifier(file, pair[1], pair[0])


def test_bundled_verifiers_are_loaded_by_name() -> None:
    names = bundled.verifiers()
    assert len(names) == 2
    for name in names:
        found = Verifier.load(name)
        assert name == f"{found.pair.draft}--{found.pair.target}--sprinter"
    with pytest.raises(bundled.BundledError):
        bundled.verifier_path("other")
