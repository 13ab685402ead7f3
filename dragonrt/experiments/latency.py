"""Latency injection on the user's own pair: the same questions over slower and slower links.

Every method of the comparison answers every question at every extra round trip. Nothing else
changes: models, documents, seed and the real network below the emulated link stay.
"""

import csv
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from statistics import median

from dragonrt.errors import DragonError
from dragonrt.experiments.arena import Given, emulated
from dragonrt.experiments.comparison import (
    LEADERLESS,
    ORACLES,
    Measured,
    Method,
    measured,
)
from dragonrt.experiments.picture import COLOURS, MARKERS, picture
from dragonrt.experiments.sample_sides import LoadedSide
from dragonrt.link.profile import LinkProfile
from dragonrt.modes.question import Question
from dragonrt.modes.settings import DragonSettings
from dragonrt.node.endpoints import Address

COLUMNS = (
    *("extra_round_trip_ms", "round_trip_ms", "method", "question", "tokens", "first_ms"),
    *("ms_per_token", "ms_between_tokens", "bytes", "accepted_device", "accepted_cloud"),
    "same_text",
)


@dataclass(frozen=True, slots=True)
class Injected:
    """What was measured at one extra round trip; times in seconds."""

    extra_s: float
    round_trip_s: float
    found: Measured


@dataclass(frozen=True, slots=True)
class LatencyPlan:
    """Which questions are asked, how, and at which extra round trips (seconds)."""

    prompts: Sequence[str]
    question: Question
    how: DragonSettings
    round_trips_s: Sequence[float]

    async def run(
        self,
        device: LoadedSide,
        cloud: Address,
        progress: Callable[[int, int, str], None] = lambda done, total, of: None,
    ) -> list[Injected]:
        """Connect once per round trip and ask by every method. Raises DragonError.

        The documents are read once before anything is timed.
        """
        results: list[Injected] = []
        total, done = len(self.round_trips_s) * (len(ORACLES) + 1), 0
        for extra_s in self.round_trips_s:

            def count(method: Method, extra_s: float = extra_s) -> None:
                nonlocal done
                progress(done, total, f"{method.name}, {1000 * extra_s:g} ms")
                done += 1

            slower = emulated(LinkProfile(latency_s=extra_s / 2)) if extra_s else None
            address = replace(cloud, emulate=slower)
            async with device.connected_to(address) as arena:
                if not results:
                    once = replace(self.question, max_tokens=1)
                    await arena.ask_each(self.prompts, once, LEADERLESS.settings(self.how))
                found = await measured(
                    arena, self.prompts, self.question, self.how, on_method=count
                )
                round_trip_s = arena.round_trip_s()
            if round_trip_s is None:
                raise DragonError("the cloud was lost while measuring: run it again")
            results.append(Injected(extra_s, round_trip_s, found))
        return results


def write_rows(results: Sequence[Injected], path: Path) -> None:
    """Write a line per answer as CSV; the columns are COLUMNS. Raises DragonError."""
    try:
        with path.open("w", newline="", encoding="utf-8") as file:
            lines = csv.writer(file)
            lines.writerow(COLUMNS)
            for each in results:
                for method, oracle in ORACLES.items():
                    for number, answer in enumerate(each.found[method]):
                        between_s = answer.between_s
                        same = (
                            answer.tokens == each.found[oracle][number].tokens if oracle else None
                        )
                        lines.writerow(
                            (
                                f"{1000 * each.extra_s:g}",
                                f"{1000 * each.round_trip_s:.1f}",
                                method.name,
                                number,
                                len(answer.tokens),
                                f"{1000 * answer.first_s:.2f}",
                                f"{1000 * answer.seconds / len(answer.tokens):.2f}",
                                "" if between_s is None else f"{1000 * between_s:.2f}",
                                answer.wire_bytes,
                                answer.accepted("device"),
                                answer.accepted("cloud"),
                                "" if same is None else int(same),
                            )
                        )
    except OSError as error:
        raise DragonError(f"cannot write {path}: {error.strerror}") from None


def draw(results: Sequence[Injected], path: Path, title: str) -> None:
    """Write a picture: the median over the questions, per token and until the first token."""
    xs = [1000 * each.extra_s for each in results]
    panels: tuple[tuple[str, Callable[[Given], float | None]], ...] = (
        ("ms per token after the first", lambda answer: answer.between_s),
        ("ms until the first token", lambda answer: answer.first_s),
    )
    with picture(path, columns=2, height_inches=3.8, legend=4) as (figure, axes):
        for axis, (label, seconds) in zip(axes.flat, panels, strict=True):
            for number, method in enumerate(ORACLES):
                each = [
                    [s for answer in at.found[method] if (s := seconds(answer)) is not None]
                    for at in results
                ]
                ys = [1000 * median(values) if values else float("nan") for values in each]
                style = {"color": COLOURS[number], "marker": MARKERS[number]}
                axis.plot(xs, ys, label=method.name, **style)
            axis.set(xlabel="extra round trip (ms)", ylabel=label)
            axis.set_ylim(bottom=0)
        figure.suptitle(title)
