"""Every mistake of a user is one line on stderr and an exit code, never a traceback."""

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from dragonrt.cli.options import REMOVED
from dragonrt.errors import DragonError

Run = Callable[..., Any]
FEDERATED = "--mode federated"


@pytest.mark.parametrize(
    ("arguments", "named"),
    [
        ("--codec zip", "'zip'"),
        ("--rule best", "'best'"),
        ("--rule algorithm1", "algorithm1"),
        ("--aggregator me", "aggregator"),
        ("--link=-5ms", "'-5ms'"),
        ("--link moon", "'moon'"),
        ("--key-file missing", "missing"),
        ("--tls-cert mine", "certificate"),
        ("--tls-ca missing", "missing"),
        ("--host 192.0.2.1", "--insecure"),
        ("--port 99999", "99999"),
        ("--temperature nan", "--temperature"),
        ("--max-tokens 0", "--max-tokens"),
        ("--relevance-temperature nan", "--relevance-temperature"),
        ("--on-loss cry", "'cry'"),
        ("--on abacus", "'abacus'"),
        ("--watch", "--documents"),
        ("--mode solo", "'solo'"),
        ("--budget 9", "--budget"),
        ("--worker 127.0.0.1:1", "--worker"),
        ("--mode sprinter --run-ahead 4", "--run-ahead"),
        (FEDERATED, "--worker"),
        (f"{FEDERATED} --worker here", "'here'"),
        (f"{FEDERATED} --worker a:1=much", "'a:1=much'"),
        (f"{FEDERATED} --worker a:1=0", "a:1 "),
        (f"{FEDERATED} --worker a:1=nan", "a:1 "),
        (f"{FEDERATED} --worker a:1=1 --worker b:1", "weight"),
        (f"{FEDERATED} --worker a:1 --worker a:1", "once"),
        (f"{FEDERATED} --worker a:1 --port 9", "--worker"),
        ("--mode speculative --controller static:4", "static:4"),
        ("--mode sprinter --verifier moon", "moon"),
        ("--model moon", "moon"),
    ],
)
def test_nonsense_is_refused_before_loading(run: Run, arguments: str, named: str) -> None:
    outcome = run("device", *arguments.split())
    assert (outcome.code, outcome.output) == (1, "")
    assert named in outcome.line


def test_weights_have_one_source(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DRAGONRT_WEIGHTS", "relevance")
    assert "workers" in run("device", *FEDERATED.split(), "--worker", "a:1=1").line


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ("device --max-tokens many", "Invalid value for --max-tokens: unable to convert"),
        ("device --wat", "Unknown option: --wat"),
        ("serve --jitter 5ms", "--jitter was removed: "),
        ("device --ask", "--ask requires an argument"),
        ("device --ask=", "--ask"),
        ("demo --ask=", "--ask"),
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


def test_a_removed_option_names_its_replacement(
    run: Run, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setitem(REMOVED, "--old-way", "use --new-way")
    for arguments in (["--old-way", "3"], ["--old-way=3"], ["--old-way"]):
        assert "use --new-way" in run("device", *arguments).line
    settings = tmp_path / "settings.toml"
    settings.write_text("[device]\nold-way = 3\n", encoding="utf-8")
    assert "use --new-way" in run("--config", str(settings), "device").line
    monkeypatch.setenv("DRAGONRT_OLD_WAY", "3")
    assert "use --new-way" in run("device").line


def test_an_unprotected_way_is_said_where_it_is_wanted(run: Run) -> None:
    outcome = run("device", "--host", "192.0.2.1", "--insecure", "--model", "moon")
    assert outcome.code == 1
    assert outcome.errors.startswith("--insecure: ")
    assert "192.0.2.1" in outcome.errors


def test_half_a_certificate_is_refused(run: Run) -> None:
    assert "needs its private key" in run("cloud", "--tls-cert", "mine").line
    assert "give --tls-cert" in run("cloud", "--tls-ca", "theirs").line
    assert "cannot use the certificate a" in run("cloud", "--tls-cert", "a", "--tls-key", "b").line


@pytest.mark.slow
def test_what_is_missing_when_everything_is_loaded_is_one_line(run: Run) -> None:
    assert "there is no file or directory" in run("index", "nowhere").line
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("DRAGONRT_LARGEST_FILE", "many")
        assert "is no size" in run("index", ".").line
    away = run("device", "--port", "1", "--on-loss", "wait", "--ask", "Who?")
    assert (away.code, "is `dragonrt cloud` running there?" in away.errors) == (1, True)
    assert "listening on 0.0.0.0 lets anyone in" in run("cloud", "--host", "0.0.0.0").line
    assert "cannot write the trace nowhere/t" in run("cloud", "--trace", "nowhere/t").line


def test_errors_are_shown_in_full_to_who_asks(run: Run) -> None:
    with pytest.raises(DragonError):
        run("--verbose", "device", "--codec", "zip")


def test_an_interruption_while_modules_load_is_no_traceback(tmp_path: Path) -> None:
    (tmp_path / "cyclopts.py").write_text("raise KeyboardInterrupt")
    paths = os.pathsep.join([str(tmp_path), *filter(None, sys.path)])
    ended = subprocess.run(
        [sys.executable, "-m", "dragonrt", "--version"],
        env=os.environ | {"PYTHONPATH": paths},
        capture_output=True,
        text=True,
    )
    assert (ended.returncode, ended.stdout, ended.stderr) == (130, "", "")
