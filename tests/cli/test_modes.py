"""`dragonrt device --mode`: options are the fields of a mode's settings, and no other mode's."""

from collections.abc import Callable
from typing import Any

import pytest

from dragonrt.cli.answering import AnswerOptions
from dragonrt.cli.options import given
from dragonrt.modes.question import Question
from dragonrt.modes.registry import MODES, composed
from dragonrt.modes.settings import SpeculativeSettings
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
    assert asked - options == own


def test_the_options_shape_question_and_settings() -> None:
    question, how = composed("speculative", {"temperature": 0.5, "top_k": 3, "pipelined": False})
    assert (question.sampler.temperature, question.sampler.top_k) == (0.5, 3)
    assert how == SpeculativeSettings(pipelined=False)
    assert isinstance(how, SpeculativeSettings)
    assert (how.length, how.outstanding) == (8, 1)


@pytest.mark.parametrize(
    ("mode", "arguments", "said"),
    [
        ("dragon", "--budget 9", "--budget has no meaning with --mode dragon"),
        ("dragon", "--worker 127.0.0.1:1", "--worker is for --mode federated"),
        ("speculative", "--aggregator greedy", "--aggregator has no meaning with --mode specul"),
        ("speculative", "--worker 127.0.0.1:1", "--worker is for --mode federated"),
        ("sprinter", "--run-ahead 4", "--run-ahead has no meaning with --mode sprinter"),
        ("federated", "", "name each one with --worker"),
        ("federated", "--worker here", "'here' is no worker: write HOST:PORT"),
        ("federated", "--worker a:b", "'a:b' is no worker"),
        ("federated", "--worker a:70000", "'a:70000' is no worker"),
        ("federated", "--worker ::1:7070", "'::1:7070' is no worker"),
        ("federated", "--worker a:1=much", "'a:1=much' is no worker"),
        ("federated", "--worker a:1=0", "the weight of a:1 must be above 0"),
        ("federated", "--worker a:1=nan", "the weight of a:1 must be above 0"),
        ("federated", "--worker a:1=1 --worker b:1", "give every worker a weight, or none"),
        ("federated", "--worker a:1 --worker a:1", "each worker may be named once"),
        ("federated", "--worker a:1=1 --weights relevance", "give the workers none"),
        ("federated", "--worker a:1 --budget 9", "--budget has no meaning with --mode federated"),
        ("federated", "--worker a:1 --port 9", "name each worker with --worker"),
    ],
)
def test_what_does_not_fit_is_one_line(run: Run, mode: str, arguments: str, said: str) -> None:
    outcome = run("device", "--mode", mode, *arguments.split())
    assert (outcome.code, outcome.output) == (1, "")
    assert said in outcome.line


@pytest.mark.parametrize(
    ("mode", "arguments", "said"),
    [
        ("speculative", "--controller static:4", "is not a controller"),
        ("sprinter", "--verifier moon", "there is no verifier moon"),
    ],
)
def test_what_was_trained_is_looked_at_before_anything_is_loaded(
    run: Run, mode: str, arguments: str, said: str
) -> None:
    outcome = run("device", "--mode", mode, *arguments.split())
    assert (outcome.code, outcome.output) == (1, "")
    assert said in outcome.line


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
def test_a_mode_that_does_not_answer_from_documents_says_so_before_anything_is_loaded(
    run: Run, mode: str
) -> None:
    asked = ["device", "--mode", mode, *(["--worker", "a:1"] if mode == "federated" else [])]
    # There is no such model: nothing is loaded.
    errors = run(*asked, "--model", "./none", "--documents", "here").errors
    assert ("does not answer from them: --mode dragon does" in errors) == (mode != "dragon")
    assert "answer from them" not in run(*asked, "--model", "./none").errors
