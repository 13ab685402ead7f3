"""The commands `dragonrt cloud`, `device`, `serve` and `mcp`, and `doctor` to check a set-up."""

import asyncio
import json
from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import date
from functools import partial
from typing import TYPE_CHECKING, Annotated

from cyclopts import Parameter
from rich.text import Text

from dragonrt.cli.console import output, say, say_listening
from dragonrt.cli.loading import load, say_languages, say_report
from dragonrt.cli.options import LINK, NETWORK, derived, given, option, settings
from dragonrt.errors import DragonError
from dragonrt.modes import DEFAULT_MODE, MODES
from dragonrt.modes.question import Question
from dragonrt.node.connections.addresses import Address, LinkSettings, NetworkSettings
from dragonrt.node.connections.admission import CloudLimits
from dragonrt.node.process.side_settings import SideSettings
from dragonrt.service.http.http_settings import HttpSettings, StatusSettings, check_libraries
from dragonrt.service.setup import CloudSetup, DeviceSetup

if TYPE_CHECKING:
    from dragonrt.backends.model import LanguageModel
    from dragonrt.node.process.composition import Loaded
    from dragonrt.node.process.diagnosis import Finding
    from dragonrt.traces.events import Noticed, OnNotice
    from retrieval import Report

COLOURS = {"ok": "green", "warn": "yellow", "fail": "red"}
DOCUMENTS = "Model and documents"
SAMPLING = "Sampling"
PREVIEW = "Before the first question show what is sent, and ask. No terminal: send nothing."
WORKERS = "Mode " + next(each.name for each in MODES.values() if each.several)


@derived(
    {
        SideSettings: DOCUMENTS,
        NetworkSettings: NETWORK,
        CloudLimits: "Limits",
        StatusSettings: "HTTP",
        LinkSettings: LINK,
    },
    without=("rebuild", "tls", "insecure"),
)
class CloudOptions:
    """Options of `dragonrt cloud`: model, documents, network and limits; each None unless given."""


@derived(
    {SideSettings: DOCUMENTS, NetworkSettings: NETWORK, LinkSettings: LINK},
    without=("rebuild", "share_sources", "host"),
)
class DeviceOptions:
    """Options of a device for its model, documents and network; each is None unless given."""


@derived(
    {SideSettings: DOCUMENTS, NetworkSettings: NETWORK},
    only=(
        *("model", "on", "dtype", "threads", "adapter", "prompt", "documents", "index", "store"),
        *("llama_library", "port", "key_file", "tls", "tls_cert", "tls_key", "tls_ca"),
        "insecure",
    ),
)
class InspectedOptions:
    """Options of `dragonrt doctor`: model, documents and network to check; None unless given."""


@derived({HttpSettings: "HTTP"})
class HttpOptions:
    """Options of the HTTP service, for the fields of HttpSettings; each is None unless given."""


@derived({LinkSettings: LINK})
class LinkOptions:
    """Options of an emulated link, for the fields of LinkSettings; each is None unless given."""


@derived(
    {Question: SAMPLING} | {each.settings: f"Mode {each.name}" for each in MODES.values()},
    "Several modes",
)
class AnswerOptions:
    """Options of an answer: sampling, length, seed, settings of each mode; None unless given."""


def cloud(*, own: CloudOptions | None = None) -> None:
    """Run `dragonrt cloud`: serve devices with a model and public documents until stopped."""
    where, limits = settings(StatusSettings, own), settings(CloudLimits, own)
    if where.http_port is not None:
        check_libraries()
    setup = CloudSetup.of(given(own))
    _warn(setup.warnings)

    from dragonrt.node.process import programs

    loaded = load(setup.side)
    model, host = loaded.model, setup.address.host

    def listens(port: int) -> None:
        say_listening(f"cloud: {model.name} on {model.device} listens on {host}:{port}")
        say_languages(loaded)

    at = setup.address, say, limits
    if where.http_port is None:
        programs.run(programs.run_cloud(programs.cloud(loaded, *at), listens))
        return

    from dragonrt.service.http.metrics import CloudStatus

    skipped = 0 if loaded.library is None else loaded.library.skipped
    status = CloudStatus(skipped)
    pages = partial(status.pages, where, lambda url: say(f"cloud: status: {url}"))

    def report(update: "Report | DragonError") -> None:
        status.report(update)
        say_report(update)

    serving = programs.cloud(replace(loaded, on_report=report, listeners=(status.take,)), *at)
    programs.run(programs.run_cloud(serving, listens, pages))


Mode = Annotated[
    str, option("\n".join(f"{each.name}: {each.help}." for each in MODES.values()), kind="NAME")
]
Host = Annotated[
    tuple[str, ...],
    option("Address of the cloud.", "--host", kind="HOST[:PORT]", default="this machine"),
]
Workers = Annotated[
    tuple[str, ...],
    option(
        "Worker (a `dragonrt cloud`) and its weight. Default: equal weights. May be repeated.",
        kind="HOST:PORT[=X]",
        panel=WORKERS,
    ),
]
Stops = Annotated[
    tuple[str, ...], option("Text before which the answer ends. May be repeated.", panel=SAMPLING)
]


def _named(host: Sequence[str]) -> dict[str, str]:
    """Return the setting of an address that is given once. Raises DragonError for several."""
    if len(host) > 1:
        raise DragonError("--host names one cloud: put a load balancer in front of several hosts")
    return {"host": host[0]} if host else {}


