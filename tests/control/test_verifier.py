"""A trained head: what it computes, for whom, and what its files must be."""

import math
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from dragonrt import bundled
from dragonrt.backends.llama_cpp.model_file import fingerprint
from dragonrt.control.verifier import Verifier, confidences, fitting_verifier, trained_verifiers
from dragonrt.errors import ControlError
from tests.control.test_artefact import verifier

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
