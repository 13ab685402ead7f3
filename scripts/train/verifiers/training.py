"""Training a verifier for a pair of models: collect, fit, judge on held-out text (SPRINTER 3.2).

At run time a prefix holds tokens of the draft and of the target, so a verifier learns from prefixes
of four kinds in equal share.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Annotated

import numpy as np
from cyclopts import Parameter
from numpy.typing import NDArray
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import roc_auc_score
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from dragonrt.cli.console import messages, output, say
from dragonrt.cli.loading import showing_progress
from dragonrt.cli.options import option
from dragonrt.control.trained import (
    KIND,
    Features,
    TrainedPair,
    Verifier,
    confidences,
    trained_verifiers,
)
from dragonrt.errors import TrainingError
from scripts.lab.model_pair import AnswerReader, ModelPair
from scripts.lab.passages import SHARES, CutPassage, Part, Passage, Texts, read_texts
from scripts.train.artefact import save_verifier

KINDS = ("original", "draft", "target", "both")
"""How a prefix goes on behind its original beginning: as the original does, or completed by the
draft model, by the target, or by both, each token by either."""

COMPLETION = 32
"""Tokens that a prefix is completed by; each length on the way is a sample."""

_SMALLEST = 1e-12  # a probability, so that no ratio is infinite

Progress = Callable[[int, int], None]
_Sample = tuple[NDArray[np.float32], NDArray[np.float32], float, int]


@dataclass(frozen=True, slots=True, eq=False)
class Samples:
    """n drafted tokens x, each drawn from the draft model's q after some prefix.

    `hidden` float32 [n, hidden]: the draft model's last hidden state, from which q was computed.
    `confidence` float32 [n, 3]: `control.trained.confidences`. `log_ratio` float32 [n]:
    log q(x)/p(x). `kind` int64 [n]: which of `KINDS` its prefix is.
    """

    hidden: NDArray[np.float32]
    confidence: NDArray[np.float32]
    log_ratio: NDArray[np.float32]
    kind: NDArray[np.int64]


def collect(
    pair: ModelPair, passages: Sequence[Passage], number: int, seed: int, progress: Progress
) -> Samples:
    """`number` samples, rounded down to an equal share of each kind.

    Passages are used in random order, again and again with other cuts.
    """
    random, share = np.random.default_rng(seed), number // len(KINDS)
    found: list[list[_Sample]] = [[] for _ in KINDS]
    order = _endless(len(passages), random)
    while min(map(len, found)) < share:
        progress(sum(min(len(each), share) for each in found), share * len(KINDS))
        cut = passages[next(order)].cut(random)
        readers = [
            AnswerReader(model, cut.prefix, COMPLETION) for model in (pair.draft, pair.target)
        ]
        stops = set(pair.target.answer_stops if cut.is_answer else pair.target.stop_tokens)
        for kind, several in enumerate(found):
            if len(several) < share:
                text = _completed(readers, cut, kind, stops, random)
                several += _drafted(readers, text, kind, random)
    columns = zip(*(one for several in found for one in several[:share]), strict=True)
    hidden, confidence, log_ratio, kinds = map(np.array, columns)
    return Samples(hidden, confidence, log_ratio.astype(np.float32), kinds)


def _completed(
    readers: Sequence[AnswerReader],
    cut: CutPassage,
    kind: int,
    stops: set[int],
    random: np.random.Generator,
) -> list[int]:
    """Return how a prefix of this kind goes on, to the first stop token."""
    text: list[int] = []
    limit = COMPLETION if KINDS[kind] != "original" else min(COMPLETION, len(cut.rest))
    while len(text) < limit and stops.isdisjoint(text):
        match KINDS[kind]:
            case "original":
                text.append(cut.rest[len(text)])
                continue
            case "both":
                reader = readers[int(random.integers(2))]
            case name:
                reader = readers[name == "target"]
        text.append(_drawn(reader.after(text, len(text))[0].p, random))
    return text


def _drafted(
    readers: Sequence[AnswerReader], text: Sequence[int], kind: int, random: np.random.Generator
) -> Iterator[_Sample]:
    """Yield a token drafted after each prefix of a text but the whole."""
    for said, verified in zip(*(reader.after(text[:-1], 0) for reader in readers), strict=True):
        token = _drawn(said.p, random)
        log_ratio = np.log(said.p[token]) - np.log(max(verified.p[token], _SMALLEST))
        yield said.hidden, confidences(said.p, token), log_ratio, kind


def _drawn(p: NDArray[np.float32], random: np.random.Generator) -> int:
    """Draw a token of a distribution [vocabulary]."""
    cumulated = p.cumsum(dtype=np.float64)
    return int(np.searchsorted(cumulated, random.random() * cumulated[-1], side="right"))


def _endless(number: int, random: np.random.Generator) -> Iterator[int]:
    """The numbers below `number` in a random order, then in another, and so on."""
    while True:
        yield from random.permutation(number).tolist()


Labelled = tuple[NDArray[np.float32], NDArray[np.bool_]]
"""Features [n, features], and what is to be predicted [n]."""


def fit(training: Labelled) -> tuple[NDArray[np.float32], float]:
    """Return the weights [features] and the bias of a logistic layer, for features as they are."""
    model = make_pipeline(StandardScaler(), LogisticRegression(max_iter=1000)).fit(*training)
    scaler, layer = model[0], model[1]
    weight = (layer.coef_[0] / scaler.scale_).astype(np.float32)
    return weight, float(layer.intercept_[0] - weight @ scaler.mean_)


FEWEST_SAMPLES = 400
"""Below this the smallest part has no sample of each kind and label to speak of."""


@Parameter(name="*")
@dataclass(frozen=True, slots=True, kw_only=True)
class VerifierPlan:
    """What is trained, and how. Raises TrainingError for values that make no sense.

    `ratio` is λ: tokens with q(x)/p(x) ≤ λ are acceptable.
    """

    features: Annotated[
        Features,
        option(
            "What it reads: the draft model's last hidden state; and what q says of x.",
            default="hidden+confidence",
        ),
    ] = "hidden+confidence"
    ratio: Annotated[
        float, option("λ: up to this ratio q(x)/p(x) a token is good.", "--lambda", default="1.2")
    ] = 1.2
    threshold: Annotated[
        float, option("τ: a token below it goes to the target.", default="0.5")
    ] = 0.5
    samples: Annotated[
        int, option("Drafted tokens, held-out ones included.", default="30000", low=FEWEST_SAMPLES)
    ] = 30_000
    seed: Annotated[int, option("Of the split and of all that is drawn.", default="0", low=0)] = 0

    def __post_init__(self) -> None:
        if not 0 < self.ratio < float("inf"):
            raise TrainingError(f"lambda {self.ratio} must be a finite number above 0")
        if not 0 < self.threshold < 1:
            raise TrainingError(f"threshold {self.threshold} must lie between 0 and 1")

    def labelled(self, samples: Samples) -> Labelled:
        """Return the features that are read, and whether each token is acceptable (q/p ≤ λ)."""
        read = (samples.hidden, samples.confidence)[: 1 + (self.features == "hidden+confidence")]
        return np.concatenate(read, axis=1), samples.log_ratio <= np.log(self.ratio)


CURVE_POINTS = 51
"""Points of a stored ROC curve."""


def rates(
    said: NDArray[np.float64], acceptable: NDArray[np.bool_], threshold: float
) -> tuple[float, float]:
    """Return η_TP and η_FP: how often acceptable tokens, and others, reach the threshold."""
    passed = said >= threshold
    return float(passed[acceptable].mean()), float(passed[~acceptable].mean())


def auc(said: NDArray[np.float64], acceptable: NDArray[np.bool_]) -> float:
    """Return the area under the ROC curve. Raises TrainingError unless both sorts are there."""
    if acceptable.all() or not acceptable.any():
        raise TrainingError(
            "the target would treat all drafted tokens of the held-out text alike: "
            "use more text, or another lambda"
        )
    return float(roc_auc_score(acceptable, said))


Parts = dict[Part, Samples]


def collect_parts(
    pair: ModelPair,
    texts: Texts,
    samples: int,
    seed: int,
    progress: Callable[[str, int, int], None],
) -> Parts:
    """Samples of each part of the texts, each with an equal share of the four kinds of prefix."""
    return {
        part: collect(
            pair,
            texts[part],
            round(share * samples),
            len(SHARES) * seed + number,
            partial(progress, part),
        )
        for number, (part, share) in enumerate(SHARES.items())
    }


def train_verifier(pair: ModelPair, parts: Parts, plan: VerifierPlan, corpus: str) -> Verifier:
    """A verifier fitted to the training part, with its scores on the test part.

    `corpus` names what the samples come from. Raises TrainingError if all samples of a part are of
    one sort.
    """
    known = [plan.labelled(parts[part]) for part in ("training", "validation")]
    features, labels = map(np.concatenate, zip(*known, strict=True))
    weight, bias = fit((features, labels))
    kinds, (held, acceptable) = parts["test"].kind, plan.labelled(parts["test"])
    said = (1 + np.tanh((held.astype(np.float64) @ weight + bias) / 2)) / 2
    eta_tp, eta_fp = rates(said, acceptable, plan.threshold)
    test = {"ratio": plan.ratio, "samples": len(said), "acceptable": float(acceptable.mean())}
    test |= {"auc": auc(said, acceptable), "eta_tp": eta_tp, "eta_fp": eta_fp}
    curve = [(each, *rates(said, acceptable, each)) for each in np.linspace(0, 1, CURVE_POINTS)]
    return Verifier(
        features=plan.features,
        pair=TrainedPair(
            pair.draft.name, pair.target.name, pair.draft.fingerprint, pair.target.fingerprint
        ),
        weight=weight,
        bias=bias,
        threshold=plan.threshold,
        ratio=plan.ratio,
        trained_on={
            "corpus": corpus,
            "samples": len(labels),
            "seed": plan.seed,
            "test": test,
            "auc_by_prefix": {
                name: auc(said[kinds == kind], acceptable[kinds == kind])
                for kind, name in enumerate(KINDS)
            },
            "roc": np.round(curve, 4).tolist(),
        },
    )


DRAFT, TARGET = "dragon-draft", "dragon-small"


def verifier(
    *,
    corpus: Annotated[Path, option("Text to learn from: a file, or a directory of at least 10.")],
    out: Annotated[
        Path | None, option("Where its two files go; else where the models find it.", kind="DIR")
    ] = None,
    draft: Annotated[
        str, option("Draft model: bundled name, directory or hub id.", default=DRAFT)
    ] = DRAFT,
    target: Annotated[str, option("Target model, of the same tokenizer.", default=TARGET)] = TARGET,
    plan: VerifierPlan = VerifierPlan(),
) -> None:
    """Train a verifier for a pair of models; scores are those on held-out text."""
    with messages.status("loading the models"):
        pair = ModelPair.load(draft, target)
    with messages.status("reading the corpus"):
        texts = read_texts(corpus, pair.draft, plan.seed)
    with showing_progress("drafting") as show:
        parts = collect_parts(
            pair, texts, plan.samples, plan.seed, lambda part, done, total: show(done, total, part)
        )
    trained = train_verifier(pair, parts, plan, corpus.name)
    path = (out or trained_verifiers()) / "--".join(
        Path(name).name for name in (draft, target, KIND)
    )
    save_verifier(trained, path)
    about, test = trained.trained_on, trained.trained_on["test"]
    by_prefix = ", ".join(f"{name} {auc:.3f}" for name, auc in about["auc_by_prefix"].items())
    for line in (
        f"verifier of {draft} and {target}, {trained.weight.size + 1} parameters "
        f"({trained.features}), {about['samples']} samples",
        f"on {test['samples']} held-out tokens, {100 * test['acceptable']:.1f}% with "
        f"q(x)/p(x) ≤ {test['ratio']:g}: AUC {test['auc']:.3f}; at threshold "
        f"{trained.threshold:g} η_TP {test['eta_tp']:.3f}, η_FP {test['eta_fp']:.3f}",
        f"AUC by how the prefix was made: {by_prefix}",
    ):
        output.print(line, markup=False, soft_wrap=True)
    say(f"saved as {path}.safetensors and .json")
