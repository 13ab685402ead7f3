"""`dragonrt demo`, `bench` and `experiment`: what the project shows, and measures of itself."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from dragonrt.cli.console import messages, output
from dragonrt.cli.groups import option
from dragonrt.cli.loading import progress_bar
from dragonrt.cli.options import NETWORK, AnswerOptions, AsJson, EmulationOptions
from dragonrt.errors import DragonError

if TYPE_CHECKING:
    from dragonrt.runtime.endpoints import Address

ROUND_TRIP_OF_100_MS = "50ms"

NOTES = """
Times are those of a full run on two cores; with --quick each takes less than a minute.
A cloud that already runs elsewhere (--real --cloud HOST:PORT) can be asked by {}. The others ask
no cloud: they run in virtual time, or read texts in one process."""

bench = typer.Typer(
    no_args_is_help=True,
    help="Measure this machine; a table, and one JSON object on the last line.",
)


def demo(
    answers: AnswerOptions,
    emulation: EmulationOptions,
    ask: Annotated[
        str | None, typer.Option("--ask", help="Ask this instead of the sample questions.")
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Ask sample documents, private and public, in two processes 100 ms apart, and compare.

    --aggregator, --rule, --on-loss and --json count with --ask only: the comparison goes through
    the ways of answering itself.
    """
    plan = answers.plan()
    emulate = emulation.or_latency(ROUND_TRIP_OF_100_MS).emulate("device")

    from dragonrt.experiments.demo import run_demo

    run_demo(
        plan,
        output=output,
        messages=messages,
        emulate=emulate,
        ask=ask,
        as_json=as_json,
        stops=answers.stops,
        on_loss=answers.on_loss,
    )


def experiment(
    name: Annotated[
        str | None, typer.Argument(help="Which one; without it, what there is.")
    ] = None,
    quick: Annotated[bool, option("A version of less than a minute.", "--quick")] = False,
    repeats: Annotated[
        int | None,
        option("Times each point is measured; else 5, quick 2.", "--repeats", kind="N", min=1),
    ] = None,
    seed: Annotated[int, option("All chance comes from it.", "--seed", kind="N", min=0)] = 0,
    results: Annotated[
        Path, option("Writes DIR/NAME/NAME.csv, .json, .png.", "--results", kind="DIR")
    ] = Path("results"),
    real: Annotated[
        bool | None,
        typer.Option(
            "--real/--virtual",
            help="Real models in real time, or simulated ones in virtual time, where both can be.",
            show_default=False,
        ),
    ] = None,
    corpus: Annotated[
        Path | None,
        option(
            "The text that perplexity is measured on, or that generated texts go on from.",
            "--corpus",
            kind="FILE_OR_DIR",
        ),
    ] = None,
    draft: Annotated[
        str,
        option("Drafts, in sqs and the like: bundled name or directory.", "--draft", kind="NAME"),
    ] = "dragon-draft",
    target: Annotated[
        str, option("Verifies what that one drafts; same tokenizer.", "--target", kind="NAME")
    ] = "dragon-small",
    cloud: Annotated[
        str | None,
        option(
            "latency, ttft, pipeline --real: a cloud with the sample articles that runs already.",
            "--cloud",
            kind="HOST:PORT",
            panel=NETWORK,
        ),
    ] = None,
    key_file: Annotated[
        Path | None,
        option("File with the key shared with it.", "--key-file", kind="FILE", panel=NETWORK),
    ] = None,
    replot: Annotated[
        bool, typer.Option("--replot", help="Draw the picture again from the CSV, run nothing.")
    ] = False,
) -> None:
    """Measure one thing as a paper's figure does: rows, a record and a picture of it.

    Without a name: what there is, how long each takes, and which can use --cloud.
    """
    from dragonrt.experiments import catalogue, framework

    if name is None:
        width = max(len(each.NAME) for each in catalogue.EXPERIMENTS)
        for each in catalogue.EXPERIMENTS:
            clocks = " or ".join(each.CLOCKS)
            output.print(f"{each.NAME:<{width}} {each.SUMMARY} ({clocks})", soft_wrap=True)
        output.print(NOTES.format(_over_a_network()), soft_wrap=True)
        return
    chosen = catalogue.experiment(name)
    clock = framework.clock(chosen, real)
    if cloud is not None and chosen not in catalogue.OVER_A_NETWORK:
        raise DragonError(f"{name} asks no cloud: --cloud is for {_over_a_network()}")
    if cloud is not None and clock != "real":
        raise DragonError(f"a cloud that already runs answers in real time: {name} --real --cloud")
    address = _address(cloud, key_file) if cloud is not None else None
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
            corpus,
            draft,
            target,
            address,
        )
        with progress_bar(name) as bar:
            task = bar.add_task("", total=None)
            framework.run_experiment(
                chosen, settings, lambda done, all_: bar.update(task, completed=done, total=all_)
            )
    for path in (files.rows, files.record, files.picture):
        output.print(str(path), markup=False, soft_wrap=True)


def _over_a_network() -> str:
    from dragonrt.experiments import catalogue

    return ", ".join(each.NAME for each in catalogue.OVER_A_NETWORK)


def _address(cloud: str, key_file: Path | None) -> "Address":
    """Where HOST:PORT is; an IPv6 host is in brackets. DragonError says what is wrong."""
    from dragonrt.runtime.endpoints import Address, read_key

    host, _, port = cloud.rpartition(":")
    bracketed = host.startswith("[") and host.endswith("]")
    number = int(port) if port.isascii() and port.isdigit() and len(port) <= 5 else 0
    host = host[1:-1] if bracketed else host
    if not host or (":" in host and not bracketed) or not 1 <= number <= 65535:
        raise DragonError(f"--cloud takes HOST:PORT, such as 10.0.0.2:7070, not {cloud!r}")
    return Address(host, number, read_key(key_file) if key_file is not None else None)


@bench.command()
def decode() -> None:
    """Milliseconds per token of one side, against transformers' own generate."""
    from dragonrt.experiments.bench.decode import bench_decode

    bench_decode(output=output, messages=messages)


@bench.command()
def overhead() -> None:
    """What working together costs on a link without delay, over decoding alone."""
    from dragonrt.experiments.bench.overhead import bench_overhead

    bench_overhead(output=output, messages=messages)


@bench.command()
def latency() -> None:
    """Milliseconds per token on slow links, against answering without speculation."""
    from dragonrt.experiments.bench.latency import bench_latency

    bench_latency(output=output, messages=messages)


@bench.command()
def ttft() -> None:
    """Time to the first token with stored KV, against reading the documents anew."""
    from dragonrt.experiments.bench.ttft import bench_ttft

    bench_ttft(output=output, messages=messages)


@bench.command()
def assisted() -> None:
    """Speculative decoding in one process, against transformers' assisted generation."""
    from dragonrt.experiments.bench.assisted import bench_assisted

    bench_assisted(output=output, messages=messages)


@bench.command()
def retrieval() -> None:
    """Whether the article that answers a question is found by meaning, by words and by both."""
    from dragonrt.experiments.bench.retrieval import bench_retrieval

    bench_retrieval(output=output, messages=messages)


@bench.command()
def oracle() -> None:
    """Whether every way of aggregating, at any latency, gives the synchronous run's text."""
    from dragonrt.experiments.bench.oracle import bench_oracle

    bench_oracle(output=output, messages=messages)
