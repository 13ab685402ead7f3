"""`dragonrt simulate`: seeded runs of the real runtime in virtual time."""

import time
from typing import TYPE_CHECKING, Annotated

import typer

from dragonrt.cli.console import messages, output

if TYPE_CHECKING:
    from dragonrt.simulation.campaign import Findings


def simulate(
    runs: Annotated[
        int, typer.Option("--runs", "-n", metavar="N", min=1, help="Runs, each of its own seed.")
    ] = 1000,
    seed: Annotated[
        int, typer.Option("--seed", metavar="S", min=0, help="Seed of the first run.")
    ] = 0,
) -> None:
    """Search for defects: both sides over failing links, each run repeatable from its seed."""
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
