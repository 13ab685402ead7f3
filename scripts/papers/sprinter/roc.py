"""`sprinter-roc`: how well linear verifiers foretell rejections (SPRINTER Fig. 3, 9).

Verifiers are trained here as `scripts/train/run verifier` does, on answers to the sample questions
or on the corpus given, by each λ and for both sorts of features, and scored on held-out questions.
The bundled verifier is beside them with the curve of its own held-out text, not packaged.
"""

from contextlib import suppress
from pathlib import Path
from typing import Any, Literal, get_args

import numpy as np

from dragonrt import bundled
from dragonrt.backends.model import LanguageModel
from dragonrt.control.trained import Verifier
from dragonrt.errors import ControlError
from dragonrt.side import Side
from retrieval.documents import load
from scripts.lab.intervals import Row, distinct, grouped, having, mean, table
from scripts.lab.model_pair import ModelPair
from scripts.lab.passages import Passage, answered, read_texts, split
from scripts.papers import charts
from scripts.papers.framework import Clock, Progress, Settings
from scripts.papers.texts import answerable, kind_of
from scripts.train.verifiers.training import VerifierPlan, collect_parts, train_verifier

NAME = "sprinter-roc"
SUMMARY = "ROC of linear verifiers on held-out text over λ (SPRINTER Fig. 3, 9; 3 minutes)"
CLOCKS: tuple[Clock, ...] = ("real",)

RATIOS = (1.0, 1.2, 1.5)
FEATURES: tuple[Literal["hidden", "hidden+confidence"], ...] = ("hidden", "hidden+confidence")
DISTRACTORS = 4
"""Further documents that each sample question is put to."""
SAMPLES, SAMPLES_QUICK = 6000, 800
"""Drafted tokens of each repeat, the held-out fifth included."""
BUNDLED = "bundled"


def run(settings: Settings, progress: Progress) -> list[Row]:
    """Return a row per threshold of each verifier's curve."""
    pair = ModelPair.load(settings.draft, settings.model)
    rows: list[Row] = []
    with suppress(ControlError):  # of other models there may be none
        shipped = Verifier.for_pair(pair.draft.fingerprint, pair.target.fingerprint)
        rows += _rows(shipped, BUNDLED, 0)
    samples = settings.size(SAMPLES, SAMPLES_QUICK)
    for repeat in range(settings.repeats):
        seed = settings.seed * settings.repeats + repeat
        done: dict[str, int] = {}

        def report(
            part: str, number: int, _: int, done: dict[str, int] = done, repeat: int = repeat
        ) -> None:
            done[part] = number
            progress(repeat * samples + sum(done.values()), settings.repeats * samples)

        if settings.corpus is None:
            texts = split(_sample_prompts(pair.draft, seed), seed)
        elif kind_of(settings.corpus) == "answers":
            texts = split(_by_article(pair.draft, settings.corpus), seed)
        else:
            texts = read_texts(settings.corpus, pair.draft, seed)
        parts = collect_parts(pair, texts, samples, seed, report)
        for features in FEATURES:
            for ratio in RATIOS:
                plan = VerifierPlan(features=features, samples=samples, seed=seed, ratio=ratio)
                rows += _rows(train_verifier(pair, parts, plan, ""), features, repeat)
    return rows


def _sample_prompts(model: LanguageModel, seed: int) -> list[list[Passage]]:
    """Return for each sample question prompts with its documents and with others."""
    random = np.random.default_rng(seed)
    texts = {
        (side, file.name): model.prompt.document_text("", load(file).text)
        for side in get_args(Side)
        for file in sorted(bundled.documents(side).iterdir())
    }
    others = random.choice(list(texts), (len(bundled.questions()), DISTRACTORS))
    return [
        [
            answered(
                model,
                texts[side, name] + model.prompt.question_text((), question.text),
                ", ".join(question.expected),
            )
            for side, name in [*question.evidence, *map(tuple, some)]
        ]
        for question, some in zip(bundled.questions(), others, strict=True)
    ]


def _by_article(model: LanguageModel, file: Path) -> list[list[Passage]]:
    """Return each article's questions behind their paragraph, with an answer."""
    articles: dict[str, list[Passage]] = {}
    for each in answerable(file):
        text = model.prompt.document_text(each.title, each.text)
        passage = answered(
            model, text + model.prompt.question_text((), each.question), each.expected[0]
        )
        articles.setdefault(each.title, []).append(passage)
    return list(articles.values())


def _rows(verifier: Verifier, name: str, repeat: int) -> list[Row]:
    test = verifier.trained_on["test"]
    same = {each: test[each] for each in ("ratio", "auc", "acceptable", "samples")}
    return [
        {"verifier": name, "repeat": repeat, "threshold": threshold}
        | {"eta_tp": eta_tp, "eta_fp": eta_fp, **same}
        for threshold, eta_tp, eta_fp in verifier.trained_on["roc"]
    ]


def summarise(rows: list[Row]) -> dict[str, Any]:
    """Return AUCs, rates at threshold 0.5 and held-out tokens over repeats, by features and λ."""
    columns = ("auc", "eta_tp", "eta_fp", "acceptable", "samples")
    return table(having(rows, threshold=0.5), "verifier", "ratio", mean=columns)


def plot(rows: list[Row], path: Path) -> None:
    """Draw a panel for each sort of features with the curves of each λ."""
    names = [name for name in distinct(rows, "verifier") if name != BUNDLED]
    shipped = having(rows, verifier=BUNDLED)
    with charts.picture(path, columns=len(names), height_inches=4.2, sharey=True) as (_, axes):
        for axis, name in zip(axes[0], names, strict=True):
            some = grouped(having(rows, verifier=name), "ratio")
            for ((ratio,), group), colour in zip(some.items(), charts.COLOURS, strict=False):
                _curve(axis, group, f"λ = {ratio:g}", colour)
            if shipped and name == names[-1]:
                label = f"bundled, λ = {shipped[0]['ratio']:g}"
                _curve(axis, shipped, label, charts.BLACK, linestyle="--")
            axis.plot((0, 1), (0, 1), color=charts.GREY, linewidth=0.8)
            axis.set(title=f"reads {name}", xlabel="false positives η_FP")
            axis.legend(loc="lower right")
        axes[0, 0].set_ylabel("true positives η_TP")


def _curve(axis: Any, rows: list[Row], label: str, colour: str, linestyle: str = "-") -> None:
    """Draw the mean curve over repeats, at equal thresholds; threshold 0.5 is marked."""
    points = {
        threshold: (mean(group, "eta_fp"), mean(group, "eta_tp"))
        for (threshold,), group in grouped(rows, "threshold").items()
    }
    label = f"{label}: AUC {mean(rows, 'auc'):.3f}"
    axis.plot(*zip(*points.values(), strict=True), linestyle, color=colour, label=label)
    axis.plot(*points[0.5], "o", color=colour)
