"""`disclosure`: what each level tells of the device's documents, and what it costs (SPEC 1.10).

The sample questions at each level, and at `redacted` over what is withheld, by real models and
messages in virtual time. What attackers make of it is in `attacks`.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from dragonrt import bundled
from dragonrt.backends.model import LanguageModel
from dragonrt.modes.dragon.settings import DragonSettings
from dragonrt.node.answers.citing import is_refusal
from dragonrt.privacy.disclosure import Disclosure
from dragonrt.side import SIDES
from dragonrt.traces.statistics import statistics
from scripts.lab.intervals import Row, table
from scripts.lab.model_sides import LoadedSide, document_side, sample_settings
from scripts.papers import charts
from scripts.papers.dragon.crossing import FORWARD_S, Overheard, Scene, words
from scripts.papers.framework import Clock, Progress, Settings, measure_all

NAME = "disclosure"
SUMMARY = "What crosses at each level of --disclose, and what it costs (1 minute)"
CLOCKS: tuple[Clock, ...] = ("virtual",)


@dataclass(frozen=True, slots=True)
class Size:
    """So many questions, and the factors that `redacted` withholds at."""

    questions: int
    withhold: tuple[float, ...]


FULL, QUICK = Size(16, (2.0, 8.0, 64.0, 1e6)), Size(6, (8.0,))


def run(settings: Settings, progress: Progress) -> list[Row]:
    """Return a row per question and level."""
    size, model = settings.size(FULL, QUICK), LanguageModel.load(settings.model, "cpu")
    scene, refusal = Scene(model), model.prompt.template.refusal
    loaded = [LoadedSide.opened(sample_settings(side, model.name), model) for side in SIDES]
    private, public = (
        set().union(*(words(file.read_text("utf-8")) for file in bundled.documents(side).iterdir()))
        for side in SIDES
    )

    def rows(number: int) -> list[Row]:
        asked = bundled.questions()[number]
        known = private - public - words(asked.text)
        found = []
        for chosen in levels(size.withhold):
            sides = [document_side(each, FORWARD_S) for each in loaded]
            heard = scene.heard(sides, scene.question(asked.text), chosen)
            text = model.decode(heard.given.tokens)
            single = (model.decode([token]) for token in heard.listed(model.vocabulary))
            crossed = words(" ".join((model.decode(heard.drafted), *single)))
            right, refused = asked.answered_by(text), is_refusal(text, refusal)
            kept = [each.token for _, each in heard.given.answer.decisions if each.withheld]
            found.append(
                _measured(heard, chosen)
                | {
                    "case": number,
                    "right": right,
                    "wrong": not right and not refused,
                    "refused": refused,
                    "words": len(crossed & known - words(text)),
                    "withheld_words": len(crossed & known & words(model.decode(kept))),
                }
            )
        return found

    return measure_all(rows, range(size.questions), progress)


def levels(withhold: Sequence[float]) -> list[DragonSettings]:
    """Return the settings of each level, `redacted` over what is withheld."""
    redacted = [DragonSettings(disclose=Disclosure.REDACTED, withhold=each) for each in withhold]
    return [DragonSettings(), DragonSettings(disclose=Disclosure.ANSWER), *redacted]


def _measured(heard: Overheard, settings: DragonSettings) -> Row:
    given = heard.given
    numbers, level = statistics(given.counts), settings.disclose.value
    return {
        "level": f"{level}, {settings.withhold:g}" if settings.redacts else level,
        "bytes_up": heard.bytes_up,
        "padding_up": numbers["padding_sent"],
        "tokens": len(given.tokens),
        "withheld": sum(event.withheld for _, event in given.answer.decisions),
        "ms_per_token": numbers["ms_per_token"],
    }


def summarise(rows: list[Row]) -> dict[str, Any]:
    """Return what each level tells and costs."""
    costs = ("words", "withheld_words", "bytes_up", "padding_up", "tokens", "withheld")
    means = ("right", "wrong", "refused", *costs)
    return table(rows, "level", mean=means, median=["ms_per_token"])


def plot(rows: list[Row], path: Path) -> None:
    """Draw how many answers of each level are right; words and bytes that crossed."""
    with charts.picture(path, height_inches=3.0) as (_, axes):
        axis, found = axes[0, 0], summarise(rows)
        for place, each in enumerate(found.values()):
            axis.barh(place, each["right"]["mean"], color=charts.BLUE)
            leaked = round(each["words"]["mean"] * each["words"]["count"])
            text = f"{leaked} words, {each['bytes_up']['mean']:.0f} B"
            axis.text(each["right"]["mean"] + 0.01, place, text, va="center", fontsize=7)
        axis.set_yticks(range(len(found)), list(found), fontsize=7)
        axis.invert_yaxis()
        axis.set(xlabel="answers right", xlim=(0, 1.2), xticks=[0, 0.2, 0.4, 0.6, 0.8, 1])
