"""`disclosure`: what each level tells, what it costs, and what sizes and times tell (SPEC 1.10).

Real models and messages in virtual time, in three parts:

- answers: the sample questions at each level, and at `redacted` over what is withheld;
- membership: a device reads a note that answers the question and one that does not; from all that
  crosses a cloud tells which of two notes the second one was. The AUC is 0.5 where nothing tells.
  Answers that the second note changed do not count: they use it;
- naming: a classifier names the question from sizes and times, without padding, with it, and with
  a cadence, beside chance.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from dragonrt import bundled
from dragonrt.backends.model import LanguageModel
from dragonrt.backends.reader import Weighing
from dragonrt.link.profile import LinkProfile
from dragonrt.modes.prefix import start_hash
from dragonrt.modes.question import Question
from dragonrt.modes.settings import DragonSettings
from dragonrt.privacy.disclosure import Disclosure
from dragonrt.privacy.redaction import MARKER
from dragonrt.testing import loop
from dragonrt.traces.statistics import statistics
from scripts.papers import charts
from scripts.papers.dragon.crossing import (
    CanaryNote,
    Overheard,
    auc,
    auc_interval,
    canary_notes,
    drafted,
    features,
    listed,
    membership,
    named,
    overheard,
    words,
)
from scripts.papers.framework import Clock, Progress, Settings
from scripts.papers.intervals import Row, estimate, grouped
from scripts.papers.model_sides import RecallingReader, document_side, reading_side
from scripts.papers.sample_sides import LoadedSide, sample_settings

NAME = "disclosure"
SUMMARY = "What crosses at each level of --disclose, and who makes what of it (2 minutes)"
CLOCKS: tuple[Clock, ...] = ("virtual",)

FORWARD_S, LATENCY_S, JITTER_S = 0.02, 0.02, 0.004
"""Of a forward of either side, and one way of the link."""
TOKENS = 32
WITHHOLD = (2.0, 8.0, 64.0, 1e6)
WITHHOLD_QUICK = (8.0,)
NEARLY = 0.02
"""How much less relevant the note is that does not answer the question."""
CADENCE, TICKS = "20ms", 150


@dataclass(frozen=True, slots=True)
class _Size:
    questions: int
    trials: int
    named: int
    repeats: int
    withhold: tuple[float, ...]


FULL = _Size(16, 60, 50, 6, WITHHOLD)
QUICK = _Size(6, 16, 12, 4, WITHHOLD_QUICK)


def run(settings: Settings, progress: Progress) -> list[Row]:
    """A row per answer, whatever the part; what does not apply is None."""

    size = QUICK if settings.quick else FULL
    model = LanguageModel.load(settings.target, "cpu")
    levels = _levels(size.withhold)
    framings = _framings()
    total = size.questions * len(levels) + size.trials * 3
    total += size.named * size.repeats * len(framings)
    rows: list[Row] = []

    def take(row: Row) -> None:
        rows.append({**_EMPTY, **row})
        progress(len(rows), total)

    for row in _answers(model, size.questions, levels):
        take(row)
    for row in _membership(model, size.trials, settings.seed):
        take(row)
    for row in _naming(model, size.named, size.repeats, framings, settings.seed):
        take(row)
    return rows


_EMPTY: Row = dict.fromkeys(
    (
        "part",
        "level",
        "withhold",
        "framing",
        "case",
        "right",
        "bytes_up",
        "padding_up",
        "words",
        "withheld_words",
        "tokens",
        "withheld",
        "ms_per_token",
        "seconds",
        "used",
        "member",
        "other",
        "named",
        "held_ms",
    )
)


def _levels(withhold: Sequence[float]) -> list[DragonSettings]:

    redacted = [DragonSettings(disclose=Disclosure.REDACTED, withhold=each) for each in withhold]
    return [DragonSettings(), DragonSettings(disclose=Disclosure.ANSWER), *redacted]


def _framings() -> dict[str, DragonSettings]:
    """What is compared where questions are named, by what it is called."""
    drafts, answer = _levels(())
    paced: dict[str, Any] = {"pad": True, "cadence": CADENCE, "cadence_ticks": TICKS}
    return {
        "drafts": drafts,
        "drafts, padded": replace(drafts, pad=True),
        "answer, not padded": replace(answer, pad=False),
        "answer, padded": answer,
        "drafts, cadence": replace(drafts, **paced),
        "answer, cadence": replace(answer, **paced),
    }


def _measured(heard: Overheard) -> Row:
    """What every part says of an answer."""

    settings, given = heard.given.answer.settings, heard.given
    numbers = statistics(given.counts)
    withheld = sum(event.withheld for _, event in given.answer.decisions)
    level: Any = settings
    return {
        "level": level.disclose.value,
        "withhold": level.withhold if level.redacts else None,
        "bytes_up": sum(each.size for each in heard.seen if each.up),
        "padding_up": numbers["padding_sent"],
        "tokens": len(given.tokens),
        "withheld": withheld,
        "ms_per_token": numbers["ms_per_token"],
        "seconds": given.seconds,
        "held_ms": numbers["held_ms"],
    }


def _link(jitter_s: float = 0.0) -> Any:

    return LinkProfile(latency_s=LATENCY_S, jitter_s=jitter_s)


# The sample questions at each level.


def _answers(model: LanguageModel, count: int, levels: Sequence[DragonSettings]) -> Any:

    device, cloud = (
        LoadedSide.opened(sample_settings(side), model) for side in ("device", "cloud")
    )
    private, public = (_words_of(bundled.documents(side)) for side in ("device", "cloud"))
    for number, asked in enumerate(bundled.questions()[:count]):
        question = _question(model, asked.text)
        for settings in levels:
            sides = [document_side(each, FORWARD_S) for each in (device, cloud)]
            heard = loop.run(
                overheard(sides, question, settings, tuple(model.encode(MARKER)), _link(), 0)
            )
            text = model.decode(heard.given.tokens)
            single = (model.decode([token]) for token in listed(heard, model.vocabulary))
            crossed = words(" ".join((model.decode(drafted(heard)), *single)))
            known = private - public - words(asked.text)
            kept = [each.token for _, each in heard.given.answer.decisions if each.withheld]
            yield _measured(heard) | {
                "part": "answers",
                "case": number,
                "right": asked.answered_by(text),
                "words": len(crossed & known - words(text)),
                "withheld_words": len(crossed & known & words(model.decode(kept))),
            }


def _words_of(directory: Path) -> set[str]:

    texts = (path.read_text(encoding="utf-8") for path in directory.rglob("*") if path.is_file())
    return set().union(*map(words, texts))


def _question(model: LanguageModel, prompt: str) -> Question:

    ends = model.with_stops(model.prompt.template.stops)
    return Question(prompt=prompt, max_tokens=TOKENS, stop_tokens=ends)


# Notes with canaries.

PUBLIC = "The Vardo ferry crosses to Norholm every hour and carries bicycles for free."


def _sides(
    model: LanguageModel, question: Question, texts: Sequence[str], spread: float = 0.0
) -> Any:
    """A device that has read these notes and a cloud that has read a public text."""

    prompt = model.encode(model.prompt.question_text((), question.prompt))
    read: dict[Any, Sequence[tuple[str, float]]] = {
        "device": [(text, 0.5 - NEARLY * place) for place, text in enumerate(texts)],
        "cloud": [(PUBLIC, 0.2)],
    }
    sides = []
    for side, documents in read.items():
        stored = [
            model.document_kv(model.encode(model.prompt.document_text("", text)))
            for text, _ in documents
        ]
        rows = model.sequence(stored, len(prompt) + TOKENS)
        weighing = Weighing(
            np.array([score for _, score in documents]) / question.relevance_temperature
        )
        reader = RecallingReader.behind(rows, prompt, start_hash(question.seed), weighing)
        sides.append(reading_side(side, model, reader, FORWARD_S))
    return sides


def _membership(model: LanguageModel, trials: int, seed: int) -> Any:

    notes = canary_notes(3 * trials, seed)
    for number in range(trials):
        asked, member, other = notes[3 * number : 3 * number + 3]
        question = _question(model, asked.question)
        sides = _sides(model, question, (asked.text, member.text))
        known = {*model.encode(asked.question), *model.encode(f" {asked.text}")}
        known |= {*model.encode(asked.text)}
        marker = tuple(model.encode(MARKER))
        without = _sides(model, question, (asked.text,))
        for settings in _levels((8.0,)):
            heard = loop.run(overheard(sides, question, settings, marker, _link(), number))
            same = loop.run(overheard(without, question, settings, marker, _link(), number))
            crossed = listed(heard, model.vocabulary)
            yield _measured(heard) | {
                "part": "membership",
                "case": number,
                "used": heard.given.tokens != same.given.tokens,
                "member": membership(crossed, model.encode(f" {member.text}"), known),
                "other": membership(crossed, model.encode(f" {other.text}"), known),
            }


def _naming(
    model: LanguageModel,
    count: int,
    repeats: int,
    framings: dict[str, DragonSettings],
    seed: int,
) -> Any:

    notes: list[CanaryNote] = canary_notes(count, seed + 1)
    rows: dict[str, list[Row]] = {name: [] for name in framings}
    observed: dict[str, list[Any]] = {name: [] for name in framings}
    for number, note in enumerate(notes):
        question = _question(model, note.question)
        sides = _sides(model, question, (note.text,))
        for name, settings in framings.items():
            for repeat in range(repeats):
                heard = loop.run(
                    overheard(
                        sides,
                        question,
                        settings,
                        tuple(model.encode(MARKER)),
                        _link(JITTER_S),
                        repeats * number + repeat,
                    )
                )
                observed[name].append(features(heard.seen))
                rows[name].append(
                    _measured(heard) | {"part": "naming", "framing": name, "case": number}
                )
    for name, some in rows.items():
        right = named(observed[name], [row["case"] for row in some], min(repeats, 5))
        yield from (row | {"named": each} for row, each in zip(some, right, strict=True))


# What it comes to.


def summarise(rows: list[Row]) -> dict[str, Any]:
    """Of each level what it tells and costs; AUCs; how often a question is named, beside chance."""

    parts = {part: some for (part,), some in grouped(rows, "part").items()}
    found: dict[str, Any] = {"answers": {}, "membership": {}, "naming": {}}
    for (level, withhold), some in grouped(parts["answers"], "level", "withhold").items():
        tokens = sum(row["tokens"] for row in some)
        found["answers"][_name(level, withhold)] = {
            "right": estimate([float(row["right"]) for row in some], "mean").to_json(),
            "words_not_in_answer": sum(row["words"] for row in some),
            "withheld_words": sum(row["withheld_words"] for row in some),
            "bytes_up": estimate([row["bytes_up"] for row in some], "mean").to_json(),
            "padding_up": estimate([row["padding_up"] for row in some], "mean").to_json(),
            "ms_per_token": estimate([row["ms_per_token"] for row in some]).to_json(),
            "withheld": round(sum(row["withheld"] for row in some) / tokens, 4),
        }
    unused = [row for row in parts["membership"] if not row["used"]]
    for (level,), some in grouped(unused, "level").items():
        members, others = ([row[kind] for row in some] for kind in ("member", "other"))
        low, high = auc_interval(members, others)
        found["membership"][level] = {
            "auc": round(auc(members, others), 4),
            "low": round(low, 4),
            "high": round(high, 4),
            "trials": len(some),
        }
    chance = 1 / len({row["case"] for row in parts["naming"]})
    found["naming"]["chance"] = round(chance, 4)
    for (framing,), some in grouped(parts["naming"], "framing").items():
        held = [row["held_ms"] for row in some if row["held_ms"] is not None]
        found["naming"][framing] = {
            "named": estimate([float(row["named"]) for row in some], "mean").to_json(),
            "bytes_up": estimate([row["bytes_up"] for row in some], "mean").to_json(),
            "answer_s": estimate([row["seconds"] for row in some]).to_json(),
            "held_ms": estimate(held, "mean").to_json() if held else None,
        }
    return found


def _name(level: str, withhold: float | None) -> str:
    return level if withhold is None else f"{level}, {withhold:g}"


def plot(rows: list[Row], path: Path) -> None:
    """What the levels tell; how well a document is told from another; how often one is named."""
    summary = summarise(rows)
    with charts.picture(path, columns=3, height_inches=4.0) as (_, axes):
        levels = summary["answers"]
        left, middle, right = axes[0]
        for place, each in enumerate(levels.values()):
            left.barh(place, each["right"]["mean"], color=charts.BLUE)
            text = f"{each['words_not_in_answer']} words, {each['bytes_up']['mean']:.0f} B"
            left.text(0.02, place, text, va="center", fontsize=7, color="white")
        _label(left, list(levels), "answers right")
        for place, each in enumerate(summary["membership"].values()):
            _point(middle, place, each["auc"], each["low"], each["high"])
        _label(middle, list(summary["membership"]), "AUC: which note was read")
        middle.axvline(0.5, color=charts.GREY, linestyle="--")
        naming = dict(summary["naming"])
        chance = naming.pop("chance")
        for place, each in enumerate(naming.values()):
            share = each["named"]
            _point(right, place, share["mean"], share["low"], share["high"])
        _label(right, list(naming), "questions named")
        right.axvline(chance, color=charts.GREY, linestyle="--")


def _point(axis: Any, place: int, value: float, low: float, high: float) -> None:
    axis.plot([low, high], [place, place], color=charts.ORANGE)
    axis.plot(value, place, "o", color=charts.VERMILION)


def _label(axis: Any, names: list[str], text: str) -> None:
    axis.set_yticks(range(len(names)), names, fontsize=7)
    axis.invert_yaxis()
    axis.set(xlabel=text, xlim=(0, 1.02))
