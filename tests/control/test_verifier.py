"""A trained head: what it computes, for whom, and what its files must be."""

import json
import math
from dataclasses import replace
from pathlib import Path
from typing import get_args

import numpy as np
import pytest

from dragonrt import bundled
from dragonrt.backends.model import LanguageModel
from dragonrt.control.verifier import CONFIDENCES, Kind, TrainedPair, Verifier, confidences
from dragonrt.errors import ControlError

PAIR = TrainedPair("small", "large", "d" * 64, "t" * 64)
Q = np.array((0.125, 0.5, 0.375, 0.0), np.float32)


def verifier(**changes: object) -> Verifier:
    weight = np.array((0.5, -1.0, 2.0, 0.25, -0.75), np.float32)
    made = Verifier("sprinter", "hidden+confidence", PAIR, weight, 0.125, 0.5, 1.2, {"seed": 3})
    return replace(made, **changes)  # type: ignore[arg-type]


def test_it_is_one_linear_layer_and_a_sigmoid() -> None:
    hidden = np.array((1.5, -2.0), np.float32)
    logit = 0.5 * 1.5 + 2.0 + 2.0 * 0.375 + 0.25 * math.log(0.375) - 0.75 * 0.5 + 0.125
    assert verifier().probability(hidden, Q, 2) == pytest.approx(1 / (1 + math.exp(-logit)))
    plain = verifier(features="hidden", weight=np.array((0.5, -1.0), np.float32))
    assert plain.probability(hidden, Q, 2) == pytest.approx(1 / (1 + math.exp(-2.875)))


def test_confidences_are_finite_even_of_a_token_without_probability() -> None:
    assert confidences(Q, 1).tolist() == pytest.approx([0.5, math.log(0.5), 0.5])
    impossible = confidences(Q, 3)
    assert len(impossible) == len(CONFIDENCES)
    assert np.isfinite(impossible).all()


def test_a_logit_of_any_size_is_a_probability() -> None:
    for bias in (-1e6, 1e6):
        assert verifier(bias=bias).probability(np.zeros(2, np.float32), Q, 0) in (0.0, 1.0)


def test_it_survives_its_files_bit_for_bit(tmp_path: Path) -> None:
    made = verifier(threshold=0.4)
    made.save(tmp_path / "new" / "v")
    for name in ("v", "v.json", "v.safetensors"):
        read = Verifier.load(tmp_path / "new" / name)
        assert np.array_equal(read.weight, made.weight)
        others = [name for name in Verifier.__slots__ if name != "weight"]
        assert [getattr(read, name) for name in others] == [getattr(made, name) for name in others]


def test_another_pair_is_refused() -> None:
    made = verifier()
    made.check_pair(PAIR.draft_fingerprint, PAIR.target_fingerprint)
    with pytest.raises(ControlError, match=r"model small, not .* fingerprint xxxxxxxx…: train"):
        made.check_pair("x" * 64, PAIR.target_fingerprint)
    with pytest.raises(ControlError, match=r"target large, not .* `scripts/train/run verifier`"):
        made.check_pair(PAIR.draft_fingerprint, "x" * 64)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"format": "other 1"}, "its format is 'other 1'"),
        ({"kind": "oracle"}, "'oracle' is none of sprinter, specdec"),
        ({"features": "text"}, "'text' is none of hidden, hidden"),
        ({"threshold": "high"}, "could not convert"),
    ],
)
def test_other_records_are_refused(tmp_path: Path, change: dict[str, object], message: str) -> None:
    verifier().save(tmp_path / "v")
    record = json.loads((tmp_path / "v.json").read_text())
    (tmp_path / "v.json").write_text(json.dumps(record | change))
    with pytest.raises(ControlError, match=f"is not a verifier: {message}"):
        Verifier.load(tmp_path / "v")


def test_damaged_and_missing_files_are_refused(tmp_path: Path) -> None:
    with pytest.raises(ControlError, match=r"v\.safetensors is missing; make one with"):
        Verifier.load(tmp_path / "v")
    verifier(weight=np.full(5, np.nan, np.float32)).save(tmp_path / "v")
    with pytest.raises(ControlError, match="not finite float32 numbers"):
        Verifier.load(tmp_path / "v")
    (tmp_path / "v.json").write_text("[]")
    with pytest.raises(ControlError, match="its record is not a JSON object"):
        Verifier.load(tmp_path / "v")
    (tmp_path / "v.safetensors").write_bytes(b"no")
    with pytest.raises(ControlError, match="is not a verifier"):
        Verifier.load(tmp_path / "v")
    with pytest.raises(ControlError, match="cannot write the verifier"):
        verifier().save(tmp_path / "v.json" / "below")


@pytest.fixture(scope="module")
def fingerprints() -> dict[str, str]:
    return {name: LanguageModel.load(name, "cpu").fingerprint for name in bundled.models()}


@pytest.mark.parametrize("kind", get_args(Kind))
@pytest.mark.parametrize(("target", "auc"), [("dragon-small", 0.8), ("dragon-opt", 0.75)])
def test_the_bundled_pairs_have_a_verifier_of_each_kind(
    fingerprints: dict[str, str], target: str, auc: float, kind: Kind
) -> None:
    found = Verifier.for_pair(fingerprints["dragon-draft"], fingerprints[target], kind)
    assert (found.kind, found.pair.draft, found.pair.target) == (kind, "dragon-draft", target)
    assert found.weight.size < 1000
    assert found.trained_on["test"]["auc"] > auc
    assert found.trained_on["test"]["eta_fp"] < found.trained_on["test"]["eta_tp"]


def test_a_pair_without_a_bundled_verifier_is_told_what_to_do(
    fingerprints: dict[str, str],
) -> None:
    with pytest.raises(ControlError, match="`scripts/train/run verifier --kind sprinter --corpus"):
        Verifier.for_pair(fingerprints["dragon-small"], fingerprints["dragon-draft"], "sprinter")


def test_bundled_verifiers_are_loaded_by_name() -> None:
    names = bundled.verifiers()
    assert len(names) == 4
    for name in names:
        found = Verifier.load(name)
        assert name == f"{found.pair.draft}--{found.pair.target}--{found.kind}"
    with pytest.raises(bundled.BundledError, match="no bundled verifier 'other'; there are"):
        bundled.verifier_path("other")
