"""`dragonrt demo`: two real processes, sample documents on both, answers and what they cost.

This process is the device; the cloud is a second one, `dragonrt cloud` on loopback. Heavy modules
are imported only once that process has started, so that both load at the same time.
"""

import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import platformdirs
from rich.console import Console
from rich.text import Text

from dragonrt import bundled
from dragonrt.cli.answering import HttpOptions, LinkOptions, Stops
from dragonrt.cli.console import messages, output, say
from dragonrt.cli.loading import chosen_model, make_file
from dragonrt.cli.options import derived, given, option, settings
from dragonrt.link.stream import Stream
from dragonrt.modes.dragon.settings import DragonSettings
from dragonrt.modes.question import Question
from dragonrt.node.connections.addresses import LinkSettings
from dragonrt.service.cloud_process import CloudProcess, cloud_process
from dragonrt.service.http.http_settings import HttpSettings, check_libraries
from dragonrt.side import Side

if TYPE_CHECKING:
    from dragonrt.node.process.programs import Device
    from retrieval import Progress

ROUND_TRIP_OF_100_MS = "50ms"
KNOWN_BY = {
    "private": "only the device's notes know",
    "public": "only the cloud's articles know",
    "both": "neither side knows alone",
}
SIDE_COLOURS = {"device": "cyan", "cloud": "yellow"}

NEXT = """\
Ask something else:     dragonrt demo --ask 'What did Tom promise to do?'
Use your own documents: dragonrt cloud --documents DIR1 & dragonrt device --documents DIR2"""

PAGE = "serve: a page with the sample documents answers at"

Emulate = Callable[[Stream], Stream]
Pair = tuple[CloudProcess, Any, Any, Any, Any]
"""The cloud; the device's settings, model and library; the cloud's address."""


@derived({Question: "Sampling"})
class DemoOptions:
    """Options of sampling and documents."""


@derived({DragonSettings: "Both sides together"})
class TogetherOptions:
    """Options of deciding one text on both sides."""


def demo(
    *,
    ask: Annotated[
        str | None, option("Ask this instead of the sample questions.", full=True)
    ] = None,
    as_json: Annotated[bool, option("Print one JSON object per answer.", "--json")] = False,
    answers: DemoOptions | None = None,
    together: TogetherOptions | None = None,
    stop: Stops = (),
    link: LinkOptions | None = None,
    model: Annotated[
        str | None, option("What both sides run.", default="smollm2 if it is installed")
    ] = None,
    serve: Annotated[bool, option("Serve the sample documents: a page, and OpenAI's API.")] = False,
    http: HttpOptions | None = None,
) -> None:
    """Ask sample documents, private and public, in two processes, and compare."""
    question, how = settings(Question, answers), settings(DragonSettings, together)
    emulate = LinkSettings(link=given(link).get("link", ROUND_TRIP_OF_100_MS)).emulate("device")
    model = chosen_model(model)
    make_file(model)
    if serve:
        served = settings(HttpSettings, http)
        check_libraries()
        _serve(question, how, served, stop, model, emulate)
    else:
        run_demo(question, how, model, emulate, ask=ask, as_json=as_json, stops=stop)


def run_demo(
    question: Question,
    how: DragonSettings,
    model: str,
    emulate: Emulate | None = None,
    *,
    output: Console = output,
    ask: str | None = None,
    as_json: bool = False,
    stops: tuple[str, ...] = (),
) -> None:
    """Ask the sample questions and compare four ways of answering, or `ask` one.

    `question` holds the seed and the sampling; the rule and the aggregator of `how` count with
    `ask` only, as does `as_json`, which prints one JSON object. `emulate` is the device's end of an
    emulated link. Raises DragonError or RetrievalError; the second process has ended then.
    """
    with _pair(model, emulate) as (cloud, *device_of):
        from dragonrt.node.process.programs import run
        from dragonrt.service.comparison import chat, connected
        from dragonrt.service.terminal import talk

        async def demonstrate() -> None:
            async with connected(*device_of) as device:
                if ask is not None:
                    asked = chat(device, question, how, stops)
                    await talk(asked, ask, output, as_json=as_json)
                    return
                place = f"process {cloud.pid}, 127.0.0.1:{device_of[-1].port}"
                _introduce("device", "private notes", "this process", output)
                _introduce("cloud", "public articles", place, output)
                link = "not emulated" if emulate is None else "emulated"
                await _compare(device, question, how, stops, output, link)
                output.print(NEXT, highlight=False, soft_wrap=True)

        run(demonstrate())


