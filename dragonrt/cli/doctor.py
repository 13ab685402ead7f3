"""`dragonrt doctor`: is all well here, and on the way to the cloud?"""

import asyncio
from datetime import date
from typing import TYPE_CHECKING

from rich.text import Text

from dragonrt.cli.answering import DOCUMENTS, Hosts, ReachingOptions
from dragonrt.cli.console import output
from dragonrt.cli.options import derived, given, settings
from dragonrt.errors import DragonError
from dragonrt.node.addresses import NetworkSettings
from dragonrt.node.side_settings import SideSettings

if TYPE_CHECKING:
    from dragonrt.node.diagnosis import Finding

COLOURS = {"ok": "green", "warn": "yellow", "fail": "red"}
INSPECTED = ("model", "on", "dtype", "threads", "adapter", "prompt", "documents", "index", "store")


@derived({SideSettings: DOCUMENTS}, only=INSPECTED)
class InspectedOptions:
    """What a side would answer with."""


def doctor(
    *,
    own: InspectedOptions | None = None,
    host: Hosts = (),
    network: ReachingOptions | None = None,
) -> None:
    """Look at everything an answer needs; exit code 1 where something has to be mended."""
    from dragonrt.node.diagnosis import diagnose

    reached = settings(NetworkSettings, network)
    side = settings(SideSettings, own, side="device")
    hosts = host if host or "port" in given(network) else None

    async def look() -> bool:
        failed = False
        async for finding in diagnose(side, reached, hosts, date.today()):
            _print(finding)
            failed |= finding.level == "fail"
        return failed

    if asyncio.run(look()):
        raise DragonError("not all is well: see the lines that begin with fail")


def _print(finding: "Finding") -> None:
    line = Text(f"{finding.level:<4}  ", style=COLOURS[finding.level])
    line.append(f"{finding.what:<10}  {finding.seen}", style="default")
    if finding.level != "ok" and finding.remedy:
        line.append(f": {finding.remedy}", style="default")
    output.print(line, soft_wrap=True)
