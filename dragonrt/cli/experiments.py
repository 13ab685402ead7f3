"""`dragonrt demo` and `dragonrt bench`: what the project shows, and what it measures of itself."""

from typing import Annotated

import typer

from dragonrt.cli.console import messages, output
from dragonrt.cli.options import AnswerOptions, AsJson, EmulationOptions

ROUND_TRIP_OF_100_MS = "50ms"

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

    Options other than --ask and --seed count with --ask; the comparison chooses them itself.
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
def oracle() -> None:
    """Whether every way of aggregating, at any latency, gives the synchronous run's text."""
    from dragonrt.experiments.bench.oracle import bench_oracle

    bench_oracle(output=output, messages=messages)