def _serve(
    question: Question,
    how: DragonSettings,
    http: HttpSettings,
    stops: tuple[str, ...],
    model: str,
    emulate: Emulate | None,
) -> None:
    """Serve until Ctrl-C. Files dropped on the page are kept beside the notes.

    The notes are a copy in the user's data directory: the package's own are never written to.
    """
    notes = Path(platformdirs.user_data_dir("dragonrt")) / "demo" / "notes"
    shutil.copytree(bundled.documents("device"), notes, dirs_exist_ok=True)
    http = replace(http, uploads=http.uploads or notes / "dropped")
    with _pair(model, emulate, notes, http.uploads) as (_, *own, address):
        from dragonrt.node.connections.addresses import Member
        from dragonrt.node.process.programs import run
        from dragonrt.service.http.application import serve_device
        from dragonrt.service.setup import DeviceSetup

        say("Ctrl-C ends both processes")
        settings, loaded, library = own
        setup = DeviceSetup(question, how, [Member("cloud", address)], settings, None, ())
        serving = serve_device(
            setup,
            loaded,
            library,
            http,
            stops,
            on_notice=lambda notice: say(notice.text),
            on_report=lambda report: None,
            on_ready=lambda url: say(f"{PAGE} {url}"),
        )
        run(serving)


@contextmanager
def _pair(
    model: str, emulate: Emulate | None, notes: Path | None = None, uploads: Path | None = None
) -> Iterator[Pair]:
    """Start the cloud and load the device meanwhile, with its sample documents or `notes`."""
    with cloud_process("--documents", str(bundled.documents("cloud")), model=model) as cloud:
        with messages.status("starting two processes") as status:
            from dragonrt.node.connections.addresses import Address
            from dragonrt.node.process.composition import complete_library, load_model
            from dragonrt.service.comparison import sample_settings

            def show(now: "Progress") -> None:
                part = now.done / max(now.total, 1)
                status.update(f"indexing on both sides: {now.file} ({part:.0%})")

            own = sample_settings("device", model)
            if notes is not None:
                from dragonrt.service.http.private_documents import with_uploads

                own = with_uploads(replace(own, documents=(notes,)), uploads)
            loaded = load_model(own)
            library = complete_library(own, loaded, show, kv=False)
            status.update("waiting for the cloud")
            address = Address("127.0.0.1", cloud.wait_ready(), emulate=emulate)
        yield cloud, own, loaded, library, address


def _introduce(side: Side, kind: str, where: str, output: Console) -> None:
    names = sorted(path.name for path in bundled.documents(side).iterdir())
    some = ", ".join(names[:: len(names) // 3][:3])
    line = Text(f"{side:<6} ", style=SIDE_COLOURS[side])
    line.append(f" {len(names)} {kind} ({some}, ...) in {where}", style="default")
    output.print(line, soft_wrap=True)


async def _compare(
    device: "Device",
    question: Question,
    how: DragonSettings,
    stops: tuple[str, ...],
    output: Console,
    link: str,
) -> None:
    """Answer the questions before the user's eyes, then by the other methods; print the table."""
    from dragonrt.service import comparison
    from dragonrt.service.view import AnswerView

    questions = [each for each in bundled.questions() if each.demo]
    texts, once = [each.text for each in questions], replace(question, max_tokens=1)
    leaderless = comparison.LEADERLESS.settings(how)
    with messages.status("reading the documents once: their KV is kept"):
        await comparison.ask_each(device, texts, once, leaderless, stops)
    asked = []
    for each in questions:
        heading = Text(f"\n{each.text}", style="bold")
        heading.append(f"  ({KNOWN_BY[each.kind]})", style="dim not bold")
        output.print(heading, soft_wrap=True)
        view, chat = AnswerView(output), comparison.chat(device, question, leaderless, stops)
        asked.append(await chat.ask(each.text, on_news=view.show))
        view.end(asked[-1])
    shown = [given for each in asked for given in comparison.given_of(each)]
    with messages.status("") as status:
        found = await comparison.measured(
            device,
            texts,
            question,
            how,
            stops=stops,
            given={comparison.LEADERLESS: shown},
            on_method=lambda each: status.update(f"asking the same questions again: {each.name}"),
        )
    output.print()
    output.print(comparison.evidence_table(asked))
    output.print(
        f"\n{len(questions)} questions, {len(shown)} parts, temperature "
        f"{question.sampler.temperature:g}, "
        f"seed {question.seed}, round trip {1000 * shown[-1].answer.rtt_s:.0f} ms ({link})",
        highlight=False,
    )
    output.print(comparison.comparison_table(found))
    output.print(f"{comparison.LEGEND}\n", style="dim", highlight=False)
