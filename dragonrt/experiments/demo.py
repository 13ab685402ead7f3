"""The demonstration: two real processes, sample documents on both, answers and what they cost.

This process is the device; the cloud is a second one, `dragonrt cloud` on loopback. Heavy modules
are imported only once that process has started, so that both load at the same time.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from rich.console import Console
from rich.status import Status
from rich.text import Text

from dragonrt import bundled
from dragonrt.experiments.cloud_process import CloudProcess, cloud_process
from dragonrt.link.stream import Stream
from dragonrt.runtime.endpoints import Address
from dragonrt.runtime.modes.dragon import OnLoss
from dragonrt.runtime.plan import Plan

if TYPE_CHECKING:
    from dragonrt.chat.conversation import Reply
    from dragonrt.experiments.comparison import Pair, Row
    from dragonrt.language.model import LanguageModel
    from dragonrt.runtime.library import Library
    from dragonrt.runtime.process import SideSettings

KNOWN_BY = {
    "private": "only the device's notes know",
    "public": "only the cloud's articles know",
    "both": "neither side knows alone",
}


SIDE_COLOURS = {"device": "cyan", "cloud": "yellow"}


NEXT = """\
Ask something else:     dragonrt demo --ask 'What did Tom promise to do?'
Use your own documents: dragonrt cloud --documents DIR1 & dragonrt device --documents DIR2"""


@dataclass(frozen=True, slots=True)
class Device:
    """This process's side, loaded, and where its cloud is."""

    settings: "SideSettings"
    model: "LanguageModel"
    library: "Library | None"
    address: Address


def run_demo(
    plan: Plan,
    *,
    output: Console,
    messages: Console,
    emulate: Callable[[Stream], Stream] | None = None,
    ask: str | None = None,
    as_json: bool = False,
    stops: tuple[str, ...] = (),
    on_loss: OnLoss = "alone",
    questions: Sequence[bundled.Question] | None = None,
) -> None:
    """Ask the sample questions (or `questions`) and compare four ways of answering, or `ask` one.

    `plan` holds the seed and the sampling; its rule and placement count with `ask` only. `emulate`
    is the device's end of an emulated link. `as_json` prints what is asked as one JSON object.
    Answers go to `output`, everything else to `messages`. Raises DragonError or RetrievalError; the
    second process has ended when this returns or raises.
    """
    with cloud_process("--documents", str(bundled.documents("cloud"))) as cloud:
        with messages.status("starting two processes") as status:
            device = _load(cloud, emulate, status)
        from dragonrt.runtime import main as programs

        if ask is not None:
            programs.run(_ask(device, plan, ask, as_json, stops, on_loss, output))
            return
        _introduce(cloud, output)
        if questions is None:
            questions = [question for question in bundled.questions() if question.demo]
        programs.run(_compare(device, plan, questions, stops, output, messages))
        output.print(NEXT, highlight=False, soft_wrap=True)


def _load(
    cloud: CloudProcess, emulate: Callable[[Stream], Stream] | None, status: Status
) -> Device:
    """Load and index this side while the other process does the same."""
    from dragonrt.language.model import LanguageModel
    from dragonrt.runtime.process import SideSettings, open_library

    settings = SideSettings("device", documents=(bundled.documents("device"),))
    model = LanguageModel.load(settings.model, settings.device, settings.dtype)
    library, _ = open_library(
        settings,
        model,
        lambda now: status.update(f"indexing on both sides: {now.file} ({now.done}/{now.total})"),
    )
    status.update("waiting for the cloud")
    address = Address("127.0.0.1", cloud.wait_ready(), emulate=emulate)
    return Device(settings, model, library, address)


def _introduce(cloud: CloudProcess, output: Console) -> None:
    """Who knows what: the two processes and their documents."""
    where = f"process {cloud.pid}, 127.0.0.1:{cloud.wait_ready()}"
    _introduce_side("device", "private notes", "this process", output)
    _introduce_side("cloud", "public articles", where, output)


