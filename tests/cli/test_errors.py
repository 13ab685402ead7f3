"""Every mistake of a user is one line on stderr and an exit code, never a traceback."""

from collections.abc import Callable
from typing import Any

import pytest

from dragonrt.errors import DragonError

Run = Callable[..., Any]


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ("--codec zip", "unknown codec 'zip'"),
        ("--rule best", "unknown rule 'best'; valid are coupled and algorithm1"),
        ("--aggregator me", "aggregator must be one of both, greedy"),
        ("--rule algorithm1", "the leaderless aggregator needs coupled noise"),
        ("--top-p 0", "top_p 0.0 must be above 0"),
        ("--seed -3", "seed must be an integer from 0 to"),
        ("--latency 5", "'5' is not a duration"),
        ("--latency=-5ms", "'-5ms' is not a duration"),
        ("--bandwidth 0mbit", "a bandwidth must be above 0"),
        ("--jitter-kind wild", "jitter_kind must be one of uniform, normal, sinusoidal"),
        ("--link moon", "there is no link profile 'moon'"),
        ("--key-file missing", "cannot read the key file missing: No such file"),
        ("--tls-cert mine", "a certificate needs its private key"),
        ("--tls-ca missing", "cannot use the authority missing"),
        ("--port 99999", "port must be an integer from 0 to 65535, not 99999"),
        ("--temperature nan", "temperature must be a number from 0 to 100, not nan"),
        ("--relevance-temperature nan", "relevance_temperature must be a number from"),
        ("--max-tokens 0", "max_tokens must be an integer from 1 to 65536, not 0"),
        ("--on-loss cry", "on_loss must be one of alone, wait, not 'cry'"),
        ("--on abacus", "on must be one of auto, cpu, cuda, mps, not 'abacus'"),
        ("--watch", "--watch needs to know what to watch: name it with --documents"),
        ("--mode solo", "unknown mode 'solo': choose one of dragon, speculative"),
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
        ("device --max-tokens many", "Invalid value for --max-tokens: unable to convert"),
        ("device --wat", "Unknown option: --wat"),
        ("device --ask", "--ask requires an argument"),
        ("device --follow=maybe", "--follow"),
        ("device what", "unexpected argument: what"),
        ("index", "requires an argument"),
        ("trace", "requires an argument"),
        ("profile --rows 0", 'Invalid value "0" for --rows'),
        ("sing", 'Unknown command "sing"'),
        ("keys sing", 'Unknown command "sing"'),
    ],
)
def test_a_wrong_call_is_one_line_too(run: Run, arguments: str, said: str) -> None:
    outcome = run(*arguments.split())
    assert (outcome.code, outcome.output) == (2, "")
    assert said in outcome.line


def test_half_a_certificate_is_refused(run: Run) -> None:
    assert "needs its private key" in run("cloud", "--tls-cert", "mine").line
    assert "give --tls-cert" in run("cloud", "--tls-ca", "theirs").line
    assert "cannot use the certificate a" in run("cloud", "--tls-cert", "a", "--tls-key", "b").line


def test_a_model_that_is_not_there_is_named(run: Run) -> None:
    assert run("device", "--model", "moon").line.startswith("moon is neither a bundled model")


@pytest.mark.slow
def test_what_is_missing_when_everything_is_loaded_is_one_line(run: Run) -> None:
    assert "there is no file or directory" in run("index", "nowhere").line
    assert "is no size" in run("index", ".", "--largest-file", "many").line
    away = run("device", "--port", "1", "--on-loss", "wait", "--ask", "Who?")
    assert (away.code, "is `dragonrt cloud` running there?" in away.errors) == (1, True)
    assert "listening on 0.0.0.0 lets anyone in" in run("cloud", "--host", "0.0.0.0").line
    assert "cannot write the trace nowhere/t" in run("cloud", "--trace", "nowhere/t").line


def test_errors_are_shown_in_full_to_who_asks(run: Run) -> None:
    with pytest.raises(DragonError, match="unknown codec"):
        run("--verbose", "device", "--codec", "zip")
