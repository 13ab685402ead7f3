"""`dragonrt device --mode speculative`: its plan, and what does not fit it."""

import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from dragonrt.cli.console import output
from dragonrt.cli.federation import FederationOptions
from dragonrt.cli.modes import BlockOptions, choose_mode
from dragonrt.cli.options import AnswerOptions
from dragonrt.cli.sprinting import SprinterOptions
from dragonrt.control import Heuristic
from dragonrt.runtime.endpoints import Address
from dragonrt.runtime.modes.speculative import BlockShape, SpeculativePlan
from dragonrt.sampling.samplers import Sampler

Run = Callable[..., Any]


def plan(answers: AnswerOptions | None = None, **blocks: Any) -> Any:
    options = (answers or AnswerOptions(), BlockOptions(**blocks), FederationOptions())
    chosen = choose_mode("speculative", *options, SprinterOptions(), Address("127.0.0.1", 1))
    assert chosen.model == "dragon-draft"
    return chosen.plan


def test_without_options_ids_of_coupled_drafts_travel_in_a_pipeline() -> None:
    expected = SpeculativePlan(seed=0, sampler=Sampler(temperature=0.0))
    assert plan() == expected
    assert (expected.rule, expected.codec, expected.shape.outstanding > 1) == (
        "coupled",
        "ids",
        True,
    )


def test_the_options_shape_the_blocks() -> None:
    assert plan(pipelined=False).shape == BlockShape(length=8, outstanding=1)
    assert plan(pipelined=False, block_tokens=3).shape == BlockShape(length=3, outstanding=1)
    assert plan(budget=900).shape == BlockShape(budget=900)
    controlled = plan(controller="heuristic:60")
    assert controlled.shape.controller == Heuristic(60)
    settings = controlled.settings()
    assert (settings["controller"], settings["block_tokens"]) == ("heuristic:60", None)
    assert (plan().settings()["controller"], plan().settings()["block_tokens"]) == (None, 4)
    assert plan(AnswerOptions(rule="rejection", codec="csqs:0.01:100")).codec == "csqs:0.01:100"


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ("--rule rejection", "the codec ids sends none"),
        ("--rule algorithm1", "unknown rule 'algorithm1'"),
        ("--codec zip", "unknown codec 'zip'"),
        ("--controller static:4", "is not a controller"),
        ("--controller static:4:100 --block-tokens 3", "leave out --block-tokens"),
        ("--aggregator greedy", "--aggregator has no meaning with --mode speculative"),
        ("--worker 127.0.0.1:1", "--worker has no meaning with --mode speculative"),
    ],
)
def test_options_that_do_not_fit(run: Run, arguments: str, said: str) -> None:
    outcome = run("device", "--mode", "speculative", *arguments.split())
    assert (outcome.code, outcome.output) == (1, "")
    assert said in outcome.line


def test_options_of_blocks_mean_nothing_in_the_mode_without(run: Run) -> None:
    assert "--budget has no meaning with --mode dragon" in run("device", "--budget", "9").line


def test_a_trace_with_blocks_is_summed_up_beside_one_without(run: Run, tmp_path: Path) -> None:
    ours: list[dict[str, Any]] = [
        {"event": "open", "accepted": 0},
        {"event": "block", "round": 1, "step": 0, "tokens": 4, "bits": 90},
        {"event": "verdict", "round": 1, "tokens": 4, "accepted": 1, "verify": 0.02},
        {"event": "decide", "cause": "target", "waited": 0.1},
        {"event": "decide", "cause": "target", "waited": 0.0},
        {"event": "close", "finish": "length"},
    ]
    for name, side, events in (("ours", "device", ours), ("theirs", "cloud", ours[:1])):
        lines = ({"t": 1.0, "side": side, "session": 1, **event} for event in events)
        (tmp_path / name).write_text("".join(json.dumps(line) + "\n" for line in lines))
    rows = {
        cells[0]: cells[1:]
        for line in run("trace", "theirs", "ours").output.splitlines()
        if len(cells := re.split(r"\s{2,}", line.strip())) == 3
    }
    assert rows["accepted drafts, device"] == ["-", "50%"]
    assert rows["blocks sent, tokens of each"] == ["-", "1, 4.0"]
    assert rows["bits sent per token"] == ["-", "45.0"]
    assert rows["blocks with a token replaced"] == ["-", "100%"]
    assert rows["time to verify a block"] == ["-", "20.00 ms"]


def test_a_clouds_many_devices_take_no_number_its_place(
    run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(output, "width", 80)
    lines = [
        {"t": 1.0 + peer, "side": "cloud", "session": 1, "peer": f"127.0.0.1:4915{peer}", **event}
        for peer in range(2)
        for event in (
            {"event": "open", "accepted": 0},
            {"event": "receive", "message": "block", "bytes": 12345},
            {"event": "decide", "cause": "own", "waited": 0.1},
            {"event": "close", "finish": "cancelled"},
        )
    ]
    (tmp_path / "cloud").write_text("".join(json.dumps(line) + "\n" for line in lines))
    printed = run("trace", "cloud").output
    assert "…" not in printed
    assert printed.count("cancelled") == 2
    assert "1 of #1" in printed
    assert "1 of #2" in printed
