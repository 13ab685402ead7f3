"""Files of trained networks: they come back to the bit, and what is none is one line."""

import json
import math
import shutil
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from safetensors.numpy import load_file, save_file

from dragonrt import bundled
from dragonrt.control.artefact import files
from dragonrt.control.learned import Learned
from dragonrt.control.verifier import TrainedPair, Verifier
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
