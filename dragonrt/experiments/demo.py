"""The demonstration: two real processes, sample documents on both, answers and what they cost.

This process is the device; the cloud is a second one, `dragonrt cloud` on loopback. Heavy modules
are imported only once that process has started, so that both load at the same time.
"""

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from rich.console import Console
from rich.status import Status
from rich.text import Text

from dragonrt import bundled
from dragonrt.experiments.cloud_process import cloud_process
from dragonrt.link.stream import Stream
from dragonrt.runtime.modes.dragon import Answer, OnLoss, beginning
from dragonrt.runtime.plan import Plan
from dragonrt.side import Side

if TYPE_CHECKING:
    from dragonrt.chat.conversation import Reply
    from dragonrt.experiments.comparison import Pair, Row
    from dragonrt.experiments.device_side import DeviceSide
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

    `plan` holds the seed and the sampling; its rule and placement count with `ask` only, as do
    `as_json`, which prints one JSON object, and `on_loss`. `emulate` is the device's end of an
    emulated link. Answers go to `output`, everything else to `messages`. Raises DragonError or
    RetrievalError; the second process has ended when this returns or raises.
    """
    with cloud_process("--documents", str(bundled.documents("cloud"))) as cloud:
        with messages.status("starting two processes") as status:
            device = _load(status)
            status.update("waiting for the cloud")
            port = cloud.wait_ready()
        from dragonrt.chat.conversation import Conversation
        from dragonrt.chat.terminal import ask_once, ask_once_json
        from dragonrt.experiments.comparison import Pair
        from dragonrt.runtime import main as programs

        async def answer(question: str) -> None:
            async with device.connected(port, emulate) as (side, connector):
                conversation = Conversation(
                    side.model, plan, beginning(side, connector, on_loss), plan.seed, stops
                )
                if as_json:
                    await ask_once_json(conversation, question)
                else:
                    await ask_once(conversation, question, output)

        async def demonstrate() -> None:
            _introduce(f"process {cloud.pid}, 127.0.0.1:{port}", output)
            asked = questions or [each for each in bundled.questions() if each.demo]
            async with device.connected(port, emulate) as (side, connector):
                link = "emulated" if emulate is not None else "not emulated"
                pair = Pair(side, connector, plan, stops)
                await _compare(pair, asked, link, output, messages)
            output.print(NEXT, highlight=False, soft_wrap=True)

        programs.run(demonstrate() if ask is None else answer(ask))


def _load(status: Status) -> "DeviceSide":
    """Load and index this side while the other process does the same."""
    from dragonrt.experiments.device_side import DeviceSide, sample_settings

    def show(now: "Progress") -> None:
        status.update(f"indexing on both sides: {now.file} ({now.done}/{now.total})")

    return DeviceSide.load(sample_settings("device"), show)


def _introduce(cloud: str, output: Console) -> None:
    """Who knows what: the two processes and their documents."""
    _introduce_side("device", "private notes", "this process", output)
    _introduce_side("cloud", "public articles", cloud, output)


def _introduce_side(side: Side, kind: str, where: str, output: Console) -> None:
    names = sorted(path.name for path in bundled.documents(side).iterdir())
    some = ", ".join(names[:: len(names) // 3][:3])
    line = Text(f"{side:<6} ", style=SIDE_COLOURS[side])
    line.append(f" {len(names)} {kind} ({some}, ...) in {where}", style="default")
    output.print(line, soft_wrap=True)


async def _compare(
    pair: "Pair",
    questions: Sequence[bundled.Question],
    link: str,
    output: Console,
    messages: Console,
) -> None:
    """Answer the questions before the user's eyes, then the other ways, then the table."""
    from dragonrt.experiments.comparison import LEGEND, comparison_table

    replies = [await _show(pair, question, output) for question in questions]
    rows = await _measure(pair, [question.text for question in questions], replies, messages)
    plan, round_trip_ms = pair.plan, 1000 * replies[-1].answer.rtt_s
    output.print(
        f"\n{len(questions)} questions, temperature {plan.sampler.temperature:g}, "
        f"seed {plan.seed}, round trip {round_trip_ms:.0f} ms ({link})",
        highlight=False,
    )
    output.print(comparison_table(rows))
    output.print(f"{LEGEND}\n", style="dim", highlight=False)


async def _show(pair: "Pair", question: bundled.Question, output: Console) -> "Reply[Answer]":
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
    pair: "Pair", questions: Sequence[str], leaderless: "list[Reply[Answer]]", messages: Console
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