def _introduce_side(side: bundled.Side, kind: str, where: str, output: Console) -> None:
    names = sorted(path.name for path in bundled.documents(side).iterdir())
    some = ", ".join(names[:: len(names) // 3][:3])
    line = Text(f"{side:<6} ", style=SIDE_COLOURS[side])
    line.append(f" {len(names)} {kind} ({some}, ...) in {where}", style="default")
    output.print(line, soft_wrap=True)


async def _ask(
    device: Device,
    plan: Plan,
    question: str,
    as_json: bool,
    stops: tuple[str, ...],
    on_loss: OnLoss,
    output: Console,
) -> None:
    from dragonrt.chat.conversation import Conversation
    from dragonrt.chat.terminal import ask_once, ask_once_json
    from dragonrt.runtime import main as programs

    async with programs.device(device.settings, device.model, device.library, device.address) as (
        side,
        connector,
    ):
        conversation = Conversation(side, connector, plan, plan.seed, stops, on_loss)
        if as_json:
            await ask_once_json(conversation, question)
        else:
            await ask_once(conversation, question, output)


async def _compare(
    device: Device,
    plan: Plan,
    questions: Sequence[bundled.Question],
    stops: tuple[str, ...],
    output: Console,
    messages: Console,
) -> None:
    """Answer the questions before the user's eyes, then the other ways, then the table."""
    from dragonrt.experiments.comparison import LEGEND, Pair, comparison_table
    from dragonrt.runtime import main as programs

    async with programs.device(device.settings, device.model, device.library, device.address) as (
        side,
        connector,
    ):
        pair = Pair(side, connector, plan, stops)
        replies = [await _show(pair, question, output) for question in questions]
        rows = await _measure(pair, [question.text for question in questions], replies, messages)
    round_trip_ms = 1000 * max(reply.answer.rtt_s for reply in replies)
    output.print()
    output.print(
        f"{len(questions)} questions, temperature {plan.sampler.temperature:g}, seed {plan.seed}, "
        f"{round_trip_ms:.0f} ms round trip ({'emulated' if device.address.emulate else 'real'})",
        highlight=False,
    )
    output.print(comparison_table(rows))
    output.print(f"{LEGEND}\n", style="dim", highlight=False)


async def _show(pair: "Pair", question: bundled.Question, output: Console) -> "Reply":
    """One question, its answer streamed with its sources."""
    from dragonrt.chat.view import AnswerView
    from dragonrt.experiments.comparison import LEADERLESS

    heading = Text(f"\n{question.text}", style="bold")
    heading.append(f"  ({KNOWN_BY[question.kind]})", style="dim not bold")
    output.print(heading, soft_wrap=True)
    view = AnswerView(output)
    reply = await pair.conversation(LEADERLESS).ask(question.text, view.piece, view.notice)
    view.end(reply)
    return reply


async def _measure(
    pair: "Pair", questions: Sequence[str], leaderless: "list[Reply]", messages: Console
) -> "list[Row]":
    """The rows of all methods; the answers that were shown are the leaderless ones."""
    from dragonrt.experiments import comparison as methods

    measured = {}
    with messages.status("") as status:
        for method in (
            methods.SYNCHRONOUS,
            methods.SYNCHRONOUS_ALGORITHM1,
            methods.ALGORITHM1_GREEDY,
            methods.COUPLED_GREEDY,
        ):
            status.update(f"asking the same questions again: {method.name}")
            only_texts = method is methods.SYNCHRONOUS_ALGORITHM1
            ask = pair.ask_at_once if only_texts else pair.ask_each
            measured[method] = [reply.answer for reply in await ask(method, questions)]
    measured[methods.LEADERLESS] = [reply.answer for reply in leaderless]

    def row(method: methods.Method, oracle: methods.Method | None) -> methods.Row:
        answers = measured[method]
        equal = methods.equal_answers(answers, measured[oracle]) if oracle else None
        return methods.Row(method, methods.costs(answers), len(answers), equal)

    return [
        row(methods.SYNCHRONOUS, None),
        row(methods.ALGORITHM1_GREEDY, methods.SYNCHRONOUS_ALGORITHM1),
        row(methods.COUPLED_GREEDY, methods.SYNCHRONOUS),
        row(methods.LEADERLESS, methods.SYNCHRONOUS),
    ]
