"""`dragonrt simulate`: the real runtime in virtual time, on seeded or on recorded models."""

import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from dragonrt.cli.console import messages, output
from dragonrt.cli.options import EmulationOptions
from dragonrt.errors import DragonError

if TYPE_CHECKING:
    from dragonrt.link.stream import Stream
    from dragonrt.simulation.campaign import Findings

REPLAY = "Replay"


def simulate(
    emulation: EmulationOptions,
    runs: Annotated[
        int, typer.Option("--runs", "-n", metavar="N", min=1, help="Runs, each of its own seed.")
    ] = 1000,
    seed: Annotated[
        int, typer.Option("--seed", metavar="S", min=0, help="Seed of the first run.")
    ] = 0,
    replay: Annotated[
        tuple[Path, Path] | None,
        typer.Option(
            "--replay",
            metavar="DEVICE CLOUD",
            help="Give the answers in these traces again.",
            rich_help_panel=REPLAY,
        ),
    ] = None,
    aggregator: Annotated[
        str | None,
        typer.Option(
            "--aggregator",
            metavar="NAME",
            help="Who decides; else as recorded.",
            rich_help_panel=REPLAY,
        ),
    ] = None,
    run_ahead: Annotated[
        int | None,
        typer.Option(
            "--run-ahead",
            metavar="N",
            min=1,
            max=4096,
            help="Undecided tokens to draft ahead; else as recorded.",
            rich_help_panel=REPLAY,
        ),
    ] = None,
    follow: Annotated[
        bool | None,
        typer.Option(
            "--follow/--no-follow",
            help="Draft along the better side's line; else as recorded.",
            rich_help_panel=REPLAY,
        ),
    ] = None,
) -> None:
    """Search for defects: both sides over failing links, each run repeatable from its seed.

    With --replay: recorded answers again, over the emulated link and by another aggregator.

    Without it the options of the emulated link do not count: the seed draws the link of each run.
    """
    emulate = emulation.emulate("device")
    if replay is None:
        _explore(runs, seed)
    else:
        _replay(replay, emulate, {"run_ahead": run_ahead, "follow": follow}, aggregator)


def _explore(runs: int, seed: int) -> None:
    from rich.progress import (
        BarColumn,
        MofNCompleteColumn,
        Progress,
        TextColumn,
        TimeRemainingColumn,
    )

    from dragonrt.simulation.campaign import explore_many

    started = time.perf_counter()
    columns = (TextColumn("runs"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    with Progress(*columns, console=messages, transient=True) as progress:
        bar = progress.add_task("runs", total=runs)
        findings = explore_many(
            runs, seed, lambda done, violations: progress.update(bar, completed=done)
        )
    _report(findings, seed, time.perf_counter() - started)


def _report(findings: "Findings", seed: int, seconds: float) -> None:
    """Numbers of the whole, then the first violation with the command that repeats it."""
    output.print(
        f"{findings.runs} runs from seed {seed}: {findings.runs / seconds:.1f} runs per second, "
        f"{findings.tokens} tokens, {findings.virtual_s / 3600:.1f} simulated hours in "
        f"{seconds:.1f} s",
        soft_wrap=True,
    )
    output.print(f"violations: {len(findings.violations)}")
    if findings.violations:
        first = findings.violations[0]
        output.print(
            f"first violation, seed {first.seed}: {first.violation}", markup=False, soft_wrap=True
        )
        output.print(f"repeat it with: dragonrt simulate --runs 1 --seed {first.seed}")
        if findings.runs == 1:
            from dragonrt.simulation.scenario import Scenario

            output.print(Scenario.draw(first.seed), soft_wrap=True)
        raise typer.Exit(1)


def _replay(
    traces: tuple[Path, Path],
    emulate: "Callable[[Stream], Stream] | None",
    changes: dict[str, Any],
    aggregator: str | None,
) -> None:
    """A row per answer: as recorded, and as it would be now."""
    from rich import box
    from rich.table import Table

    from dragonrt.experiments.arena import Outcome
    from dragonrt.runtime.plan import placement_of
    from dragonrt.runtime.trace_summary import read_events
    from dragonrt.simulation.recorded import recordings
    from dragonrt.simulation.replay import replay

    events = []
    for path in traces:
        try:
            with path.open(encoding="utf-8", errors="replace") as lines:
                events.append(read_events(lines, str(path)))
        except OSError as error:
            raise DragonError(f"cannot read the trace {path}: {error.strerror}") from None
    placement = None if aggregator is None else placement_of(aggregator)
    table = Table(box=box.SIMPLE_HEAD)
    for name in ("tokens", "recorded", "ms/token", "accepted", "replayed", "ms/token", "accepted"):
        table.add_column(name, justify="right", no_wrap=True)
    for recorded in recordings(*events):
        changed = recorded.under(placement, **changes)
        answer = replay(changed, emulate)
        counts = answer.counts
        table.add_row(
            str(len(recorded.tokens)),
            recorded.plan.placement.value,
            f"{1e3 * recorded.seconds_per_token:.1f}",
            _shares(recorded.accepted["device"], recorded.accepted["cloud"]),
            changed.plan.placement.value,
            f"{1e3 * (Outcome(answer).between_s or 0.0):.1f}",
            _shares(
                counts.own_accepted / max(counts.own_compared, 1),
                counts.other_accepted / max(counts.other_compared, 1),
            ),
        )
    output.print(table)
    output.print("accepted: the device's drafts, the cloud's; ms/token: after the first token")


def _shares(device: float, cloud: float) -> str:
    return f"{100 * device:.0f}%, {100 * cloud:.0f}%"
