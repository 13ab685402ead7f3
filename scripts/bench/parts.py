"""Questions of two parts, one on each side, asked in parts and whole; and questions cut by mistake.

The pairs are in `parts.toml`, the sample documents stand beside them. The text is that of a pair of
processes (SPEC 0).
"""

import tempfile
import tomllib
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Annotated, Any

from cyclopts import Parameter

from dragonrt import bundled
from dragonrt.backends.llama_cpp.embedder import load_embedder
from dragonrt.cli.options import option, settings
from dragonrt.modes.question import Question
from dragonrt.node.process.composition import load_model
from dragonrt.node.process.side_settings import SideSettings
from dragonrt.service.prompts import parts_of
from dragonrt.side import SIDES, Side
from scripts.bench.isolated_answers import IsolatedAnswers, in_shared_forwards
from scripts.bench.isolation import (
    IsolatedQuestionOptions,
    IsolatedSideOptions,
    chosen_side,
    finder,
    share,
)
from scripts.bench.question_sets import worlds
from scripts.bench.split_qa.score import contains
from scripts.lab.harness import benchmark, interval, progress
from scripts.lab.intervals import Row

FILE = Path(__file__).with_suffix(".toml")
MEASURES = ("both", "first", "second")
MIXTURE = ("mixture",)


def cases() -> list[dict[str, Any]]:
    """Return the questions of two parts with their documents and answers."""
    found: list[dict[str, Any]] = tomllib.loads(FILE.read_text("utf-8"))["case"]
    return found


@benchmark(
    {"asked": "{asked}", "questions": "{questions}"}
    | {f"{name} right": interval(name) for name in MEASURES},
    {"questions of one part": "{single}", "cut by mistake": "{cut}"},
    note="A part is right if its answer has the known words; asked whole, the one answer must have "
    "both. Bootstrap 95 % intervals.",
)
def parts(
    file: Annotated[
        Path | None,
        Parameter(help="Questions of one part, a set as of isolation.", show_default=False),
    ] = None,
    /,
    *,
    questions: Annotated[int | None, option("The first N questions; else all.", low=1)] = None,
    seed: Annotated[int, option("Draws the answers.", default="2026", low=0)] = 2026,
    side: IsolatedSideOptions | None = None,
    answers: IsolatedQuestionOptions | None = None,
) -> Iterator[Row]:
    """Ask the questions in parts and whole; yield answers, shares, and what is cut by mistake."""
    question = settings(Question, answers, seed=seed)
    rows = list(asked(chosen_side(side), question, cases()[:questions]))
    yield from rows
    for way in ("in parts", "whole"):
        those = [row for row in rows if row["way"] == way]
        measured = {name: share(those, name).to_json() for name in MEASURES}
        yield {"asked": way, "questions": len(those), **measured}
    if file is not None:
        with tempfile.TemporaryDirectory(prefix="dragonrt-") as folder:
            known = worlds(file, Path(folder), seed)[0].questions
        cut = [each.question for each in known if len(parts_of(each.question)) > 1]
        yield {"single": len(known), "cut": len(cut), "which": cut}


def asked(side: SideSettings, question: Question, known: Sequence[dict[str, Any]]) -> Iterator[Row]:
    """Yield the answers to the questions, in parts and whole, over all documents of the set."""
    model, embedder = load_model(side), load_embedder(side.embedder, library=side.llama_library)
    with tempfile.TemporaryDirectory(prefix="dragonrt-") as name:
        documents: dict[Side, tuple[Path, Path]] = {}
        for each in SIDES:
            documents[each] = Path(name) / each, bundled.documents(each)
            documents[each][0].mkdir()
            for number, case in enumerate(cases()):
                (documents[each][0] / f"{number}.txt").write_text(case[each], encoding="utf-8")
        find = finder(documents, Path(name, "index"), side, model.prompt.template.refusal)
        answering = IsolatedAnswers(model, question, embedder)
        for way in ("in parts", "whole"):
            progress(f"asking {len(known)} questions {way}")
            cut = parts_of if way == "in parts" else lambda prompt: [prompt]
            given = in_shared_forwards(
                model,
                (answering.part_by_part(cut(each["question"]), find, MIXTURE) for each in known),
            )
            for number, (case, tokens) in enumerate(zip(known, given, strict=True)):
                texts = [model.decode(said).strip() for said in tokens[MIXTURE[0]]]
                places = zip((texts[0], texts[-1]), case["answers"], strict=True)
                first, second = (contains(text, words) for text, words in places)
                measures = {"first": first, "second": second, "both": first and second}
                yield {"way": way, "group": number, "texts": texts, **measures}
