"""The demonstration: two real processes, sample documents on both, answers and what they cost.

This process is the device; the cloud is a second one, `dragonrt cloud` on loopback. Heavy modules
are imported only once that process has started, so that both load at the same time.
"""

import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import platformdirs
from rich.console import Console
from rich.text import Text

from dragonrt import bundled
from dragonrt.experiments.cloud_process import CloudProcess, cloud_process
from dragonrt.link.stream import Stream
from dragonrt.modes.dragon.settings import DragonSettings
from dragonrt.modes.question import Question
from dragonrt.side import Side

if TYPE_CHECKING:
    from dragonrt.node.process.programs import Device
    from dragonrt.service.http.http_settings import HttpSettings
    from retrieval import Progress

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


@contextmanager
def _pair(
    model: str,
    messages: Console,
    emulate: Emulate | None,
    notes: Path | None = None,
    uploads: Path | None = None,
) -> Iterator[Pair]:
    """Start the cloud and load the device meanwhile, with its sample documents or `notes`."""
    with cloud_process("--documents", str(bundled.documents("cloud")), model=model) as cloud:
        with messages.status("starting two processes") as status:
            from dragonrt.experiments.comparison import sample_settings
            from dragonrt.node.connections.endpoints import Address
            from dragonrt.node.process.composition import complete_library, load_model

            def show(now: "Progress") -> None:
                part = now.done / max(now.total, 1)
                status.update(f"indexing on both sides: {now.file} ({part:.0%})")

            settings = sample_settings("device", model)
            if notes is not None:
                from dragonrt.service.http.private_documents import with_uploads

                settings = with_uploads(replace(settings, documents=(notes,)), uploads)
            loaded = load_model(settings)
            library = complete_library(settings, loaded, show, kv=False)
            status.update("waiting for the cloud")
            address = Address("127.0.0.1", cloud.wait_ready(), emulate=emulate)
        yield cloud, settings, loaded, library, address


def run_demo(
    question: Question,
    how: DragonSettings,
    model: str,
    *,
    output: Console,
    messages: Console,
    emulate: Emulate | None = None,
    ask: str | None = None,
    as_json: bool = False,
    stops: tuple[str, ...] = (),
) -> None:
    """Ask the sample questions and compare four ways of answering, or `ask` one.

    `question` holds the seed and the sampling; the rule and the aggregator of `how` count with
    `ask` only, as does `as_json`, which prints one JSON object. `emulate` is the device's end of an
    emulated link. Raises DragonError or RetrievalError; the second process has ended then.
    """
    with _pair(model, messages, emulate) as (cloud, *device_of):
        from dragonrt.experiments.comparison import connected, conversation
        from dragonrt.node.process.programs import run
        from dragonrt.service.terminal import talk

        async def demonstrate() -> None:
            async with connected(*device_of) as device:
                if ask is not None:
                    talked = conversation(device, question, how, stops)
                    await talk(talked, ask, output, as_json=as_json)
                    return
                _introduce("device", "private notes", "this process", output)
                place = f"process {cloud.pid}, 127.0.0.1:{device_of[-1].port}"
                _introduce("cloud", "public articles", place, output)
                link = "emulated" if emulate is not None else "not emulated"
                await _compare(device, question, how, stops, output, messages, link)
                output.print(NEXT, highlight=False, soft_wrap=True)

        run(demonstrate())


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
    messages: Console,
    link: str,
) -> None:
    """Answer the questions before the user's eyes, then by the other methods; print the table."""
    from dragonrt.experiments import comparison
    from dragonrt.service.view import AnswerView

    questions = [each for each in bundled.questions() if each.demo]
    texts, once = [each.text for each in questions], replace(question, max_tokens=1)
    leaderless = comparison.LEADERLESS.settings(how)
    with messages.status("reading the documents once: their KV is kept"):
        await comparison.ask_each(device, texts, once, leaderless, stops)
    replies = []
    for each in questions:
        heading = Text(f"\n{each.text}", style="bold")
        heading.append(f"  ({KNOWN_BY[each.kind]})", style="dim not bold")
        output.print(heading, soft_wrap=True)
        view = AnswerView(output)
        talked = comparison.conversation(device, question, leaderless, stops)
        reply = await talked.ask(each.text, view.piece, view.notice)
        view.end(reply)
        replies.append((each.text, reply))
    shown = [given for _, reply in replies for given in comparison.given_of(reply)]
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
    output.print(comparison.evidence_table(replies))
    output.print(
        f"\n{len(questions)} questions, {len(shown)} parts, temperature "
        f"{question.sampler.temperature:g}, "
        f"seed {question.seed}, round trip {1000 * shown[-1].answer.rtt_s:.0f} ms ({link})",
        highlight=False,
    )
    output.print(comparison.comparison_table(found))
    output.print(f"{comparison.LEGEND}\n", style="dim", highlight=False)


def serve_demo(
    question: Question,
    how: DragonSettings,
    http: "HttpSettings",
    stops: tuple[str, ...],
    model: str,
    *,
    messages: Console,
    say: Callable[[str], None],
    emulate: Emulate | None = None,
) -> None:
    """Serve until Ctrl-C; `say` prints where. Files dropped on the page are kept beside the notes.

    The notes are a copy in the user's data directory: the package's own are never written to.
    Raises DragonError or RetrievalError.
    """
    notes = Path(platformdirs.user_data_dir("dragonrt")) / "demo" / "notes"
    shutil.copytree(bundled.documents("device"), notes, dirs_exist_ok=True)
    http = replace(http, uploads=http.uploads or notes / "dropped")
    with _pair(model, messages, emulate, notes, http.uploads) as pair:
        from dragonrt.node.connections.addresses import Member
        from dragonrt.node.process.programs import run
        from dragonrt.service.http.application import serve_device

        _, settings, loaded, library, address = pair
        say("Ctrl-C ends both processes")
        run(
            serve_device(
                settings,
                loaded,
                library,
                [Member("cloud", address)],
                how,
                http,
                question,
                None,
                stops,
                on_notice=lambda notice: say(notice.text),
                on_report=lambda report: None,
                on_ready=lambda url: say(f"{PAGE} {url}"),
            )
        )
