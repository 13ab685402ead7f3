"""`dragonrt demo`, `bench` and `experiment`: what the project shows, and measures of itself."""

from dataclasses import replace
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

from cyclopts import App, Parameter

from dragonrt.cli.answering import HttpOptions, LinkOptions
from dragonrt.cli.console import messages, output, say
from dragonrt.cli.loading import chosen_model, counting
from dragonrt.cli.options import DAILY, derived, option, settings
from dragonrt.errors import DragonError
from dragonrt.modes.question import Question
from dragonrt.modes.settings import DragonSettings
from dragonrt.runtime.addresses import LinkSettings, host_and_port
from dragonrt.runtime.side_settings import SideSettings
from dragonrt.service.http.http_settings import HttpSettings, check_libraries
from dragonrt.side import Precision

if TYPE_CHECKING:
    from dragonrt.runtime.endpoints import Address

DRAFT, TARGET = "dragon-draft", "dragon-small"
ROUND_TRIP_OF_100_MS = "50ms"

NOTES = """
Times are those of a full run on two cores; with --quick each takes less than a minute.
A cloud that already runs elsewhere (--real --cloud HOST:PORT) can be asked by {}. The others ask
no cloud: they run in virtual time, or read texts in one process."""


@derived({Question: "Sampling"})
class DemoOptions:
    """How tokens are sampled and documents used."""


@derived({DragonSettings: "Both sides together"})
class TogetherOptions:
    """How both sides come to one text."""


def demo(
    *,
    ask: Annotated[str | None, option("Ask this instead of the sample questions.")] = None,
    as_json: Annotated[bool, option("Print one JSON object per answer.", "--json")] = False,
    answers: DemoOptions | None = None,
    together: TogetherOptions | None = None,
    stop: Annotated[
        tuple[str, ...], option("Text that ends the answer; may be repeated.", panel="Sampling")
    ] = (),
    link: LinkOptions | None = None,
    model: Annotated[
        str | None, option("What both sides run.", default="smollm2 if it is installed")
    ] = None,
    serve: Annotated[bool, option("Serve the sample documents: a page, and OpenAI's API.")] = False,
    http: HttpOptions | None = None,
) -> None:
    """Ask sample documents, private and public, in two processes, and compare."""
    question, how = settings(Question, answers), settings(DragonSettings, together)
    emulate = settings(LinkSettings, link).or_latency(ROUND_TRIP_OF_100_MS).emulate("device")
    model = chosen_model(model)

    if serve:
        served = settings(HttpSettings, http)
        check_libraries()

        from dragonrt.experiments.demo_serve import serve_demo

        serve_demo(question, how, served, stop, model, messages=messages, say=say, emulate=emulate)
        return
    from dragonrt.experiments.demo import run_demo

    run_demo(
        question,
        how,
        model,
        output=output,
        messages=messages,
        emulate=emulate,
        ask=ask,
        as_json=as_json,
        stops=stop,
    )


