"""`dragonrt doctor --link`: a report of a pair of sides, without names of hosts, files or texts."""

import os
import platform
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from statistics import median
from typing import Any

from rich.table import Table

from dragonrt import __version__, bundled
from dragonrt.backends.model import LanguageModel
from dragonrt.modes.question import Question
from dragonrt.node.connections.addresses import Address
from dragonrt.node.connections.link_probe import ProbedLink, probe
from dragonrt.node.process.side_settings import SideSettings
from dragonrt.service import comparison
from dragonrt.side import SIDES, Side
from dragonrt.traces.events import LatencyEstimated


@dataclass(frozen=True, slots=True)
class LinkReport:
    """What was measured: the link alone, then answers over it by each method."""

    model: LanguageModel
    link: ProbedLink
    found: comparison.Measured

    @property
    def forward_s(self) -> dict[Side, float | None]:
        """The seconds of one draft on each side, as both measured them (SPEC 1.4)."""
        records = [
            record.event
            for given in self.found[comparison.COUPLED_GREEDY]
            for record in given.answer.records
            if isinstance(record.event, LatencyEstimated)
        ]
        drafts = {side: [getattr(each, f"{side}_s") for each in records] for side in SIDES}
        return {side: median(seconds) if seconds else None for side, seconds in drafts.items()}

    def to_json(self) -> dict[str, Any]:
        """Return all numbers; `methods` by name, as the demonstration's table has them."""
        link, (sent, again) = self.link, self.link.segments or (None, None)
        milliseconds = {
            "connect": link.connect_s,
            "round_trip": link.median_s,
            "round_trip_least": min(link.trips_s),
            "round_trip_most": max(link.trips_s),
            "jitter": link.jitter_s,
            **{f"forward_{side}": seconds for side, seconds in self.forward_s.items()},
        }
        return {
            "dragonrt": __version__,
            "system": f"{platform.system()} {platform.machine()}, {os.cpu_count()} cores",
            "device": {"model": self.model.name, "engine": self.model.backend.info.engine},
            "cloud": {"software": link.peer.software, "model": link.peer.model},
            "milliseconds": _rounded(milliseconds, 1e3),
            "bits_per_s_up": None if link.up is None else round(link.up),
            "segments_sent": sent,
            "segments_sent_again": again,
            "methods": {
                method.name: _rounded(comparison.costs(self.found[method]))
                for method in comparison.ORACLES
            },
        }

    def lines(self) -> Sequence[str]:
        """Return a line for each part of the report but the table."""
        said = self.to_json()
        ms, (sent, again) = said["milliseconds"], self.link.segments or (0, 0)
        up = said["bits_per_s_up"]
        forward = (f"{side} {_shown(ms[f'forward_{side}'])} ms" for side in SIDES)
        return (
            f"system      dragonrt {__version__}, {said['system']}",
            f"device      {self.model.name}, {said['device']['engine']}",
            f"cloud       {self.link.peer.model}, {self.link.peer.software}",
            f"round trip  {ms['round_trip']:.2f} ms ({ms['round_trip_least']:.2f} to "
            f"{ms['round_trip_most']:.2f}); jitter {ms['jitter']:.2f} ms",
            f"rate        {f'{up / 1e6:.3g} Mbit/s up' if up else 'too fast to tell'}",
            f"loss        {f'{again} of {sent} segments sent again' if sent else 'unknown'}",
            f"a forward   {', '.join(forward)}",
        )

    def table(self) -> Table:
        """Return what a token takes by each method."""
        return comparison.comparison_table(self.found)


async def report(side: SideSettings, model: LanguageModel, cloud: Address) -> LinkReport:
    """Measure a link and answer public sample questions over it. Raises DragonError.

    The device answers without documents, so that none of its own is sent.
    """
    link, question = await probe(cloud, model), Question()
    prompts = [each.text for each in bundled.questions() if each.demo and each.kind == "public"]
    async with comparison.connected(side, model, None, cloud) as device:
        once, leaderless = replace(question, max_tokens=1), comparison.LEADERLESS.settings()
        await comparison.ask_each(device, prompts, once, leaderless)  # the cloud reads its own
        found = await comparison.measured(device, prompts, question, comparison.USUAL)
    return LinkReport(model, link, found)


def _rounded(values: Mapping[str, float | None], scale: float = 1.0) -> dict[str, float | None]:
    return {n: None if each is None else round(scale * each, 3) for n, each in values.items()}


def _shown(milliseconds: float | None) -> str:
    return "-" if milliseconds is None else f"{milliseconds:.1f}"
