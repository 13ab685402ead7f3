"""Right answers to questions in forms that training never saw: the model alone, and the pair.

Alone the model is given the document; for the other rows documents are retrieved. The device has
the notes, the cloud, a second process, the articles. What is in no document is asked, too.
"""

import tempfile
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rich.console import Console

from dragonrt import bundled
from dragonrt.experiments.bench.report import bench_table, print_report
from dragonrt.experiments.bench.unseen import KnownAnswer, World, world
from dragonrt.experiments.cloud_process import cloud_process
from dragonrt.experiments.comparison import SYNCHRONOUS
from dragonrt.experiments.intervals import Interval, estimate, wilson
from dragonrt.experiments.model_sides import LoadedSide, run
from dragonrt.language.preemption import Preemption
from dragonrt.language.reader import Reader
from dragonrt.modes.line import Line, start_hash
from dragonrt.modes.question import Question
from dragonrt.runtime.process import update_index
from dragonrt.runtime.side_settings import SideSettings

NOTE = (
    "Greedy, with Wilson 95 % intervals. Right: the answer has the words of the document that were "
    "asked for; of what is in no document, that it says so. No form of these documents is in the "
    "training of the bundled models."
)
VERDICTS = ("right", "wrong", "unknown")
GIVEN, DEVICE, PAIR = "document given", "device alone", "pair"
AT_ONCE = 8
LONGEST = 24
"""Tokens of an answer."""


@dataclass(frozen=True, slots=True)
class AnswersSize:
    """How many documents there are, and questions about how many of them."""

    notes: int = 200
    articles: int = 500
    private: int = 150
    public: int = 100
    absent: int = 60


QUICK = AnswersSize(30, 30, 6, 4, 4)


def bench_answers(
    *,
    output: Console,
    messages: Console,
    model: str = bundled.models()[0],
    seed: int = 2026,
    size: AnswersSize | None = None,
) -> None:
    """Ask them all; in full it takes some two minutes of a free core."""
    size = size or AnswersSize()
    made = world(seed, size.notes, size.articles, size.absent)
    asked = {
        "private": made.notes[: size.private],
        "public": made.articles[: size.public],
        "in no document": made.absent,
    }
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="dragonrt-")))
        status = stack.enter_context(messages.status("indexing notes and articles"))
        device, cloud = _written(folder, made)
        options = ("--documents", str(cloud), "--index", str(folder / "cloud.index"))
        update_index(SideSettings("cloud", documents=(cloud,), index=folder / "cloud.index"))
        process = stack.enter_context(cloud_process("--model", model, *options))
        side = LoadedSide.load(
            SideSettings("device", model=model, documents=(device,), index=folder / "device.index")
        )
        port = process.wait_ready()
        said: dict[tuple[str, str], list[str]] = {}
        for name, questions in asked.items():
            status.update(f"asking what is {name}")
            said[name, GIVEN] = [_alone(side, each) for each in questions]
            if name != "public":
                readers = (side.reader(_asking(each)) for each in questions)
                said[name, DEVICE] = [_greedy(side, reader) for reader in readers]
            said[name, PAIR] = run(_pair(side, port, questions), virtual=False)
    results = [_counted(name, how, asked[name], answers) for (name, how), answers in said.items()]
    table = bench_table("questions", "asked of", *VERDICTS, "right, 95 %")
    for result in results:
        counts = [str(result[verdict]) for verdict in VERDICTS]
        table.add_row(result["questions"], result["asked of"], *counts, _share(result["share"]))
    lost = _lost(asked["private"], said["private", DEVICE], said["private", PAIR])
    table.add_row("private", "lost to articles", "", "", "", _share(lost.to_json()))
    results.append({"questions": "private", "lost to articles": lost.to_json()})
    print_report(output, "answers", table, results, seed=seed, note=NOTE)


def _written(folder: Path, made: World) -> tuple[Path, Path]:
    """The directories of both sides' documents."""
    sides = folder / "device", folder / "cloud"
    for side, documents in zip(sides, (made.notes, made.articles), strict=True):
        side.mkdir()
        for number, each in enumerate(documents):
            (side / f"{number}.txt").write_text(each.document, encoding="utf-8")
    return sides


def _asking(asked: KnownAnswer) -> Question:
    return Question(prompt=asked.question, max_tokens=LONGEST)


def _alone(side: LoadedSide, asked: KnownAnswer) -> str:
    """The model's answer behind the document."""
    model = side.model
    prompt = model.encode(model.prompt.question_text((), asked.question))
    rows = model.sequence(
        [model.document_kv(model.encode(model.prompt.document_text("", asked.document)))],
        len(prompt) + LONGEST,
    )
    return _greedy(side, Reader.behind(rows, prompt, start_hash(0)))


def _greedy(side: LoadedSide, reader: Reader) -> str:
    """The most likely answer of one side."""
    line = Line(start_hash(0))
    while len(line) < LONGEST:
        (said,) = reader.read(line.tokens, line.hashes, len(line), Preemption())
        token = int(said.p.argmax())
        if token in side.model.answer_stops:
            break
        line.append(token)
    return side.model.decode(line.tokens)


async def _pair(side: LoadedSide, port: int, asked: Sequence[KnownAnswer]) -> list[str]:
    """The answers of device and cloud together."""
    texts: list[str] = []
    stops = set(side.model.answer_stops)
    async with side.connected(port) as arena:
        for start in range(0, len(asked), AT_ONCE):
            prompts = [each.question for each in asked[start : start + AT_ONCE]]
            question = Question(max_tokens=LONGEST)
            for given in await arena.ask_at_once(prompts, question, SYNCHRONOUS.settings()):
                texts.append(side.model.decode([t for t in given.tokens if t not in stops]))
    return texts


def _counted(
    name: str, how: str, asked: Sequence[KnownAnswer], answers: Sequence[str]
) -> dict[str, Any]:
    verdicts = [each.judged(answer) for each, answer in zip(asked, answers, strict=True)]
    counts = {verdict: verdicts.count(verdict) for verdict in VERDICTS}
    share = wilson(counts["right"], len(verdicts)).to_json()
    return {"questions": name, "asked of": how, **counts, "share": share}


def _lost(asked: Sequence[KnownAnswer], alone: Sequence[str], together: Sequence[str]) -> Interval:
    """How much less is right beside a side that knows nothing of it, by question."""
    right = [
        [each.judged(answer) == "right" for each, answer in zip(asked, answers, strict=True)]
        for answers in (alone, together)
    ]
    return estimate([float(a) - float(b) for a, b in zip(*right, strict=True)], "mean")


def _share(share: dict[str, Any]) -> str:
    return f"{share['mean']:.2f} ({share['low']:.2f} to {share['high']:.2f})"
