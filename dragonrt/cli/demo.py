"""`dragonrt demo` and `dragonrt experiment latency`: measure answers of two real processes.

This process is the device. It starts the cloud, `dragonrt cloud`, as a second process on loopback.
"""

import csv
import itertools
import shutil
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import platformdirs
from cyclopts import App
from rich.text import Text

from dragonrt import bundled
from dragonrt.cli.answering import DOCUMENTS, HttpOptions, LinkOptions, Stops
from dragonrt.cli.console import messages, output, say
from dragonrt.cli.loading import chosen_model, load, make_file, showing_progress
from dragonrt.cli.options import NETWORK, derived, given, option, settings
from dragonrt.errors import DragonError
from dragonrt.link.profile import parse_duration
from dragonrt.modes.dragon.settings import DragonSettings
from dragonrt.modes.question import Question
from dragonrt.node.connections.addresses import LinkSettings, NetworkSettings
from dragonrt.node.process.side_settings import SideSettings
from dragonrt.service.cloud_process import CloudProcess, cloud_process
from dragonrt.service.http.http_settings import HttpSettings, check_libraries
from dragonrt.side import SIDES
from retrieval.files import read_text

if TYPE_CHECKING:
    from dragonrt.node.process.composition import Loaded
    from dragonrt.node.process.programs import Device
    from dragonrt.service.comparison import Measured, Method
    from retrieval import Progress

ROUND_TRIP_OF_100_MS = "50ms"
KNOWN_BY = {
    "private": "only the device's notes know",
    "public": "only the cloud's articles know",
    "both": "neither side knows alone",
}
NEXT = """\
Ask something else:     dragonrt demo --ask 'What did Tom promise to do?'
Use your own documents: dragonrt cloud --documents DIR1 & dragonrt device --documents DIR2"""


@derived({Question: "Sampling"})
class DemoOptions:
    """Options of the answers of a demo or experiment, such as --seed; each is None unless given."""


@derived({DragonSettings: "Both sides together"})
class TogetherOptions:
    """Options of mode dragon, in which both sides decode together; each is None unless given."""


