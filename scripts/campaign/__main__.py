"""`scripts/campaign/run`: the real runtime in virtual time, on seeded or on recorded models."""

import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from cyclopts import App

from dragonrt.cli import run, set_up_logging
from dragonrt.cli.answering import LinkOptions
from dragonrt.cli.console import output
from dragonrt.cli.options import derived, given, option, settings
from dragonrt.errors import DragonError
from dragonrt.modes.registry import MODES
from dragonrt.modes.settings import DragonSettings
from dragonrt.node.addresses import LinkSettings

if TYPE_CHECKING:
    from dragonrt.link.stream import Stream
    from scripts.campaign.campaign import Findings

REPLAY = "Replay"
ALL = "all"


@derived({DragonSettings: REPLAY}, only=("aggregator", "run_ahead", "follow"))
class ReplayOptions:
    """What is changed of recorded answers."""


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
    replay: Annotated[
        tuple[Path, Path] | None,
        option("Give the answers in these traces again.", kind="DEVICE CLOUD"),
    ] = None,
    changes: ReplayOptions | None = None,
    link: LinkOptions | None = None,
) -> None:
    """Search for defects: both sides over failing links, each run repeatable from its seed."""
    emulate = settings(LinkSettings, link).emulate("device")
    if mode != ALL and mode not in MODES:
        raise DragonError(f"unknown mode {mode!r}: choose one of {ALL}, {', '.join(MODES)}")
    if replay is None:
        _explore(runs, seed, None if mode == ALL else mode)
    else:
        _replay(replay, emulate, given(changes))


def _explore(runs: int, seed: int, mode: str | None) -> None:
    from dragonrt.cli.loading import counting
    from scripts.campaign.campaign import explore_many

    started = time.perf_counter()
    with counting("runs") as progress:
        findings = explore_many(runs, seed, mode, lambda done, violations: progress(done, runs))
    _report(findings, seed, mode, time.perf_counter() - started)


def _report(findings: "Findings", seed: int, mode: str | None, seconds: float) -> None:
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
            from scripts.campaign.scenario import Scenario

            output.print(Scenario.draw(first.seed, mode), soft_wrap=True)
        raise SystemExit(1)


def _replay(
    traces: tuple[Path, Path],
    emulate: "Callable[[Stream], Stream] | None",
    changes: dict[str, Any],
) -> None:
    """A row per answer: as recorded, and as it would be now."""
    from rich import box
    from rich.table import Table

    from dragonrt.traces.counts import AnswerCounts
    from dragonrt.traces.file import read_trace
    from dragonrt.traces.statistics import dragon, statistics
    from scripts.campaign.recorded import recordings
    from scripts.campaign.replay import replay

    table = Table(box=box.SIMPLE_HEAD)
    for name in ("tokens", "recorded", "ms/token", "accepted", "replayed", "ms/token", "accepted"):
        table.add_column(name, justify="right", no_wrap=True)
    for recorded in recordings(*(read_trace(path) for path in traces)):
        changed = recorded.under(changes)
        numbers = statistics(AnswerCounts.of(replay(changed, emulate).records), dragon)
        accepted = numbers["acceptance"]
        table.add_row(
            str(len(recorded.tokens)),
            recorded.settings.aggregator.value,
            f"{1e3 * recorded.seconds_per_token:.1f}",
            _shares(recorded.accepted["device"], recorded.accepted["cloud"]),
            changed.settings.aggregator.value,
            f"{numbers['ms_per_token']:.1f}",
            _shares(accepted["device"] or 0.0, accepted["cloud"] or 0.0),
        )
    output.print(table)
    output.print("accepted: the device's drafts, the cloud's; ms/token: after the first token")


def _shares(device: float, cloud: float) -> str:
    return f"{100 * device:.0f}%, {100 * cloud:.0f}%"


def main() -> None:
    """Run the command line."""
    set_up_logging()
    run(app)


if __name__ == "__main__":
    main()
