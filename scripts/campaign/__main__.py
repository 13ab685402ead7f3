"""The command `scripts/campaign/run`: the real runtime in virtual time, with simulated models."""

import time
from typing import Annotated

from cyclopts import App

from dragonrt.cli import run, set_up_logging
from dragonrt.cli.console import output
from dragonrt.cli.loading import showing_progress
from dragonrt.cli.options import option
from dragonrt.errors import DragonError
from dragonrt.modes import MODES
from scripts.campaign.exploration import RunOutcome, explore_many
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
    ] = 1000,
    seed: Annotated[int, option("Seed of the first run.", default="0", low=0)] = 0,
) -> None:
    """Search for defects: both sides over failing links, each run repeatable from its seed."""
    if mode != ALL and mode not in MODES:
        raise DragonError(f"unknown mode {mode!r}: choose one of {ALL}, {', '.join(MODES)}")
    started, only = time.perf_counter(), None if mode == ALL else mode
    with showing_progress("runs") as progress:
        outcomes = explore_many(runs, seed, only, lambda done: progress(done, runs))
    _report(outcomes, only, time.perf_counter() - started)


def _report(outcomes: list[RunOutcome], mode: str | None, seconds: float) -> None:
    """Numbers of the whole, then the first violation with the command that repeats it."""
    runs, hours = len(outcomes), sum(each.duration_s for each in outcomes) / 3600
    output.print(
        f"{runs} runs from seed {outcomes[0].seed}: {runs / seconds:.1f} runs per second, "
        f"{sum(each.tokens for each in outcomes)} tokens, {hours:.1f} simulated hours in "
        f"{seconds:.1f} s",
        soft_wrap=True,
    )
    slowest: dict[str, float] = {}
    for each in outcomes:
        slowest[each.mode] = max(each.slowest, slowest.get(each.mode, 0.0))
    shown = ", ".join(f"{name} {100 * part:.0f}%" for name, part in slowest.items())
    output.print(f"slowest answer, of the time in which it must end: {shown}", soft_wrap=True)
    violations = [each for each in outcomes if each.violation is not None]
    output.print(f"violations: {len(violations)}")
    if violations:
        first = violations[0]
        output.print(
            f"first violation, mode {first.mode}, seed {first.seed}: {first.violation}",
            markup=False,
            soft_wrap=True,
        )
        again = "" if mode is None else f" --mode {mode}"
        output.print(f"repeat it with: scripts/campaign/run --runs 1 --seed {first.seed}{again}")
        if runs == 1:
            output.print(Scenario.draw(first.seed, mode), soft_wrap=True)
        raise SystemExit(1)


def main() -> None:
    """Run the command `scripts/campaign/run` with the arguments of the process."""
    set_up_logging()
    run(app)


if __name__ == "__main__":
    main()
