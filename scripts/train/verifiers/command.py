"""`scripts/train/run verifier`: a head that says which drafted tokens the target would refuse."""

from pathlib import Path
from typing import Annotated, Literal

from dragonrt.cli.console import messages, output, say
from dragonrt.cli.loading import counting
from dragonrt.cli.options import option
from dragonrt.control.verifier import Verifier, trained_verifiers
from scripts.train.artefact import save_verifier
from scripts.train.verifiers.models import BatchedModel, BatchedPair
from scripts.train.verifiers.texts import read_texts
from scripts.train.verifiers.training import VerifierPlan, collect_parts, train_verifier

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
    kind: Annotated[
        Literal["sprinter", "specdec++"],
        option(
            "sprinter predicts q(x)/p(x) ≤ lambda, specdec++ the probability min(1, p(x)/q(x)).",
            default="sprinter",
        ),
    ] = "sprinter",
    features: Annotated[
        Literal["hidden", "hidden+confidence"],
        option(
            "What it reads: the draft model's last hidden state; and what q says of x.",
            default="hidden+confidence",
        ),
    ] = "hidden+confidence",
    ratio: Annotated[
        float, option("λ: up to this ratio q(x)/p(x) a token is good.", "--lambda", default="1.2")
    ] = 1.2,
    threshold: Annotated[
        float, option("τ: a token below it goes to the target.", default="0.5")
    ] = 0.5,
    samples: Annotated[
        int, option("Drafted tokens, held-out ones included.", default="30000")
    ] = 30_000,
    epochs: Annotated[int, option("Epochs at most.", default="100", low=1)] = 100,
    seed: Annotated[int, option("Of the split and of all that is drawn.", default="0", low=0)] = 0,
) -> None:
    """Train a verifier for a pair of models; scores are those on held-out text."""
    plan = VerifierPlan(kind, features, ratio, threshold, samples, epochs, seed)
    with messages.status("loading the models"):
        pair = BatchedPair(BatchedModel.load(draft), BatchedModel.load(target))
    with messages.status("reading the corpus"):
        texts = read_texts(corpus, pair.draft, seed)
    with counting("drafting") as show:
        parts = collect_parts(
            pair, texts, samples, seed, lambda part, done, total: show(done, total, part)
        )
    trained = train_verifier(pair, parts, plan, corpus.name)
    file = "--".join(Path(name).name for name in (draft, target, kind))
    path = (out or trained_verifiers()) / file
    save_verifier(trained, path)
    _print(trained)
    say(f"saved as {path}.safetensors and .json")


def _print(trained: Verifier) -> None:
    about = trained.trained_on
    test = about["test"]
    by_prefix = ", ".join(f"{name} {auc:.3f}" for name, auc in about["auc_by_prefix"].items())
    for line in (
        f"{trained.kind} verifier of {trained.pair.draft} and {trained.pair.target}, "
        f"{trained.weight.size + 1} parameters ({trained.features}), "
        f"{about['samples']} samples, {about['epochs']} epochs",
        f"on {test['samples']} held-out tokens, {100 * test['acceptable']:.1f}% with "
        f"q(x)/p(x) ≤ {test['ratio']:g}: AUC {test['auc']:.3f}; at threshold "
        f"{trained.threshold:g} η_TP {test['eta_tp']:.3f}, η_FP {test['eta_fp']:.3f}",
        f"AUC by how the prefix was made: {by_prefix}",
    ):
        output.print(line, markup=False, soft_wrap=True)
