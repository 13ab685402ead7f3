"""`disclosure`: what each level tells, what it costs, and what sizes and times tell (SPEC 1.10).

Real models and messages in virtual time, in three parts:

- answers: the sample questions at each level, and at `redacted` over what is withheld;
- membership: a device reads a note that answers and one that does not; from all that crosses a
  cloud tells the second one from another (AUC). Answers that the second note changed do not count;
- naming: a classifier names the question from sizes and times, beside chance.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np

from dragonrt import bundled
from dragonrt.backends.model import LanguageModel
from dragonrt.backends.reader import Reader, Weighing
from dragonrt.link.profile import LinkProfile
from dragonrt.modes.prefix import start_hash
from dragonrt.modes.question import Question
from dragonrt.modes.settings import DragonSettings
from dragonrt.privacy.disclosure import Disclosure
from dragonrt.privacy.redaction import MARKER
from dragonrt.side import SIDES
from dragonrt.testing import loop
from dragonrt.traces.statistics import statistics
from scripts.papers import charts
from scripts.papers.dragon.crossing import (
    Overheard,
    auc,
    auc_interval,
    canary_notes,
    features,
    membership,
    named,
    overheard,
    words,
)
from scripts.papers.framework import Clock, Progress, Settings
from scripts.papers.intervals import Row, grouped, having, table
from scripts.papers.model_sides import ReadingSide, RecallingReader, document_side, reading_side
from scripts.papers.sample_sides import LoadedSide, sample_settings

NAME = "disclosure"
SUMMARY = "What crosses at each level of --disclose, and who makes what of it (2 minutes)"
CLOCKS: tuple[Clock, ...] = ("virtual",)

FORWARD_S, LATENCY_S, JITTER_S = 0.02, 0.02, 0.004
"""Of a forward of either side, and one way of the link."""
TOKENS = 32
NEARLY = 0.02
"""How much less relevant the note is that does not answer the question."""
CADENCE, TICKS = "20ms", 150
PUBLIC = "The Vardo ferry crosses to Norholm every hour and carries bicycles for free."


@dataclass(frozen=True, slots=True)
class Size:
    """How much is asked in each part."""

    questions: int
    trials: int
    named: int
    repeats: int
    withhold: tuple[float, ...]


FULL = Size(16, 60, 50, 6, (2.0, 8.0, 64.0, 1e6))
QUICK = Size(6, 16, 12, 4, (8.0,))

EMPTY: Row = dict.fromkeys(
    (
        *("part", "level", "framing", "case", "right", "bytes_up", "padding_up", "words"),
        *("withheld_words", "tokens", "withheld", "ms_per_token", "seconds"),
        *("used", "member", "other", "named", "held_ms"),
    )
)


def run(settings: Settings, progress: Progress) -> list[Row]:
    """Return a row per answer, whatever the part; what does not apply is None."""
    size = settings.size(FULL, QUICK)
    part = Parts(LanguageModel.load(settings.model, "cpu"), size, settings.seed)
    total = size.questions * (2 + len(size.withhold)) + size.trials * 3
    total += size.named * size.repeats * len(framings())
    rows: list[Row] = []
    for found in (part.answers(), part.membership(), part.naming()):
        for row in found:
            rows.append({**EMPTY, **row})
            progress(len(rows), total)
    return rows


def levels(withhold: Sequence[float]) -> list[DragonSettings]:
    """Return the settings of each level, `redacted` over what is withheld."""
    redacted = [DragonSettings(disclose=Disclosure.REDACTED, withhold=each) for each in withhold]
    return [DragonSettings(), DragonSettings(disclose=Disclosure.ANSWER), *redacted]


def framings() -> dict[str, DragonSettings]:
    """Return what is compared where questions are named, by name."""
    drafts, answer = levels(())
    paced: dict[str, Any] = {"pad": True, "cadence": CADENCE, "cadence_ticks": TICKS}
    return {
        "drafts": drafts,
        "drafts, padded": replace(drafts, pad=True),
        "answer, not padded": replace(answer, pad=False),
        "answer, padded": answer,
        "drafts, cadence": replace(drafts, **paced),
        "answer, cadence": replace(answer, **paced),
    }


@dataclass(frozen=True, slots=True)
class Parts:
    """The three parts of the figure, on one model."""

    model: LanguageModel
    size: Size
    seed: int

    def _heard(
        self,
        sides: Sequence[ReadingSide],
        question: Question,
        settings: DragonSettings,
        link_seed: int,
        jitter_s: float = 0.0,
    ) -> Overheard:
        marker = tuple(self.model.encode(MARKER))
        link = LinkProfile(latency_s=LATENCY_S, jitter_s=jitter_s)
        return loop.run(overheard(sides, question, settings, marker, link, link_seed))

    def _question(self, prompt: str) -> Question:
        ends = self.model.with_stops(self.model.prompt.template.stops)
        return Question(prompt=prompt, max_tokens=TOKENS, stop_tokens=ends)

    def answers(self) -> Iterator[Row]:
        """Yield the sample questions at each level."""
        model = self.model
        loaded = [LoadedSide.opened(sample_settings(side, model.name), model) for side in SIDES]
        private, public = (
            set().union(
                *(words(file.read_text("utf-8")) for file in bundled.documents(side).iterdir())
            )
            for side in SIDES
        )
        for number, asked in enumerate(bundled.questions()[: self.size.questions]):
            question = self._question(asked.text)
            for settings in levels(self.size.withhold):
                sides = [document_side(each, FORWARD_S) for each in loaded]
                heard = self._heard(sides, question, settings, 0)
                text = model.decode(heard.given.tokens)
                single = (model.decode([token]) for token in heard.listed(model.vocabulary))
                crossed = words(" ".join((model.decode(heard.drafted), *single)))
                known = private - public - words(asked.text)
                kept = [each.token for _, each in heard.given.answer.decisions if each.withheld]
                yield _measured(heard) | {
                    "part": "answers",
                    "case": number,
                    "right": asked.answered_by(text),
                    "words": len(crossed & known - words(text)),
                    "withheld_words": len(crossed & known & words(model.decode(kept))),
                }

    def _sides(self, question: Question, texts: Sequence[str]) -> list[ReadingSide]:
        """Return a device that has read these notes and a cloud that has read a public text."""
        model = self.model
        prompt = model.encode(model.prompt.question_text((), question.prompt))

        def side(name: Any, texts: Sequence[str], scores: Sequence[float]) -> ReadingSide:
            stored = [
                model.document_kv(model.encode(model.prompt.document_text("", text)))
                for text in texts
            ]
            rows = model.sequence(stored, len(prompt) + TOKENS)
            weighing = Weighing(np.array(scores) / question.relevance_temperature)
            start = start_hash(question.seed)
            reader: Reader = RecallingReader.behind(rows, prompt, start, weighing)
            return reading_side(name, model, lambda _: reader, FORWARD_S)

        scores = [0.5 - NEARLY * place for place in range(len(texts))]
        return [side("device", texts, scores), side("cloud", [PUBLIC], [0.2])]

    def membership(self) -> Iterator[Row]:
        """Yield how much crossed of a note that was read, and of another one."""
        encode, trials = self.model.encode, self.size.trials
        notes = canary_notes(3 * trials, self.seed)
        for number in range(trials):
            asked, member, other = notes[3 * number : 3 * number + 3]
            question = self._question(asked.question)
            sides = self._sides(question, (asked.text, member.text))
            without = self._sides(question, (asked.text,))
            said = (asked.question, f" {asked.text}", asked.text)
            known = {token for text in said for token in encode(text)}
            for settings in levels((8.0,)):
                heard, same = (
                    self._heard(each, question, settings, number) for each in (sides, without)
                )
                crossed = heard.listed(self.model.vocabulary)
                yield _measured(heard) | {
                    "part": "membership",
                    "case": number,
                    "used": heard.given.tokens != same.given.tokens,
                    "member": membership(crossed, encode(f" {member.text}"), known),
                    "other": membership(crossed, encode(f" {other.text}"), known),
                }

    def naming(self) -> Iterator[Row]:
        """Yield whether a classifier names the question, by framing."""
        repeats, notes = self.size.repeats, canary_notes(self.size.named, self.seed + 1)
        rows: dict[str, list[Row]] = {name: [] for name in framings()}
        observed: dict[str, list[Any]] = {name: [] for name in framings()}
        for number, note in enumerate(notes):
            question = self._question(note.question)
            sides = self._sides(question, (note.text,))
            for (name, settings), repeat in product(framings().items(), range(repeats)):
                link_seed = repeats * number + repeat
                heard = self._heard(sides, question, settings, link_seed, JITTER_S)
                observed[name].append(features(heard.seen))
                rows[name].append(
                    _measured(heard) | {"part": "naming", "framing": name, "case": number}
                )
        for name, some in rows.items():
            right = named(observed[name], [row["case"] for row in some], min(repeats, 5))
            yield from (row | {"named": each} for row, each in zip(some, right, strict=True))


def _measured(heard: Overheard) -> Row:
    """Return the columns that every part has of an answer."""
    settings, given = heard.given.answer.settings, heard.given
    assert isinstance(settings, DragonSettings)
    numbers, level = statistics(given.counts), settings.disclose.value
    return {
        "level": f"{level}, {settings.withhold:g}" if settings.redacts else level,
        "bytes_up": sum(each.size for each in heard.seen if each.up),
        "padding_up": numbers["padding_sent"],
        "tokens": len(given.tokens),
        "withheld": sum(event.withheld for _, event in given.answer.decisions),
        "ms_per_token": numbers["ms_per_token"],
        "seconds": given.seconds,
        "held_ms": numbers["held_ms"],
    }


def summarise(rows: list[Row]) -> dict[str, Any]:
    """Return what each level tells and costs; AUCs; how often a question is named."""
    answers, naming = having(rows, part="answers"), having(rows, part="naming")
    costs = ("right", "words", "withheld_words", "bytes_up", "padding_up", "tokens", "withheld")
    return {
        "answers": table(answers, "level", mean=costs, median=["ms_per_token"]),
        "membership": _aucs(rows),
        "chance": round(1 / len(grouped(naming, "case")), 4),
        "naming": table(
            naming, "framing", mean=("named", "bytes_up", "held_ms"), median=["seconds"]
        ),
    }


def _aucs(rows: list[Row]) -> dict[str, dict[str, float]]:
    """Return by level how well the note that was read is told from another one."""
    found = {}
    for (level,), some in grouped(having(rows, part="membership", used=False), "level").items():
        members, others = ([row[kind] for row in some] for kind in ("member", "other"))
        low, high = auc_interval(members, others)
        numbers = {"mean": auc(members, others), "low": low, "high": high, "trials": len(some)}
        found[level] = {name: round(number, 4) for name, number in numbers.items()}
    return found


def plot(rows: list[Row], path: Path) -> None:
    """Draw what the levels tell; how well a document and a question are told from others."""
    summary = summarise(rows)
    with charts.picture(path, columns=3, height_inches=4.0) as (_, axes):
        for axis, part, column, label in (
            (axes[0, 0], summary["answers"], "right", "answers right"),
            (axes[0, 1], summary["membership"], None, "AUC: which note was read"),
            (axes[0, 2], summary["naming"], "named", "questions named"),
        ):
            for place, each in enumerate(part.values()):
                share = each[column] if column else each
                if column == "right":
                    axis.barh(place, share["mean"], color=charts.BLUE)
                    words = round(each["words"]["mean"] * each["words"]["count"])
                    text = f"{words} words, {each['bytes_up']['mean']:.0f} B"
                    axis.text(0.02, place, text, va="center", fontsize=7, color="white")
                else:
                    axis.plot([share["low"], share["high"]], [place, place], color=charts.ORANGE)
                    axis.plot(share["mean"], place, "o", color=charts.VERMILION)
            axis.set_yticks(range(len(part)), list(part), fontsize=7)
            axis.invert_yaxis()
            axis.set(xlabel=label, xlim=(0, 1.02))
        axes[0, 1].axvline(0.5, color=charts.GREY, linestyle="--")
        axes[0, 2].axvline(summary["chance"], color=charts.GREY, linestyle="--")
