"""The workers of a coordinator on the command line."""

from collections.abc import Callable
from typing import Any

import pytest

from dragonrt.cli.federation import FederationOptions
from dragonrt.runtime.endpoints import Address

Run = Callable[..., Any]


def test_workers_are_as_protected_as_one_cloud_is() -> None:
    options = FederationOptions(worker=["a.example:7071=0.7", "[::1]:7072=2"])
    first, second = options.workers(Address("127.0.0.1", 7070, key=b"k" * 16))
    assert (first.name, first.weight, first.address.key) == ("a.example:7071", 0.7, b"k" * 16)
    assert (second.address.host, second.address.port, second.weight) == ("::1", 7072, 2.0)


def test_without_weights_all_are_equal() -> None:
    options = FederationOptions(worker=["a:1", "b:2"], weights="relevance")
    assert [worker.weight for worker in options.workers(Address("", 0))] == [1.0, 1.0]


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ("", "name each one with --worker"),
        ("--worker here", "'here' is no worker: write HOST:PORT"),
        ("--worker a:b", "'a:b' is no worker"),
        ("--worker a:70000", "'a:70000' is no worker"),
        ("--worker a:1=much", "'a:1=much' is no worker"),
        ("--worker a:1=0", "the weight of a:1 must be above 0"),
        ("--worker a:1=nan", "the weight of a:1 must be above 0"),
        ("--worker a:1=1 --worker b:1", "give every worker a weight, or none"),
        ("--worker a:1 --worker a:1", "each worker may be named once"),
        ("--worker a:1=1 --weights relevance", "give the workers none"),
        ("--worker a:1 --codec ids", "codec ids sends no distributions"),
        ("--worker a:1 --rule sample-quantize", "use coupled or rejection"),
        ("--worker a:1 --budget 9", "--budget has no meaning with --mode federated"),
        ("--worker a:1 --on-loss wait", "--on-loss has no meaning with --mode federated"),
        ("--worker a:1 --port 9", "name each worker with --worker"),
    ],
)
def test_what_makes_no_sense_is_refused(run: Run, arguments: str, said: str) -> None:
    outcome = run("device", "--mode", "federated", *arguments.split())
    assert (outcome.code, outcome.output) == (1, "")
    assert said in outcome.line


def test_workers_mean_nothing_in_other_modes(run: Run) -> None:
    outcome = run("device", "--worker", "a:1")
    assert "--worker has no meaning with --mode dragon" in outcome.line


@pytest.mark.slow
def test_workers_that_cannot_be_reached_are_one_line(run: Run) -> None:
    places = ["--worker", "127.0.0.1:9", "--worker", "127.0.0.1:11"]
    outcome = run("device", "--mode", "federated", *places, "--ask", "Who?")
    assert outcome.code == 1
    assert "worker 127.0.0.1:9: cannot reach 127.0.0.1:9" in outcome.errors
