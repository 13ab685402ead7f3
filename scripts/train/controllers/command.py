"""`scripts/train/run controller`: learn a block's length and resolution by trying."""

from dataclasses import replace
from pathlib import Path
from typing import Annotated

from rich.table import Table

from dragonrt.backends.model import LanguageModel
from dragonrt.cli.console import messages, output, say
from dragonrt.cli.loading import counting
from dragonrt.cli.options import option
from scripts.train.artefact import save_controller
from scripts.train.controllers.controller_plan import Comparison, ControllerPlan
from scripts.train.controllers.model_pair import ModelPair
from scripts.train.controllers.recording import PairRecording
from scripts.train.controllers.task_prompts import bundled_prompts, corpus_prompts

DRAFT, TARGET = "dragon-draft", "dragon-small"


def controller(
    *,
    out: Annotated[Path, option("Where its two files go.", kind="FILE")],
    draft: Annotated[
        str, option("Draft model: bundled name, directory or hub id.", default=DRAFT)
    ] = DRAFT,
    target: Annotated[str, option("Target model, of the same tokenizer.", default=TARGET)] = TARGET,
    corpus: Annotated[
        Path | None,
        option("Questions, or text to be continued; else the sample questions.", kind="PATH"),
    ] = None,
    codec: Annotated[
        str, option("qs:L, ksqs:K:L or csqs:BETA:L; L is chosen anew.", default="qs:100")
    ] = "qs:100",
    link: Annotated[
        str, option("Profile of a link with Markov rates upwards.", default="nb-iot-markov")
    ] = "nb-iot-markov",
    temperature: Annotated[
        tuple[float, ...], option("Answers have one of these; else 0, 0.2 ... 1.")
    ] = (),
    texts: Annotated[
        int, option("Answers recorded; a third is held out.", default="600", low=3)
    ] = 600,
    trace: Annotated[
        Path | None,
        option("Recorded answers, which are made if it is missing, else used.", kind="FILE"),
    ] = None,
    steps: Annotated[int, option("Blocks that are tried.", default="300000", low=1)] = 300_000,
    seed: Annotated[int, option("All chance comes from it.", default="0", low=0)] = 0,
) -> None:
    """Train a controller by Double DQN, and compare it with every fixed action.

    The comparison is on held-out answers and courses of the uplink.
    """
    plan = ControllerPlan(codec=codec, link=link, texts=texts, steps=steps, seed=seed)
    if temperature:
        plan = replace(plan, temperatures=temperature)
    if trace is not None and trace.exists():
        recording = PairRecording.load(trace)
    else:
        with messages.status("loading the models"):
            pair = ModelPair(LanguageModel.load(draft), LanguageModel.load(target))
        model = pair.target
        prompts = bundled_prompts(model) if corpus is None else corpus_prompts(model, corpus)
        with counting("recording") as progress:
            recording = plan.record(pair, plan.tasks(prompts), progress)
        if trace is not None:
            recording.save(trace)
    with counting("learning") as progress:
        learned, compared = plan.train(recording, progress)
    saved = save_controller(learned, out)
    _print(compared)
    say("saved as {} and {}".format(*saved))


def _print(compared: Comparison) -> None:
    """Print a row per controller, on the same held-out episodes."""
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style="dim")
    table.add_column("controller")
    table.add_column("reward", justify="right")
    table.add_column("tokens/s", justify="right")
    for name, score in compared.rows().items():
        table.add_row(name, f"{score.mean_reward:.2f}", f"{score.tokens_per_s:.2f}")
    output.print(table)
