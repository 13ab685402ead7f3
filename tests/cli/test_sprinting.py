"""`dragonrt device --mode sprinter`: what does not fit is one line, before a model is loaded."""

from collections.abc import Callable
from typing import Any

import pytest

Run = Callable[..., Any]


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ("--mode sprinter --rule coupled", "verifies by the rule rejection, not coupled"),
        ("--mode sprinter --codec ids", "verifies with distributions"),
        ("--mode sprinter --verifier moon", "there is no verifier moon"),
        ("--mode sprinter --block-tokens 4", "--block-tokens has no meaning with --mode sprinter"),
        ("--mode sprinter --run-ahead 4", "--run-ahead has no meaning with --mode sprinter"),
        ("--mode speculative --threshold 0.3", "--threshold has no meaning"),
        ("--run-length 9", "--run-length has no meaning with --mode dragon"),
    ],
)
def test_options_that_do_not_fit(run: Run, arguments: str, said: str) -> None:
    outcome = run("device", *arguments.split())
    assert (outcome.code, outcome.output) == (1, "")
    assert said in outcome.line


def test_the_help_says_that_the_text_is_approximate(run: Run) -> None:
    text = run("device", "--help").output
    assert "approximate" in text
    assert "not exactly the cloud's" in text
