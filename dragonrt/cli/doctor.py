"""`dragonrt doctor`: is all well here, and on the way to the cloud?"""

import asyncio
from datetime import date
from typing import TYPE_CHECKING

from rich.text import Text

from dragonrt.cli.answering import DOCUMENTS, Hosts
from dragonrt.cli.console import output
from dragonrt.cli.options import NETWORK, derived, given, settings
from dragonrt.errors import DragonError
from dragonrt.node.addresses import NetworkSettings
from dragonrt.node.side_settings import SideSettings

if TYPE_CHECKING:
    from dragonrt.node.diagnosis import Finding

COLOURS = {"ok": "green", "warn": "yellow", "fail": "red"}
INSPECTED = (
    *("model", "on", "dtype", "threads", "adapter", "prompt", "documents", "index", "store"),
    *("port", "key_file", "tls", "tls_cert", "tls_key", "tls_ca"),
)


@derived({SideSettings: DOCUMENTS, NetworkSettings: NETWORK}, only=INSPECTED)
class InspectedOptions:
    """What a side would answer with, and how it would reach the hosts."""


def doctor(*, own: InspectedOptions | None = None, host: Hosts = ()) -> None:
    """Look at everything an answer needs; exit code 1 where something has to be mended."""
    from dragonrt.node.diagnosis import diagnose

    reached = settings(NetworkSettings, own)
    side = settings(SideSettings, own, side="device")
    hosts = host if host or "port" in given(own) else None

    async def look() -> list[str]:
        return [_print(finding) async for finding in diagnose(side, reached, hosts, date.today())]

    if "fail" in asyncio.run(look()):
        raise DragonError("not all is well: see the lines that begin with fail")


def _print(finding: "Finding") -> str:
    line = Text(f"{finding.level:<4}  ", style=COLOURS[finding.level])
    remedy = f": {finding.remedy}" if finding.level != "ok" and finding.remedy else ""
    line.append(f"{finding.what:<10}  {finding.seen}{remedy}", style="default")
    output.print(line, soft_wrap=True)
    return finding.level
