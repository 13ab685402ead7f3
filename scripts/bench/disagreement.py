"""Documents that disagree: whether an answer names a value that neither has (SPEC 5).

Forty pairs of documents, written for this, each with another value for the same thing. They stand
on two sides, or both on one; the same answers without the rule show what it changes.
"""

import re
import tomllib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

from dragonrt.backends.llama_cpp.embedder import load_embedder
from dragonrt.backends.model import LanguageModel
from dragonrt.cli.options import option
from dragonrt.modes.question import Question
from dragonrt.node.answers.citing import is_refusal
from dragonrt.sampling.samplers import Sampler
from retrieval import Hit
from retrieval.store import Chunk
from scripts.bench.isolated_answers import IsolatedAnswers, in_shared_forwards
from scripts.lab.harness import benchmark, progress
from scripts.lab.intervals import Row

PAIRS = Path(__file__).with_name("disagreeing.toml")
SCORE = 0.6
"""The cosine of every document: neither side knows better."""
PLACES = ("two sides", "one side", "a document alone")
OUTCOMES = ("device", "cloud", "refused", "neither")
_VALUE = re.compile(r"\d[\d.,:/-]*|\b[A-Z][\w-]*")


@dataclass(frozen=True, slots=True)
class Disagreeing:
    """A question, and the text and the value of each document."""

    kind: str
    question: str
    device: tuple[str, str]
    cloud: tuple[str, str]


def pairs() -> list[Disagreeing]:
    """Return the pairs of the file."""
    read = tomllib.loads(PAIRS.read_text("utf-8"))["pair"]
    return [
        Disagreeing(each["kind"], each["question"], tuple(each["device"]), tuple(each["cloud"]))
        for each in read
    ]


def outcome(text: str, pair: Disagreeing, refusal: str) -> str:
    """Return whose value a text names: device, cloud, refused, or neither.

    Every number and capitalised word of it has to be in the document or the question. A value that
    is cut short between two words is the document's.
    """
    if is_refusal(text, refusal):
        return "refused"
    named = [each.rstrip(".,:-/") for each in _VALUE.findall(text.strip())]
    for side in ("device", "cloud"):
        known = f"{getattr(pair, side)[0]} {pair.question} It The"
        words = {each.rstrip(".,:-/") for each in _VALUE.findall(known)}
        if named and words.issuperset(named):
            return side
    return "neither"


@benchmark(
    {
        "documents": "{place}",
        "rule": "{rule}",
        "temperature": "{temperature}",
        "answers": "{answers}",
        **{name: f"{{{name}}}" for name in OUTCOMES},
    },
    note="An answer names neither value if a number or a capitalised word of it is in neither "
    "document, or one in each. A document alone: what the reader makes of one without another.",
)
def disagreement(
    *,
    model: Annotated[str, option("The model of both sides.")] = "smollm2",
    seeds: Annotated[int, option("Seeds at temperature 0.8.", low=1)] = 3,
) -> Iterator[Row]:
    """Ask all pairs at temperatures 0 and 0.8, with the rule and without; yield answers, counts."""
    loaded = LanguageModel.load(model)
    for place in PLACES:
        for rule in ("agreement", "none")[: 1 + (place != PLACES[2])]:
            for temperature, draws in ((0.0, 1), (0.8, seeds)):
                rows = [
                    row
                    for seed in range(draws)
                    for row in _asked(loaded, place, rule, Sampler(temperature), seed)
                ]
                yield from rows
                found = [row["outcome"] for row in rows]
                counts = {each: found.count(each) for each in OUTCOMES}
                progress(f"{place}, {rule}, {temperature}: {counts}")
                named = {"place": place, "rule": rule, "temperature": temperature}
                yield {**named, "answers": len(rows), **counts}


def _asked(
    model: LanguageModel, place: str, rule: str, sampler: Sampler, seed: int
) -> Iterator[Row]:
    question = Question(sampler=sampler, seed=seed, max_tokens=32)
    answers = IsolatedAnswers(model, question, load_embedder(), agrees=rule != "none")
    known = pairs()
    sides = [_sides(place, each) for each in known]
    way = "mixture" if place == PLACES[0] else "device alone"
    readings = (
        answers.reading(each.question, {"device": device, "cloud": cloud}, (way,))
        for each, (device, cloud) in zip(known, sides, strict=True)
    )
    for each, found in zip(known, in_shared_forwards(model, readings), strict=True):
        text = model.decode(found[way]).strip()
        said = outcome(text, each, model.prompt.template.refusal)
        yield {"kind": each.kind, "question": each.question, "text": text, "outcome": said} | {
            "asked": rule,
            "seed": seed,
        }


def _sides(place: str, pair: Disagreeing) -> tuple[Sequence[Hit], Sequence[Hit]]:
    device, cloud = _hit("device.txt", pair.device[0]), _hit("cloud.txt", pair.cloud[0])
    both: dict[str, tuple[list[Hit], list[Hit]]] = {
        "two sides": ([device], [cloud]),
        "one side": ([device, cloud], []),
    }
    return both.get(place, ([device], []))


def _hit(name: str, text: str) -> Hit:
    return Hit(Chunk(text, text, "", name, 0, len(text)), SCORE)
