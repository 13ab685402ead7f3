"""Latency injection on the user's own pair: the same questions over slower and slower links.

Every method of the comparison answers every question at every extra round trip. Models,
documents, seed and the real network below the emulated link stay.
"""

import csv
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from statistics import median
from typing import Any

from rich.console import Console

from dragonrt.backends.model import LanguageModel
from dragonrt.errors import DragonError
from dragonrt.experiments.comparison import (
    LEADERLESS,
    LEGEND,
    ORACLES,
    Measured,
    Method,
    ask_each,
    comparison_table,
    connected,
    measured,
)
from dragonrt.experiments.picture import COLOURS, MARKERS, picture
from dragonrt.link.emulation import EmulatedStream
from dragonrt.link.profile import LinkProfile
from dragonrt.link.stream import Stream
from dragonrt.modes.dragon.settings import DragonSettings
from dragonrt.modes.question import Question
from dragonrt.node.connections.endpoints import Address
from dragonrt.node.process.library import Library
from dragonrt.node.process.side_settings import SideSettings


@dataclass(frozen=True, slots=True)
class Injected:
    """The answers at one extra round trip; times in seconds."""

    extra_s: float
    round_trip_s: float
    found: Measured


async def inject(
    side: SideSettings,
    model: LanguageModel,
    library: Library,
    cloud: Address,
    prompts: Sequence[str],
    question: Question,
    how: DragonSettings,
    round_trips_s: Sequence[float],
    progress: Callable[[int, int, str], None],
) -> list[Injected]:
    """Connect once per extra round trip and ask by every method. Raises DragonError.

    The documents are read once before anything is timed.
    """
    results: list[Injected] = []
    total, done = len(round_trips_s) * (len(ORACLES) + 1), 0
    for extra_s in round_trips_s:
        link = LinkProfile(latency_s=extra_s / 2)

        def count(method: Method, extra_s: float = extra_s) -> None:
            nonlocal done
            progress(done, total, f"{method.name}, {1000 * extra_s:g} ms")
            done += 1

        def slower(stream: Stream, link: LinkProfile = link) -> Stream:
            return EmulatedStream(stream, *link.models("device", 0))

        address = replace(cloud, emulate=slower if extra_s else None)
        async with connected(side, model, library, address) as device:
            if not results:
                once = replace(question, max_tokens=1)
                await ask_each(device, prompts, once, LEADERLESS.settings(how))
            found = await measured(device, prompts, question, how, on_method=count)
            peer = device.connectors["cloud"].peer
        if peer is None:
            raise DragonError("the cloud was lost while measuring: run it again")
        results.append(Injected(extra_s, peer.round_trip_s, found))
    return results


def report(results: Sequence[Injected], title: str, folder: Path, output: Console) -> None:
    """Print a table per round trip; write latency.csv and latency.png. Raises DragonError."""
    for each in results:
        output.print(
            f"\n{len(each.found[LEADERLESS])} answers, {1000 * each.extra_s:g} ms added, round "
            f"trip {1000 * each.round_trip_s:.0f} ms in all"
        )
        output.print(comparison_table(each.found))
    output.print(f"{LEGEND}\n", style="dim")
    rows = [
        _row(each, method, number)
        for each in results
        for method in ORACLES
        for number in range(len(each.found[method]))
    ]
    table, plot = folder / "latency.csv", folder / "latency.png"
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with table.open("w", newline="", encoding="utf-8") as file:
            lines = csv.DictWriter(file, list(rows[0]))
            lines.writeheader()
            lines.writerows(rows)
    except OSError as error:
        raise DragonError(f"cannot write {table}: {error.strerror}") from None
    _draw(results, plot, title)
    for path in (table, plot):
        output.print(str(path), markup=False, soft_wrap=True)


def _row(each: Injected, method: Method, number: int) -> dict[str, Any]:
    answer, oracle = each.found[method][number], ORACLES[method]
    between_s = answer.between_s
    return {
        "extra_round_trip_ms": f"{1000 * each.extra_s:g}",
        "round_trip_ms": f"{1000 * each.round_trip_s:.1f}",
        "method": method.name,
        "question": number,
        "tokens": len(answer.tokens),
        "first_ms": f"{1000 * answer.first_s:.2f}",
        "ms_per_token": f"{1000 * answer.seconds / len(answer.tokens):.2f}",
        "ms_between_tokens": "" if between_s is None else f"{1000 * between_s:.2f}",
        "bytes": answer.wire_bytes,
        "accepted_device": answer.accepted("device"),
        "accepted_cloud": answer.accepted("cloud"),
        "same_text": int(answer.tokens == each.found[oracle][number].tokens) if oracle else "",
    }


def _draw(results: Sequence[Injected], path: Path, title: str) -> None:
    """Draw the medians over the questions, per token and until the first token."""
    xs = [1000 * each.extra_s for each in results]
    panels = {"between_s": "ms per token after the first", "first_s": "ms until the first token"}
    with picture(path, columns=2, height_inches=3.8, legend=4) as (figure, axes):
        for axis, (name, label) in zip(axes.flat, panels.items(), strict=True):
            for number, method in enumerate(ORACLES):
                each = [[getattr(answer, name) for answer in at.found[method]] for at in results]
                known = [[s for s in values if s is not None] for values in each]
                ys = [1000 * median(values) if values else float("nan") for values in known]
                style = {"color": COLOURS[number], "marker": MARKERS[number]}
                axis.plot(xs, ys, label=method.name, **style)
            axis.set(xlabel="extra round trip (ms)", ylabel=label)
            axis.set_ylim(bottom=0)
        figure.suptitle(title)
