"""The demonstration: two real processes, sample documents on both, answers and what they cost.

This process is the device; the cloud is a second one, `dragonrt cloud` on loopback. Heavy modules
are imported only once that process has started, so that both load at the same time.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from rich.console import Console
from rich.status import Status
from rich.text import Text

from dragonrt import bundled
from dragonrt.experiments.cloud_process import cloud_process
from dragonrt.link.stream import Stream
from dragonrt.modes.question import Question
from dragonrt.modes.settings import DragonSettings
from dragonrt.side import Side

if TYPE_CHECKING:
    from dragonrt.experiments.arena import Given, RealArena
    from dragonrt.experiments.sample_sides import LoadedSide
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
    question: Question,
    how: DragonSettings,
    model: str,
    *,
    output: Console,
    messages: Console,
    emulate: Callable[[Stream], Stream] | None = None,
    ask: str | None = None,
    as_json: bool = False,
    stops: tuple[str, ...] = (),
    questions: Sequence[bundled.SampleQuestion] | None = None,
) -> None:
    """Ask the sample questions (or `questions`) and compare four ways of answering, or `ask` one.

    Both sides run `model`. `question` holds the seed and the sampling; the rule and the aggregator
    of `how` count with `ask` only, as does `as_json`, which prints one JSON object. `emulate` is
    the device's end of an emulated link. Answers go to `output`, everything else to `messages`.
    Raises DragonError or RetrievalError; the second process has ended when this returns or raises.
    """
    with cloud_process("--documents", str(bundled.documents("cloud")), model=model) as cloud:
        with messages.status("starting two processes") as status:
            device = _load(model, status)
            status.update("waiting for the cloud")
            port = cloud.wait_ready()
        from dragonrt.node.main import run
        from dragonrt.service.terminal import talk

        async def answer(prompt: str) -> None:
            async with device.connected(port, emulate) as arena:
                conversation = arena.conversation(question, how, stops)
                await talk(conversation, prompt, output, as_json=as_json)

        async def demonstrate() -> None:
            _introduce(f"process {cloud.pid}, 127.0.0.1:{port}", output)
            asked = questions or [each for each in bundled.questions() if each.demo]
            async with device.connected(port, emulate) as arena:
                link = "emulated" if emulate is not None else "not emulated"
                await _Comparison(arena, question, how, stops, output, messages).show(asked, link)
            output.print(NEXT, highlight=False, soft_wrap=True)

        run(demonstrate() if ask is None else answer(ask))


def _load(model: str, status: Status) -> "LoadedSide":
    """Load and index this side while the other process does the same."""
    from dragonrt.experiments.sample_sides import LoadedSide, sample_settings

    def show(now: "Progress") -> None:
        part = now.done / max(now.total, 1)
        status.update(f"indexing on both sides: {now.file} ({part:.0%})")

    return LoadedSide.load(sample_settings("device", model), show, kv=False)


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


@dataclass(frozen=True, slots=True)
class _Comparison:
    """Questions answered before the user's eyes, then the other ways, then the table."""

    arena: "RealArena"
    question: Question
    how: DragonSettings
    stops: tuple[str, ...]
    output: Console
    messages: Console

    async def show(self, questions: Sequence[bundled.SampleQuestion], link: str) -> None:
        """All of it."""
        from dragonrt.experiments.comparison import (
            LEADERLESS,
            LEGEND,
            comparison_table,
            measured,
            method_rows,
        )

        texts, once = [each.text for each in questions], replace(self.question, max_tokens=1)
        with self.messages.status("reading the documents once: their KV is kept"):
            await self.arena.ask_each(texts, once, LEADERLESS.settings(self.how), self.stops)
        shown = [await self._answer(question) for question in questions]
        with self.messages.status("") as status:
            found = await measured(
                self.arena,
                texts,
                self.question,
                self.how,
                stops=self.stops,
                given={LEADERLESS: shown},
                on_method=lambda method: status.update(
                    f"asking the same questions again: {method.name}"
                ),
            )
        round_trip_ms = 1000 * shown[-1].answer.rtt_s
        self.output.print(
            f"\n{len(questions)} questions, temperature {self.question.sampler.temperature:g}, "
            f"seed {self.question.seed}, round trip {round_trip_ms:.0f} ms ({link})",
            highlight=False,
        )
        self.output.print(comparison_table(method_rows(found)))
        self.output.print(f"{LEGEND}\n", style="dim", highlight=False)

    async def _answer(self, question: bundled.SampleQuestion) -> "Given":
        """One question, its answer streamed with its sources."""
        from dragonrt.experiments.arena import Given
        from dragonrt.experiments.comparison import LEADERLESS
        from dragonrt.service.view import AnswerView

        heading = Text(f"\n{question.text}", style="bold")
        heading.append(f"  ({KNOWN_BY[question.kind]})", style="dim not bold")
        self.output.print(heading, soft_wrap=True)
        view = AnswerView(self.output)
        conversation = self.arena.conversation(
            self.question, LEADERLESS.settings(self.how), self.stops
        )
        reply = await conversation.ask(question.text, view.piece, view.notice)
        view.end(reply)
        return Given(reply.answer)
