"""`scripts/bench/run NAME`: a measure of this machine."""

from dataclasses import replace
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

from cyclopts import App, Parameter

from dragonrt.cli import run, set_up_logging
from dragonrt.cli.console import messages, output
from dragonrt.cli.loading import chosen_model
from dragonrt.cli.options import DAILY, derived, option, settings
from dragonrt.modes.question import Question
from dragonrt.node.side_settings import SideSettings
from dragonrt.side import Precision

if TYPE_CHECKING:
    pass

BENCHES = {
    "decode": "One side's time per token, against transformers'.",
    "overhead": "What working together costs on a link without delay, over decoding alone.",
    "latency": "Milliseconds per token on slow links, speculation or none.",
    "ttft": "Time to the first token with stored KV and without.",
    "profiler": "What the scheduler expects of drafts and links, over the truth.",
    "assisted": "Blocks in one process, against transformers' assisted.",
    "oracle": "Whether every way of aggregating, at any latency, gives the synchronous text.",
    "load": "Whether texts made beside others, in shared forwards, are those of their runs alone.",
    "memory": "What answers hold in memory: KV, and what is beside it.",
    "isolation": "Right answers over isolated documents: a side alone, one prompt, the mixture.",
    "retrieval": "What is found by meaning, by words and by both.",
    "index": "A large index: opening, searches, updates.",
    "loop": "How long the event loop is held in each mode.",
    "soak": "Memory of both sides over thousands of short answers.",
    "faults": "A service under a lying cloud, slow readers, a dead watcher, a full disk.",
    "serve": "What HTTP costs: time to the first byte and tokens per second beside a terminal's.",
    "devices": "Fifty devices on one cloud for a minute.",
    "kill": "What is seen of clouds that are killed in mid-answer.",
    "engine": "Tokens/s of many answers that share forwards, over one at a time.",
}

app = App(
    name="scripts/bench/run",
    help="Measure this machine: a table, then one JSON object.",
)


def _bench(name: str) -> None:
    @app.command(name=name, help=BENCHES[name])
    def command() -> None:
        module = import_module(f"scripts.bench.{name}")
        getattr(module, f"bench_{name}")(output=output, messages=messages)


for _name in BENCHES:
    if _name not in ("decode", "isolation", "engine", "oracle", "soak", "faults"):
        _bench(_name)


@app.command(name="soak", help=BENCHES["soak"])
def soak(
    *, answers: Annotated[int, option("So many answers.", default="5000", low=60)] = 5000
) -> None:
    from scripts.bench.soak import bench_soak

    bench_soak(output=output, messages=messages, answers=answers)


@app.command(name="faults", help=BENCHES["faults"])
def faults(
    *, answers: Annotated[int, option("So many answers.", default="2000", low=60)] = 2000
) -> None:
    from scripts.bench.faults import bench_faults

    bench_faults(output=output, messages=messages, answers=answers)


@app.command(name="decode", help=BENCHES["decode"])
def decode(
    *,
    model: Annotated[
        tuple[str, ...],
        option("Name, GGUF file, directory or hub id.", default="dragon-small, dragon-opt"),
    ] = ("dragon-small", "dragon-opt"),
) -> None:
    from scripts.bench.decode import bench_decode

    bench_decode(output=output, messages=messages, models=model)


@app.command(name="oracle", help=BENCHES["oracle"])
def oracle(
    *,
    model: Annotated[
        str, option("Name, GGUF file, directory or hub id.", default="dragon-small")
    ] = "dragon-small",
    dtype: Annotated[Precision, option("Its numbers.", default="auto")] = "auto",
    quick: Annotated[
        bool, option("2 questions, 4 seeds, 100 ms; with 0, 1 and 2 documents a side.")
    ] = False,
) -> None:
    from scripts.bench import oracle as bench_oracle

    matrix = bench_oracle.QUICK if quick else None
    bench_oracle.bench_oracle(
        output=output, messages=messages, model=model, dtype=dtype, matrix=matrix
    )


@derived(
    {SideSettings: DAILY},
    only=(
        *("model", "on", "dtype", "threads", "adapter", "prompt", "embedder", "chunk_words"),
        "search",
    ),
)
class IsolatedSideOptions:
    """What both sides answer with, and how documents are cut and found."""


@derived(
    {Question: "Answers"},
    only=("documents", "relevance_temperature", "reweight_every", "doubt"),
)
class IsolatedQuestionOptions:
    """How every answer comes about."""


@app.command(name="isolation", help=BENCHES["isolation"])
def isolation(
    file: Annotated[
        Path | None,
        Parameter(
            help="Articles with questions (JSON, as SQuAD's), or both sides' documents and "
            "questions; else notes and articles in forms that no training saw.",
            show_default=False,
        ),
    ] = None,
    /,
    *,
    questions: Annotated[
        int | None, option("So many questions, drawn by the seed; else all.", low=1)
    ] = None,
    seed: Annotated[int, option("Draws sides and questions.", default="2026", low=0)] = 2026,
    side: IsolatedSideOptions | None = None,
    answers: IsolatedQuestionOptions | None = None,
    rows: Annotated[
        Path | None, option("Writes every answer to FILE.", "--json", kind="FILE")
    ] = None,
) -> None:
    from scripts.bench.isolation import LONGEST, bench_isolation

    own = settings(SideSettings, side, side="device")
    bench_isolation(
        output=output,
        messages=messages,
        side=replace(own, model=chosen_model(own.model)),
        question=settings(Question, answers, seed=seed, max_tokens=LONGEST),
        file=file,
        count=questions,
        rows_file=rows,
    )


@app.command(name="engine", help=BENCHES["engine"])
def engine(
    *,
    model: Annotated[
        tuple[str, ...],
        option("Bundled name, directory, hub id, or random-0.1b, -0.5b, -0.6b; may be repeated."),
    ] = (),
    dtype: Annotated[
        tuple[Literal["float32", "bfloat16"], ...],
        option("Their numbers: float32, bfloat16; may be repeated."),
    ] = (),
    sessions: Annotated[
        tuple[int, ...], option("So many answers at once; may be repeated.", low=1)
    ] = (),
    documents: Annotated[int, option("Documents of each.", default="2", low=1)] = 2,
    tokens: Annotated[
        int | None, option("Tokens of all of them together; else 128, quick 64.", low=1)
    ] = None,
    repeats: Annotated[
        int | None, option("Times each is measured; else 3, quick 1.", low=1)
    ] = None,
    threads: Annotated[
        int | None, option("Threads of the model; otherwise a side's share of the cores.", low=1)
    ] = None,
    quick: Annotated[
        bool, option("In a minute: dragon-small and random-0.1b, bfloat16, 1 and 8 answers.")
    ] = False,
) -> None:
    from scripts.bench import engine as bench_engine

    bench_engine.bench_engine(
        output=output,
        messages=messages,
        models=model or (bench_engine.MODELS[:2] if quick else bench_engine.MODELS),
        dtypes=dtype or (("bfloat16",) if quick else ("float32", "bfloat16")),
        sessions=sessions or ((1, 8) if quick else bench_engine.SESSIONS),
        documents=documents,
        tokens=tokens or (64 if quick else 128),
        repeats=repeats or (1 if quick else 3),
        threads=threads,
    )


def main() -> None:
    """Run the command line."""
    set_up_logging()
    run(app)


if __name__ == "__main__":
    main()
