"""`scripts/campaign/run`: the real runtime in virtual time, on seeded models."""

import time
from typing import Annotated

from cyclopts import App

from dragonrt.cli import run, set_up_logging
from dragonrt.cli.console import output
from dragonrt.cli.loading import counting
from dragonrt.cli.options import option
from dragonrt.errors import DragonError
from dragonrt.modes.registry import MODES
from scripts.campaign.campaign import Findings, explore_many
from scripts.campaign.scenario import Scenario

ALL = "all"


app = App(name="scripts/campaign/run", help="Search for defects in virtual time.")


@app.default
def simulate(
    *,
    mode: Annotated[
        str, option(f"{ALL}, or one of {', '.join(MODES)}.", kind="NAME", default=ALL)
    ] = ALL,
    runs: Annotated[
        int, option("Runs, each of its own seed.", "--runs", "-n", default="1000", low=1)
    ] = (1000),
    seed: Annotated[int, option("Seed of the first run.", default="0", low=0)] = 0,
) -> None:
    """Search for defects: both sides over failing links, each run repeatable from its seed."""
    if mode != ALL and mode not in MODES:
        raise DragonError(f"unknown mode {mode!r}: choose one of {ALL}, {', '.join(MODES)}")
    started, only = time.perf_counter(), None if mode == ALL else mode
    with counting("runs") as progress:
        findings = explore_many(runs, seed, only, lambda done, violations: progress(done, runs))
    _report(findings, seed, only, time.perf_counter() - started)


def _report(findings: Findings, seed: int, mode: str | None, seconds: float) -> None:
    """Numbers of the whole, then the first violation with the command that repeats it."""
    output.print(
        f"{findings.runs} runs from seed {seed}: {findings.runs / seconds:.1f} runs per second, "
        f"{findings.tokens} tokens, {findings.virtual_s / 3600:.1f} simulated hours in "
        f"{seconds:.1f} s",
        soft_wrap=True,
    )
    slowest = ", ".join(f"{name} {100 * part:.0f}%" for name, part in findings.slowest.items())
    output.print(f"slowest answer, of the time in which it must end: {slowest}", soft_wrap=True)
    output.print(f"violations: {len(findings.violations)}")
    if findings.violations:
        first = findings.violations[0]
        output.print(
            f"first violation, mode {first.mode}, seed {first.seed}: {first.violation}",
            markup=False,
            soft_wrap=True,
        )
        again = "" if mode is None else f" --mode {mode}"
        output.print(f"repeat it with: scripts/campaign/run --runs 1 --seed {first.seed}{again}")
        if findings.runs == 1:
            output.print(Scenario.draw(first.seed, mode), soft_wrap=True)
        raise SystemExit(1)


def main() -> None:
    """Run the command line."""
    set_up_logging()
    run(app)


if __name__ == "__main__":
    main()