@Parameter(name="*")
@dataclass(frozen=True, kw_only=True)
class AskingOptions:
    """The options shared by `dragonrt device`, `serve` and `mcp`: mode, model, network, answers."""

    mode: Mode = DEFAULT_MODE
    own: DeviceOptions | None = None
    host: Host = ()
    answers: AnswerOptions | None = None
    worker: Workers = ()
    stop: Stops = ()

    def setup(self) -> DeviceSetup:
        """Return the settings of a device from these options, and print their warnings."""
        own = given(self.own) | _named(self.host)
        setup = DeviceSetup.of(self.mode, own, given(self.answers), self.worker)
        _warn(setup.warnings)
        return setup


ASKING = AskingOptions()


def _loaded(setup: DeviceSetup) -> "tuple[Loaded, OnNotice]":
    """Load the model, dial the cloud once, index documents; also return a printer of notices."""
    from dragonrt.node.process import programs

    printed: list[Noticed] = []

    def look(model: "LanguageModel") -> None:
        programs.run(programs.check_dialling(model, setup.others, setup.how, printed.append))
        for each in printed:
            say(each.text)

    def notice(found: "Noticed") -> None:
        if found in printed:
            printed.remove(found)
        else:
            say(found.text)

    return load(setup.side, look), notice


def device(
    *,
    by: AskingOptions = ASKING,
    ask: Annotated[str | None, option("Answer this and exit. Default: chat.", full=True)] = None,
    preview: Annotated[bool, option(PREVIEW)] = False,
    as_json: Annotated[bool, option("Print one JSON object per answer.", "--json")] = False,
) -> None:
    """Run `dragonrt device`: chat over private documents, together with a cloud."""
    setup = by.setup()

    from dragonrt.node.process import programs
    from dragonrt.service.chat import Chat
    from dragonrt.service.terminal import BetweenAnswers, talk

    loaded, notice = _loaded(setup)
    lines = BetweenAnswers()
    loaded = replace(loaded, on_report=lines.saying(say_report))

    async def converse() -> None:
        to = setup.others, setup.how, lines.saying(notice)
        async with programs.device(loaded, *to) as connected:
            chat = Chat(connected, setup.question, setup.seed, by.stop)
            if ask is None and not as_json:
                say_languages(loaded)
            show = say if preview else None
            await talk(chat, ask, output, as_json=as_json, lines=lines, show=show)

    programs.run(converse())


def serve(*, by: AskingOptions = ASKING, http: HttpOptions | None = None) -> None:
    """Run `dragonrt serve`: a device over HTTP, with OpenAI's API and a chat page."""
    served = settings(HttpSettings, http)
    setup = by.setup()
    check_libraries()

    from dragonrt.node.process import programs
    from dragonrt.service.http.application import serve_device
    from dragonrt.service.http.private_documents import with_uploads

    setup = replace(setup, side=with_uploads(setup.side, served.uploads))
    loaded, notice = _loaded(setup)

    def ready(url: str) -> None:
        say_listening(f"serve: {loaded.model.name} answers at {url}")
        say_languages(loaded)

    programs.run(serve_device(setup, loaded, served, by.stop, notice, ready))


def mcp(*, by: AskingOptions = ASKING) -> None:
    """Run `dragonrt mcp`: a device as MCP tools for an agent, over stdin and stdout."""
    setup = by.setup()
    try:
        from dragonrt.service.mcp_server import serve_tools
    except ModuleNotFoundError as error:
        raise DragonError(f"this needs {error.name}: pip install 'dragonrt[mcp]'") from None

    from dragonrt.node.process import programs

    loaded, notice = _loaded(setup)
    programs.run(serve_tools(setup, loaded, by.stop, notice))


def doctor(
    *,
    own: InspectedOptions | None = None,
    host: Host = (),
    link: Annotated[
        str | None, option("Measure the link to this cloud instead.", kind="HOST[:PORT]")
    ] = None,
    as_json: Annotated[bool, option("With --link: print one JSON object.", "--json")] = False,
) -> None:
    """Run `dragonrt doctor`: check all that an answer needs; exit with 1 if a check fails."""
    reached = settings(NetworkSettings, own, **_named((link,) if link is not None else host))
    side = settings(SideSettings, own, side="device").with_peers_at([reached.host])
    if link is not None:
        _report_link(side, reached.device_address(LinkSettings()), as_json)
        return
    if as_json:
        raise DragonError("--json is for a report: give --link HOST, too")

    from dragonrt.node.process.diagnosis import diagnose

    dials = bool(host) or "port" in given(own)

    async def look() -> list[str]:
        found = diagnose(side, reached, date.today(), dials=dials)
        return [_print(finding) async for finding in found]

    if "fail" in asyncio.run(look()):
        raise DragonError("a check failed: see the lines that begin with fail")


def _report_link(side: SideSettings, cloud: Address, as_json: bool) -> None:
    from dragonrt.node.process.composition import load_model
    from dragonrt.node.process.programs import run
    from dragonrt.service.comparison import comparison_table, link_report

    report, found = run(link_report(side, load_model(side), cloud))
    if as_json:
        print(json.dumps(report, ensure_ascii=False))
        return
    for name in (each for each in report if each != "methods"):
        several = report[name].items() if isinstance(report[name], dict) else [("", report[name])]
        shown = (f"{each} {'-' if value is None else value}".strip() for each, value in several)
        output.print(f"{name:<20}  {', '.join(shown)}", markup=False, soft_wrap=True)
    output.print(comparison_table(found))


def _print(finding: "Finding") -> str:
    line = Text(f"{finding.level:<4}  ", style=COLOURS[finding.level])
    remedy = f": {finding.remedy}" if finding.level != "ok" and finding.remedy else ""
    line.append(f"{finding.what:<10}  {finding.seen}{remedy}", style="default")
    output.print(line, soft_wrap=True)
    return finding.level


def _warn(lines: Sequence[str]) -> None:
    for line in lines:
        say(line, "yellow")