def demo(
    *,
    ask: Annotated[
        str | None, option("Question to ask. Default: compare by samples.", full=True)
    ] = None,
    as_json: Annotated[bool, option("Print one JSON object per answer.", "--json")] = False,
    answers: DemoOptions | None = None,
    together: TogetherOptions | None = None,
    stop: Stops = (),
    link: LinkOptions | None = None,
    model: Annotated[
        str | None, option("Model of both sides.", default="smollm2 if it is installed")
    ] = None,
    serve: Annotated[bool, option("Serve a page with the sample documents.")] = False,
    http: HttpOptions | None = None,
) -> None:
    """Run `dragonrt demo`: ask sample documents in two processes, and compare decoding methods."""
    question, how = settings(Question, answers), settings(DragonSettings, together)
    emulate = LinkSettings(link=given(link).get("link", ROUND_TRIP_OF_100_MS)).emulate("device")
    model, served = chosen_model(model), settings(HttpSettings, http)
    make_file(model)
    notes = None
    if serve:
        check_libraries()
        # A copy: the package's own notes are never written to.
        notes = Path(platformdirs.user_data_dir("dragonrt")) / "demo" / "notes"
        shutil.copytree(bundled.documents("device"), notes, dirs_exist_ok=True)
        served = replace(served, uploads=served.uploads or notes / "dropped")
    with _pair(model, notes, served.uploads) as (cloud, loaded):
        from dragonrt.node.connections.addresses import Address, Member
        from dragonrt.node.process.programs import run
        from dragonrt.service.comparison import chat, connected
        from dragonrt.service.setup import DeviceSetup
        from dragonrt.service.terminal import talk

        address = Address("127.0.0.1", cloud.wait_ready(), emulate=emulate)
        setup = DeviceSetup(question, how, [Member("cloud", address)], loaded.settings, None, ())
        if serve:
            from dragonrt.service.http.application import serve_device

            def ready(url: str) -> None:
                say(f"serve: a page with the sample documents answers at {url}")

            say("Ctrl-C ends both processes")
            run(serve_device(setup, loaded, served, stop, lambda notice: say(notice.text), ready))
            return

        async def demonstrate() -> None:
            async with connected(loaded, address) as device:
                if ask is not None:
                    asked = chat(device, question, how, stop)
                    await talk(asked, ask, output, as_json=as_json)
                    return
                there = f"process {cloud.pid}, 127.0.0.1:{address.port}"
                places = ("private notes", "this process"), ("public articles", there)
                for which, (kind, where) in zip(SIDES, places, strict=True):
                    names = sorted(path.name for path in bundled.documents(which).iterdir())
                    some = ", ".join(names[:: len(names) // 3][:3])
                    line = f"{which:<6}  {len(names)} {kind} ({some}, ...) in {where}"
                    output.print(line, highlight=False, soft_wrap=True)
                await _compare(device, question, how, stop)
                output.print(NEXT, highlight=False, soft_wrap=True)

        run(demonstrate())


@contextmanager
def _pair(
    model: str, notes: Path | None, uploads: Path | None
) -> "Iterator[tuple[CloudProcess, Loaded]]":
    """Start the cloud and load the device meanwhile, with its sample documents or `notes`."""
    with cloud_process("--documents", str(bundled.documents("cloud")), model=model) as cloud:
        with messages.status("starting two processes") as status:
            from dragonrt.node.process.composition import Loaded, complete_library, load_model
            from dragonrt.service.comparison import sample_settings

            def show(now: "Progress") -> None:
                part = now.done / max(now.total, 1)
                status.update(f"indexing on both sides: {now.file} ({part:.0%})")

            own = sample_settings("device", model)
            if notes is not None:
                from dragonrt.service.http.private_documents import with_uploads

                own = with_uploads(replace(own, documents=(notes,)), uploads)
            its_model = load_model(own)
            library = complete_library(own, its_model, show, kv=False)
            status.update("waiting for the cloud")
            cloud.wait_ready()
        yield cloud, Loaded(own, its_model, library)


async def _compare(
    device: "Device", question: Question, how: DragonSettings, stops: tuple[str, ...]
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
    shown = comparison.given_of(asked)
    with messages.status("") as status:

        def tell(method: "Method") -> None:
            status.update(f"asking the same questions again: {method.name}")

        more: Any = {"given": {comparison.LEADERLESS: shown}, "stops": stops}
        found = await comparison.measure(device, texts, question, how, on_method=tell, **more)
    output.print()
    output.print(comparison.evidence_table(asked))
    sampling = f"temperature {question.sampler.temperature:g}, seed {question.seed}"
    trip = f"round trip {1000 * shown[-1].answer.rtt_s:.0f} ms"
    counts = f"{len(questions)} questions, {len(shown)} parts"
    _print_costs(f"\n{counts}, {sampling}, {trip}", found)
    output.print(f"{comparison.LEGEND}\n", style="dim", highlight=False)


def _print_costs(title: str, found: "Measured") -> None:
    from dragonrt.service.comparison import comparison_table

    output.print(title, highlight=False)
    output.print(comparison_table(found))


@derived({SideSettings: DOCUMENTS, NetworkSettings: NETWORK}, without=("rebuild", "share_sources"))
class MeasuredOptions:
    """Options of `dragonrt experiment latency`: model, documents, network; None unless given."""


experiment = App(name="experiment", help="Measure your own pair of sides.")


@experiment.command
def latency(
    *,
    own: MeasuredOptions | None = None,
    cloud_documents: Annotated[
        Path | None,
        option("Documents of the cloud that is started. Default: the sample articles.", kind="DIR"),
    ] = None,
    questions: Annotated[
        Path | None, option("File, a question per line. Default: sample questions.", kind="FILE")
    ] = None,
    round_trip: Annotated[
        tuple[str, ...], option("Round trip to add. May be repeated.", default="0ms, 100ms, 300ms")
    ] = ("0ms", "100ms", "300ms"),
    answers: DemoOptions | None = None,
    together: TogetherOptions | None = None,
    results: Annotated[
        Path, option("Directory to write latency.csv to.", kind="DIR", default="results")
    ] = Path("results"),
) -> None:
    """Compare four decoding methods by the same questions, at increasing round-trip times.

    Write each answer's time, acceptance and bytes to latency.csv. Without --host, start a cloud.
    """
    extra_s = [parse_duration(each) for each in round_trip]
    reached = settings(NetworkSettings, own)
    remote = bool({"host", "port"} & given(own).keys())
    if remote and cloud_documents is not None:
        raise DragonError("a remote cloud has its own documents: leave --cloud-documents out")
    side = settings(SideSettings, own, side="device")
    side = replace(side, model=chosen_model(side.model))
    if not side.has_documents:
        side = replace(side, documents=(bundled.documents("device"),))
    elif questions is None:
        raise DragonError("your documents need questions: give --questions FILE, one per line")
    prompts = _prompts(questions)
    question, how = settings(Question, answers), settings(DragonSettings, together)

    with ExitStack() as stack:
        cloud = None
        if not remote:
            public = str(cloud_documents or bundled.documents("cloud"))
            options = ("--documents", public, "--dtype", side.dtype)
            cloud = stack.enter_context(cloud_process(*options, model=side.model))

        from dragonrt.node.process.programs import run
        from dragonrt.service import comparison

        loaded = load(side)
        if loaded.library is None:
            raise DragonError("this experiment needs documents: --documents DIR")
        address = reached.device_address(LinkSettings())
        if cloud is not None:
            address = replace(address, host="127.0.0.1", port=cloud.wait_ready())
        progress = stack.enter_context(showing_progress("latency"))
        done, total = itertools.count(), len(extra_s) * (len(comparison.ORACLES) + 1)

        def tell(method: "Method") -> None:
            progress(next(done), total, method.name)

        async def measure() -> "list[tuple[float, float, Measured]]":
            found = []
            for each_s in extra_s:
                slower = LinkSettings(link=f"{500 * each_s}ms" if each_s else None)
                there = replace(address, emulate=slower.emulate("device"))
                async with comparison.connected(loaded, there) as device:
                    given = prompts, question, how
                    answers = await comparison.measure(device, *given, on_method=tell)
                    peer = device.connectors["cloud"].peer
                if peer is None:
                    raise DragonError("the cloud was lost while measuring: run it again")
                found.append((each_s, peer.round_trip_s, answers))
            return found

        found = run(measure())
    rows: list[dict[str, Any]] = []
    for each_s, trip_s, by_method in found:
        count = len(by_method[comparison.LEADERLESS])
        times = f"{1000 * each_s:g} ms added, round trip {1000 * trip_s:.0f} ms in all"
        _print_costs(f"\n{count} answers, {times}", by_method)
        head = {
            "extra_round_trip_ms": f"{1000 * each_s:g}",
            "round_trip_ms": f"{1000 * trip_s:.1f}",
        }
        rows += (head | row for row in comparison.rows(by_method))
    output.print(f"{comparison.LEGEND}\n", style="dim")
    table = results / "latency.csv"
    try:
        results.mkdir(parents=True, exist_ok=True)
        with table.open("w", newline="", encoding="utf-8") as file:
            lines = csv.DictWriter(file, list(rows[0]))
            lines.writeheader()
            lines.writerows(rows)
    except OSError as error:
        raise DragonError(f"cannot write {table}: {error.strerror}") from None
    output.print(str(table), markup=False, soft_wrap=True)


def _prompts(file: Path | None) -> list[str]:
    """Return the questions to ask. Raises DragonError for a file without any."""
    if file is None:
        return [each.text for each in bundled.questions() if each.demo]
    try:
        found = [line.strip() for line in read_text(file).splitlines() if line.strip()]
    except (OSError, ValueError) as error:
        raise DragonError(f"cannot read the questions in {file}: {error}") from None
    if not found:
        raise DragonError(f"{file} has no question: write one per line")
    return found
