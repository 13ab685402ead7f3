"""`scripts/papers/run FIGURE`: one figure of a paper: rows, a record and a picture of it."""

from pathlib import Path
from typing import Annotated

from cyclopts import App, Parameter

from dragonrt.cli import run, set_up_logging
from dragonrt.cli.console import output
from dragonrt.cli.loading import showing_progress
from dragonrt.cli.options import option
from dragonrt.errors import DragonError
from dragonrt.node.connections.addresses import host_and_port

NOTES = """
Times are those of a full run on two cores; with --quick each takes less than a minute.
A cloud that already runs elsewhere (--real --cloud HOST:PORT) can be asked by {}. The others ask
no cloud: they run in virtual time, or read texts in one process."""

app = App(name="scripts/papers/run", help="Draw a figure of a paper.")


@app.default
def figure(
    name: Annotated[
        str | None, Parameter(help="Which one; without it, what there is.", show_default=False)
    ] = None,
    /,
    *,
    quick: Annotated[bool, option("Measure in less than a minute.")] = False,
    repeats: Annotated[
        int | None, option("Measurements of each point. Default: 5, or 2 with --quick.", low=1)
    ] = None,
    seed: Annotated[int, option("Random seed.", default="0", low=0)] = 0,
    results: Annotated[
        Path, option("Directory for NAME/NAME.csv, .json, .png.", kind="DIR", default="results")
    ] = Path("results"),
    real: Annotated[
        bool | None,
        Parameter(
            help="Real models in real time, or simulated ones in virtual time, if both can be.",
            negative="--virtual",
            show_default=False,
        ),
    ] = None,
    corpus: Annotated[
        tuple[Path, ...],
        option(
            "Text for perplexity, or that answers continue; may be repeated: "
            "articles with questions (.json), conversations (.jsonl), text."
        ),
    ] = (),
    model: Annotated[
        tuple[str, ...],
        option(
            "Model of both sides, of the cloud, or of each federated worker.",
            default="smollm2; without its file toys: dragon-small, dragon-draft",
        ),
    ] = (),
    draft: Annotated[
        str, option("Draft model.", default="smollm2-draft, of toys dragon-draft")
    ] = "",
    cloud: Annotated[
        str | None,
        option(
            "latency, ttft, pipeline --real: a running cloud with the sample articles.",
            kind="HOST:PORT",
        ),
    ] = None,
    key_file: Annotated[Path | None, option("File of the shared key.")] = None,
    replot: Annotated[bool, option("Draw the picture from the CSV without a run.")] = False,
) -> None:
    """Measure one thing as a paper's figure does: rows, a record and a picture of it."""
    from dragonrt.link.shared_key import read_key
    from dragonrt.node.connections.addresses import Address
    from scripts.papers import figures, framework

    over_a_network = ", ".join(figures.OVER_A_NETWORK)
    if name is None:
        width = max(len(each.NAME) for each in figures.EXPERIMENTS)
        for each in figures.EXPERIMENTS:
            clocks = " or ".join(each.CLOCKS)
            output.print(f"{each.NAME:<{width}} {each.SUMMARY} ({clocks})", soft_wrap=True)
        output.print(NOTES.format(over_a_network), soft_wrap=True)
        return
    chosen = figures.experiment(name)
    clock = chosen.CLOCKS[0] if real is None else "real" if real else "virtual"
    if clock not in chosen.CLOCKS:
        raise DragonError(f"{name} runs on the {chosen.CLOCKS[0]} clock only: leave --{clock} out")
    if cloud is not None and name not in figures.OVER_A_NETWORK:
        raise DragonError(f"{name} asks no cloud: --cloud is for {over_a_network}")
    if cloud is not None and clock != "real":
        raise DragonError(f"a cloud that already runs answers in real time: {name} --real --cloud")
    address = None
    if cloud is not None:
        place = host_and_port(cloud)
        if place is None:
            raise DragonError(f"--cloud takes HOST:PORT, such as 10.0.0.2:7070, not {cloud!r}")
        address = Address(*place, read_key(key_file) if key_file is not None else None)
    models = figures.models_of(chosen, model)
    files = framework.files(chosen, results)
    if replot:
        framework.draw_again(chosen, files)
    else:
        settings = framework.Settings(
            quick,
            clock == "real",
            repeats or (2 if quick else 5),
            seed,
            files.directory,
            models,
            draft or figures.draft_of(models),
            corpus,
            address,
        )
        by_model = name in figures.BY_MODEL
        with showing_progress(name) as progress:
            framework.run_experiment(chosen, settings, progress, by_model=by_model)
    for path in (files.rows, files.record, *files.pictures):
        output.print(str(path), markup=False, soft_wrap=True)


def main() -> None:
    """Run the command line."""
    set_up_logging()
    run(app)


if __name__ == "__main__":
    main()