def experiment(
    name: Annotated[
        str | None, Parameter(help="Which one; without it, what there is.", show_default=False)
    ] = None,
    /,
    *,
    quick: Annotated[bool, option("A version of less than a minute.")] = False,
    repeats: Annotated[
        int | None, option("Times each point is measured; else 5, quick 2.", low=1)
    ] = None,
    seed: Annotated[int, option("All chance comes from it.", default="0", low=0)] = 0,
    results: Annotated[
        Path, option("Writes DIR/NAME/NAME.csv, .json, .png.", kind="DIR", default="results")
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
        Path | None,
        option("The text that perplexity is measured on, or that generated texts go on from."),
    ] = None,
    model: Annotated[
        tuple[str, ...],
        option(
            "What both sides run; latency, ttft, perplexity and scheduling take several.",
            default="dragon-small; those four, if not quick, dragon-opt too",
        ),
    ] = (),
    draft: Annotated[str, option("Drafts in sqs and the like.", default=DRAFT)] = DRAFT,
    target: Annotated[str, option("Verifies the drafts.", default=TARGET)] = TARGET,
    worker: Annotated[
        tuple[str, ...],
        option("Of specfed, each.", default="dragon-small, dragon-opt"),
    ] = (TARGET, "dragon-opt"),
    cloud: Annotated[
        str | None,
        option(
            "latency, ttft, pipeline --real: a cloud with the sample articles that runs already.",
            kind="HOST:PORT",
        ),
    ] = None,
    key_file: Annotated[Path | None, option("File with the key shared with it.")] = None,
    replot: Annotated[bool, option("Draw the picture again from the CSV, run nothing.")] = False,
) -> None:
    """Measure one thing as a paper's figure does: rows, a record and a picture of it."""
    from dragonrt.experiments import figures, framework

    if name is None:
        width = max(len(each.NAME) for each in figures.EXPERIMENTS)
        for each in figures.EXPERIMENTS:
            clocks = " or ".join(each.CLOCKS)
            output.print(f"{each.NAME:<{width}} {each.SUMMARY} ({clocks})", soft_wrap=True)
        output.print(NOTES.format(_over_a_network()), soft_wrap=True)
        return
    chosen = figures.experiment(name)
    clock = framework.clock(chosen, real)
    if cloud is not None and chosen not in figures.OVER_A_NETWORK:
        raise DragonError(f"{name} asks no cloud: --cloud is for {_over_a_network()}")
    if cloud is not None and clock != "real":
        raise DragonError(f"a cloud that already runs answers in real time: {name} --real --cloud")
    address = _address(cloud, key_file) if cloud is not None else None
    models = figures.models_of(chosen, model, one=quick or cloud is not None)
    files = framework.files(chosen, results)
    if replot:
        framework.draw_again(chosen, files)
    else:
        plan = framework.Settings(
            quick,
            clock == "real",
            repeats or (2 if quick else 5),
            seed,
            files.directory,
            corpus,
            model[0] if model else TARGET,
            draft,
            target,
            worker,
            address,
        )
        with counting(name) as progress:
            framework.run_experiment(chosen, plan, progress, models)
    for path in (files.rows, files.record, *files.pictures):
        output.print(str(path), markup=False, soft_wrap=True)


def _over_a_network() -> str:
    from dragonrt.experiments import figures

    return ", ".join(each.NAME for each in figures.OVER_A_NETWORK)


def _address(cloud: str, key_file: Path | None) -> "Address":
    """Where HOST:PORT is. DragonError says what is wrong."""
    from dragonrt.link.shared_key import read_key
    from dragonrt.runtime.endpoints import Address

    place = host_and_port(cloud)
    if place is None:
        raise DragonError(f"--cloud takes HOST:PORT, such as 10.0.0.2:7070, not {cloud!r}")
    return Address(*place, read_key(key_file) if key_file is not None else None)


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
    "serve": "What HTTP costs: time to the first byte and tokens per second beside a terminal's.",
    "devices": "Fifty devices on one cloud for a minute.",
    "kill": "What is seen of clouds that are killed in mid-answer.",
    "engine": "Tokens/s of many answers that share forwards, over one at a time.",
}

bench = App(
    name="bench", help="Measure this machine; a table, and one JSON object on the last line."
)


def _bench(name: str) -> None:
    @bench.command(name=name, help=BENCHES[name])
    def run() -> None:
        module = import_module(f"dragonrt.experiments.bench.bench_{name}")
        getattr(module, f"bench_{name}")(output=output, messages=messages)


for _name in BENCHES:
    if _name not in ("decode", "isolation", "engine", "oracle", "soak"):
        _bench(_name)


@bench.command(name="soak", help=BENCHES["soak"])
def soak(
    *, answers: Annotated[int, option("So many answers.", default="5000", low=60)] = 5000
) -> None:
    from dragonrt.experiments.bench.bench_soak import bench_soak

    bench_soak(output=output, messages=messages, answers=answers)


@bench.command(name="decode", help=BENCHES["decode"])
def decode(
    *,
    model: Annotated[
        tuple[str, ...],
        option("Name, GGUF file, directory or hub id.", default="dragon-small, dragon-opt"),
    ] = ("dragon-small", "dragon-opt"),
) -> None:
    from dragonrt.experiments.bench.bench_decode import bench_decode

    bench_decode(output=output, messages=messages, models=model)


@bench.command(name="oracle", help=BENCHES["oracle"])
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
    from dragonrt.experiments.bench import bench_oracle

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


@bench.command(name="isolation", help=BENCHES["isolation"])
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
    from dragonrt.experiments.bench.bench_isolation import LONGEST, bench_isolation

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


@bench.command(name="engine", help=BENCHES["engine"])
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
    from dragonrt.experiments.bench import bench_engine

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
