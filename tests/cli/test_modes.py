"""`dragonrt device --mode`: options are the fields of a mode's settings, and no other mode's."""

from collections.abc import Callable
from typing import Any

import pytest

from dragonrt.cli.answering import AnswerOptions
from dragonrt.cli.options import given
from dragonrt.modes import MODES, composed
from dragonrt.modes.question import Question
from dragonrt.modes.speculative.settings import SpeculativeSettings
from dragonrt.settings import entries

Run = Callable[..., Any]


def test_without_options_the_settings_have_their_own_defaults() -> None:
    for name, mode in MODES.items():
        assert composed(name, given(AnswerOptions())) == (Question(), mode.settings())
    assert Question().sampler.temperature == 0


def test_every_setting_of_every_mode_is_an_option() -> None:
    options = set(AnswerOptions.__dataclass_fields__)  # type: ignore[attr-defined]
    for mode in MODES.values():
        assert options >= {entry.name for entry in entries(mode.settings)}
    asked = {entry.name for entry in entries(Question)}
    own = {"prompt", "instructions", "history", "shown", "stop_tokens", "accepted", "top_logprobs"}
    assert asked - options == own | {"chunk"}


def test_the_options_shape_question_and_settings() -> None:
    question, how = composed("speculative", {"temperature": 0.5, "top_k": 3, "pipelined": False})
    assert (question.sampler.temperature, question.sampler.top_k) == (0.5, 3)
    assert how == SpeculativeSettings(pipelined=False)
    assert isinstance(how, SpeculativeSettings)
    assert (how.length, how.outstanding) == (8, 1)


def test_the_help_says_that_the_text_is_approximate(run: Run) -> None:
    assert "approximate" in run("device", "--help").output


@pytest.mark.slow
def test_workers_that_cannot_be_reached_are_named(run: Run) -> None:
    places = ["--worker", "127.0.0.1:9", "--worker", "127.0.0.1:11"]
    outcome = run("device", "--mode", "federated", *places, "--ask", "Who?")
    assert outcome.code == 1
    for place in ("127.0.0.1:9", "127.0.0.1:11"):
        assert f"cannot reach {place}: connection refused" in outcome.errors


@pytest.mark.parametrize("mode", MODES)
def test_a_mode_without_documents_warns_first(run: Run, mode: str) -> None:
    asked = ["device", "--mode", mode, *(["--worker", "[::1]:1"] if mode == "federated" else [])]
    # There is no such model: nothing is loaded.
    errors = run(*asked, "--model", "./none", "--documents", "here").errors
    assert ("does not answer from them: --mode dragon does" in errors) == (mode != "dragon")
    assert "answer from them" not in run(*asked, "--model", "./none").errors
