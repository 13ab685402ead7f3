"""Every mistake of a user is one line on stderr and an exit code, never a traceback."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from dragonrt.errors import DragonError

Run = Callable[..., Any]


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ("--codec zip", "unknown codec 'zip'"),
        ("--rule best", "unknown rule 'best'; valid are coupled and algorithm1"),
        ("--aggregator me", "unknown aggregator 'me': choose one of both, greedy"),
        ("--rule algorithm1", "the leaderless aggregator needs coupled noise"),
        ("--top-p 0", "top_p 0.0 must be above 0"),
        ("--min-p 2", "min_p 2.0 must be between 0 and 1"),
        ("--seed -3", "seed -3 is not between 0 and"),
        ("--latency 5", "'5' is not a duration"),
        ("--latency -5ms", "'-5ms' is not a duration"),
        ("--bandwidth 0mbit", "a bandwidth must be above 0"),
        ("--link moon", "there is no link profile 'moon'"),
        ("--key-file missing", "cannot read the key file missing: No such file"),
        ("--tls-cert mine", "a certificate needs its private key"),
        ("--tls-ca missing", "cannot use the authority missing"),
    ],
)
def test_what_makes_no_sense_is_refused_before_anything_is_loaded(
    run: Run, arguments: str, said: str
) -> None:
    outcome = run("device", *arguments.split())
    assert (outcome.code, outcome.output) == (1, "")
    assert said in outcome.line


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ("device --port 99999", "Invalid value for '--port'"),
        ("device --temperature -1", "Invalid value for '--temperature'"),
        ("device --temperature nan", "Invalid value for '--temperature'"),
        ("device --relevance-temperature 0", "Invalid value for '--relevance-temperature'"),
        ("device --relevance-temperature nan", "Invalid value for '--relevance-temperature'"),
        ("device --max-tokens 0", "Invalid value for '--max-tokens'"),
        ("device --max-tokens many", "Invalid value for '--max-tokens'"),
        ("device --run-ahead 0", "Invalid value for '--run-ahead'"),
        ("device --documents-per-side -1", "Invalid value for '--documents-per-side'"),
        ("device --reweight-every -1", "Invalid value for '--reweight-every'"),
        ("device --chunk-words 0", "Invalid value for '--chunk-words'"),
        ("device --on-loss cry", "Invalid value for '--on-loss': 'cry' is not one of 'alone'"),
        ("device --device abacus", "Invalid value for '--device'"),
        ("device --wat", "No such option: --wat"),
        ("device --ask", "'--ask' requires an argument"),
        ("device what", "unexpected extra argument"),
        ("index", "Missing argument"),
        ("trace", "Missing argument"),
        ("profile --rows 0", "Invalid value for '--rows'"),
        ("sing", "No such command 'sing'"),
        ("bench sing", "No such command 'sing'"),
    ],
)
def test_a_wrong_call_is_one_line_too(run: Run, arguments: str, said: str) -> None:
    outcome = run(*arguments.split())
    assert (outcome.code, outcome.output) == (2, "")
    assert said in outcome.line


def test_a_short_key_is_refused(run: Run, tmp_path: Path) -> None:
    (tmp_path / "key").write_text("secret")
    assert "shorter than 16 bytes" in run("device", "--key-file", "key").line


def test_half_a_certificate_is_refused(run: Run) -> None:
    assert "needs its private key" in run("cloud", "--tls-cert", "mine").line
    assert "give --tls-cert" in run("cloud", "--tls-ca", "theirs").line
    assert "cannot use the certificate a" in run("cloud", "--tls-cert", "a", "--tls-key", "b").line


def test_a_model_that_is_not_there_is_named(run: Run) -> None:
    assert run("device", "--model", "moon").line.startswith("moon is neither a bundled model")


@pytest.mark.slow
def test_what_is_missing_when_everything_is_loaded_is_one_line(run: Run) -> None:
    assert "there is no file or directory" in run("index", "nowhere").line
    assert "is `dragonrt cloud` running there?" in run("device", "--port", "1").line
    assert "listening on 0.0.0.0 lets anyone in" in run("cloud", "--host", "0.0.0.0").line
    assert "cannot write the trace nowhere/t" in run("cloud", "--trace", "nowhere/t").line


def test_errors_are_shown_in_full_to_who_asks(run: Run) -> None:
    with pytest.raises(DragonError, match="unknown codec"):
        run("--verbose", "device", "--codec", "zip")
