"""The command line: parse, call, print.

Every option may also be set by an environment variable `DRAGONRT_<OPTION>` or in a TOML file with
one table per command; a flag wins over the environment, the environment over the file.
"""

import logging
import os
import sys
import tomllib
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import platformdirs
import typer
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, TextColumn
from rich.progress import Progress as Bar

from dragonrt import __version__
from dragonrt.errors import DragonError

if TYPE_CHECKING:
    from dragonrt.language.model import LanguageModel
    from dragonrt.runtime.library import Library
    from dragonrt.runtime.process import SideSettings
    from retrieval import Report

for _variable in ("TOKENIZERS_PARALLELISM",):
    os.environ.setdefault(_variable, "false")

app = typer.Typer(
    name="dragonrt",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    context_settings={"auto_envvar_prefix": "DRAGONRT", "help_option_names": ["-h", "--help"]},
    help="Two peers, each with its own documents, answer one question together.",
)
output = Console(highlight=False)
messages = Console(stderr=True, highlight=False)
DEFAULT_PORT = 7070


def option(text: str, *names: str, panel: str | None = None) -> Any:
    """An option that the environment variable DRAGONRT_<NAME> sets too."""
    long = next(name for name in names if name.startswith("--"))
    variable = "DRAGONRT_" + long.split("/")[0].removeprefix("--").replace("-", "_").upper()
    return typer.Option(*names, help=text, envvar=variable, rich_help_panel=panel)


Model = Annotated[str, option("Bundled name, local directory or hub id.", "--model", "-m")]
Device = Annotated[
    Literal["auto", "cpu", "cuda", "mps"], option("Where the model runs.", "--device")
]
Dtype = Annotated[
    Literal["auto", "float32", "bfloat16", "float16"], option("Its precision.", "--dtype")
]
Documents = Annotated[
    Path | None, option("Directory of documents, indexed at the start.", "--documents", "-d")
]
IndexAt = Annotated[
    Path | None, option("Directory of the index (default: one per documents).", "--index")
]
EmbedderName = Annotated[
    str, option("Embedding model: default, directory or hub id.", "--embedder")
]
RerankerName = Annotated[str | None, option("Cross-encoder: directory or hub id.", "--reranker")]
ChunkWords = Annotated[int, option("Words per chunk.", "--chunk-words")]
TraceTo = Annotated[Path | None, option("Write every event as a JSON line.", "--trace")]
Host = Annotated[str, option("Address.", "--host", panel="Network")]
Port = Annotated[int, option("Port.", "--port", "-p", panel="Network")]
KeyFile = Annotated[
    Path | None, option("File with the key both sides share.", "--key-file", panel="Network")
]
TlsCert = Annotated[Path | None, option("Own certificate.", "--tls-cert", panel="Network")]
TlsKey = Annotated[Path | None, option("Its private key.", "--tls-key", panel="Network")]
TlsCa = Annotated[Path | None, option("Authority to trust.", "--tls-ca", panel="Network")]
Latency = Annotated[
    str | None,
    option("Emulated one-way delay, in each direction (150ms).", "--latency", panel="Network"),
]
JitterOf = Annotated[
    str | None, option("Emulated jitter around the latency.", "--jitter", panel="Network")
]
JitterKindOf = Annotated[
    Literal["uniform", "normal", "sinusoidal"] | None,
    option("Shape of the jitter.", "--jitter-kind", panel="Network"),
]
Bandwidth = Annotated[
    str | None,
    option("Emulated bandwidth in each direction (1mbit).", "--bandwidth", panel="Network"),
]
LinkName = Annotated[
    str | None, option("Emulated link: a profile or a TOML file.", "--link", panel="Network")
]
LinkSeed = Annotated[int, option("Seed of the emulated jitter.", "--link-seed", panel="Network")]
Temperature = Annotated[
    float, option("0: the most likely answer.", "--temperature", "-t", panel="Sampling")
]
TopP = Annotated[float, option("Nucleus; 1: off.", "--top-p", panel="Sampling")]
TopK = Annotated[int, option("Likeliest tokens; 0: off.", "--top-k", panel="Sampling")]
MinP = Annotated[float, option("Of the likeliest; 0: off.", "--min-p", panel="Sampling")]
Seed = Annotated[
    int | None, option("Same seed, same text (default: fresh).", "--seed", panel="Sampling")
]
MaxTokens = Annotated[int, option("Longest answer.", "--max-tokens", "-n", panel="Sampling")]
Stop = Annotated[
    list[str] | None, option("String that ends the answer.", "--stop", panel="Sampling")
]
AggregatorOf = Annotated[
    str,
    option("both, greedy, device, cloud, random or sync.", "--aggregator", panel="Aggregation"),
]
RuleOf = Annotated[str, option("coupled or algorithm1.", "--rule", panel="Aggregation")]
CodecOf = Annotated[
    str,
    option("dense:fp16, topp:P, topk:K:renorm, topk:K:residual.", "--codec", panel="Aggregation"),
]
RunAhead = Annotated[
    int, option("Undecided steps a side may draft.", "--run-ahead", panel="Aggregation")
]
Top = Annotated[
    int, option("Documents per side and question.", "--documents-per-side", panel="Aggregation")
]
RelevanceT = Annotated[
    float,
    option("Divides relevance scores.", "--relevance-temperature", panel="Aggregation"),
]
Reweight = Annotated[
    int,
    option("Tokens between new relevances; 0: never.", "--reweight-every", panel="Aggregation"),
]
Follow = Annotated[
    bool,
    option("Draft along the better line.", "--follow/--no-follow", panel="Aggregation"),
]
OnLossOf = Annotated[
    str, option("alone or wait, while the cloud is lost.", "--on-loss", panel="Aggregation")
]
Json = Annotated[bool, option("One JSON object per answer.", "--json")]


def show_version(wanted: bool) -> None:
    if wanted:
        output.print(f"dragonrt {__version__}")
        raise typer.Exit


@app.callback()
def configure(
    context: typer.Context,
    config: Annotated[
        Path | None,
        typer.Option("--config", help="TOML file of settings.", envvar="DRAGONRT_CONFIG"),
    ] = None,
    verbose: Annotated[bool, typer.Option("--verbose", help="Say more, with tracebacks.")] = False,
    version: Annotated[
        bool, typer.Option("--version", callback=show_version, is_eager=True)
    ] = False,
) -> None:
    logging.basicConfig(
        level=logging.DEBUG if verbose else logging.WARNING,
        format="%(levelname)s %(name)s: %(message)s",
    )
    for noisy in ("asyncio", "httpx", "sentence_transformers", "transformers", "filelock", "faiss"):
        logging.getLogger(noisy).setLevel(logging.WARNING)
    context.default_map = read_config(config)


def read_config(path: Path | None) -> dict[str, Any]:
    """The settings file: the named one, else ./dragonrt.toml, else the user's, else nothing."""
    user = Path(platformdirs.user_config_dir("dragonrt")) / "dragonrt.toml"
    found = [path] if path else [place for place in (Path("dragonrt.toml"), user) if place.exists()]
    if not found:
        return {}
    try:
        table = tomllib.loads(found[0].read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise DragonError(f"cannot read the settings file {found[0]}: {error}") from None
    known = {command.name: command for command in app.registered_commands}
    for name in table:
        if name not in known:
            raise DragonError(
                f"{found[0]} has a table [{name}], but there is no such command: "
                f"{', '.join(sorted(str(k) for k in known))}"
            )
    return {
        command: {key.replace("-", "_"): value for key, value in settings.items()}
        for command, settings in table.items()
    }


@app.command(name="cloud")
def cloud(
    model: Model = "dragon-small",
    device: Device = "auto",
    dtype: Dtype = "auto",
    documents: Documents = None,
    index: IndexAt = None,
    embedder: EmbedderName = "default",
    reranker: RerankerName = None,
    chunk_words: ChunkWords = 64,
    trace: TraceTo = None,
    host: Host = "127.0.0.1",
    port: Port = DEFAULT_PORT,
    key_file: KeyFile = None,
    tls_cert: TlsCert = None,
    tls_key: TlsKey = None,
    tls_ca: TlsCa = None,
    latency: Latency = None,
    jitter: JitterOf = None,
    jitter_kind: JitterKindOf = None,
    bandwidth: Bandwidth = None,
    link: LinkName = None,
    link_seed: LinkSeed = 0,
    share_sources: Annotated[
        bool,
        option("Tell devices which files were used.", "--share-sources/--no-share-sources"),
    ] = True,
) -> None:
    """Serve devices with a model and public documents."""
    from dragonrt.link.tls import server_context
    from dragonrt.runtime import main as programs
    from dragonrt.runtime.endpoints import Address, emulation, read_key
    from dragonrt.runtime.process import SideSettings

    settings = SideSettings(
        "cloud",
        model,
        device,
        dtype,
        (documents,) if documents else (),
        index,
        embedder,
        reranker,
        chunk_words,
        trace,
        share_sources,
    )
    if (tls_cert is None) != (tls_key is None):
        raise DragonError("give --tls-cert and --tls-key together")
    address = Address(
        host,
        port,
        read_key(key_file) if key_file else None,
        server_context(tls_cert, tls_key, tls_ca) if tls_cert and tls_key else None,
        emulation("cloud", link, latency, jitter, jitter_kind, bandwidth, link_seed),
    )
    loaded, library = load(settings)
    programs.run(
        programs.run_cloud(
            settings,
            loaded,
            library,
            address,
            on_change=lambda line: messages.print(line, markup=False, soft_wrap=True),
            on_ready=lambda number: messages.print(
                f"cloud: {loaded.name} on {loaded.device} listens on {host}:{number}"
            ),
        )
    )


@app.command(name="device")
def device_command(
    model: Model = "dragon-small",
    device: Device = "auto",
    dtype: Dtype = "auto",
    documents: Documents = None,
    index: IndexAt = None,
    embedder: EmbedderName = "default",
    reranker: RerankerName = None,
    chunk_words: ChunkWords = 64,
    trace: TraceTo = None,
    host: Host = "127.0.0.1",
    port: Port = DEFAULT_PORT,
    key_file: KeyFile = None,
    tls: Annotated[bool, option("Connect with TLS.", "--tls", panel="Network")] = False,
    tls_cert: TlsCert = None,
    tls_key: TlsKey = None,
    tls_ca: TlsCa = None,
    latency: Latency = None,
    jitter: JitterOf = None,
    jitter_kind: JitterKindOf = None,
    bandwidth: Bandwidth = None,
    link: LinkName = None,
    link_seed: LinkSeed = 0,
    temperature: Temperature = 0.0,
    top_p: TopP = 1.0,
    top_k: TopK = 0,
    min_p: MinP = 0.0,
    seed: Seed = None,
    max_tokens: MaxTokens = 64,
    stop: Stop = None,
    aggregator: AggregatorOf = "both",
    rule: RuleOf = "coupled",
    codec: CodecOf = "topp:0.95",
    run_ahead: RunAhead = 32,
    documents_per_side: Top = 2,
    relevance_temperature: RelevanceT = 0.05,
    reweight_every: Reweight = 0,
    follow: Follow = True,
    on_loss: OnLossOf = "alone",
    ask: Annotated[str | None, typer.Option("--ask", help="Ask one question and leave.")] = None,
    as_json: Json = False,
) -> None:
    """Chat with a model over private documents, together with a cloud."""
    from dragonrt.chat.conversation import Conversation
    from dragonrt.chat.terminal import ask_once, ask_once_json, chat
    from dragonrt.link.tls import client_context
    from dragonrt.runtime import main as programs
    from dragonrt.runtime.endpoints import Address, emulation, read_key
    from dragonrt.runtime.plan import Plan, placement_of
    from dragonrt.runtime.process import SideSettings
    from dragonrt.sampling.samplers import Sampler

    settings = SideSettings(
        "device",
        model,
        device,
        dtype,
        (documents,) if documents else (),
        index,
        embedder,
        reranker,
        chunk_words,
        trace,
    )
    plan = Plan(
        seed=seed or 0,
        sampler=Sampler(temperature, top_k, top_p, min_p),
        rule=rule,
        placement=placement_of(aggregator),
        codec=codec,
        max_tokens=max_tokens,
        run_ahead=run_ahead,
        documents=documents_per_side,
        relevance_temperature=relevance_temperature,
        reweight_every=reweight_every,
        follow=follow,
    )
    plan.check()
    if on_loss not in ("alone", "wait"):
        raise DragonError(f"--on-loss is alone or wait, not {on_loss!r}")
    address = Address(
        host,
        port,
        read_key(key_file) if key_file else None,
        client_context(tls_ca, tls_cert, tls_key) if tls or tls_ca or tls_cert else None,
        emulation("device", link, latency, jitter, jitter_kind, bandwidth, link_seed),
    )
    loaded, library = load(settings)

    async def talk() -> None:
        async with programs.device(settings, loaded, library, address) as (side, connector):
            conversation = Conversation(
                side,
                connector,
                plan,
                seed,
                tuple(stop or ()),
                "wait" if on_loss == "wait" else "alone",
            )
            if ask is None:
                await chat(conversation, output, as_json=as_json)
            elif as_json:
                await ask_once_json(conversation, ask)
            else:
                await ask_once(conversation, ask, output)

    programs.run(talk())


@app.command(name="index")
def index_command(
    documents: Annotated[list[Path], typer.Argument(help="A directory, or files.")],
    index: IndexAt = None,
    model: Model = "dragon-small",
    device: Device = "auto",
    dtype: Dtype = "auto",
    embedder: EmbedderName = "default",
    chunk_words: ChunkWords = 64,
    rebuild: Annotated[bool, typer.Option("--rebuild", help="Make it anew.")] = False,
) -> None:
    """Index documents: text, embeddings and the model's KV. Only changes cost anything."""
    from dragonrt.runtime.process import SideSettings

    load(
        SideSettings(
            "device",
            model,
            device,
            dtype,
            tuple(documents),
            index,
            embedder,
            chunk_words=chunk_words,
            rebuild=rebuild,
        )
    )


def load(settings: "SideSettings") -> "tuple[LanguageModel, Library | None]":
    """Load a side's model and bring its index up to date, with a bar while that takes time."""
    from dragonrt.language.model import LanguageModel
    from dragonrt.runtime.process import open_library

    model = LanguageModel.load(settings.model, settings.device, settings.dtype)
    bar = Bar(
        TextColumn("indexing"),
        BarColumn(),
        MofNCompleteColumn(),
        TextColumn("{task.description}"),
        console=messages,
        transient=True,
    )
    with bar:
        task = bar.add_task("", total=None)
        library, report = open_library(
            settings,
            model,
            lambda now: bar.update(task, completed=now.done, total=now.total, description=now.file),
        )
    if report is not None:
        messages.print(index_line(report), markup=False, soft_wrap=True)
        for name, reason in report.skipped:
            messages.print(f"skipped {name}: {reason}", style="yellow", markup=False)
    return model, library


def index_line(report: "Report") -> str:
    """What an update of the index did, in one line."""
    files = report.added + report.changed + report.unchanged
    return (
        f"index: {report.chunks} chunks of {files} files ({report.added} new, {report.changed} "
        f"changed, {report.deleted} deleted, {len(report.skipped)} skipped; "
        f"{report.embedded} embedded, {report.prefilled} prefilled)"
    )


def main() -> None:
    """Run the command line; one line and exit code 1 for what a user can mend."""
    from retrieval import RetrievalError

    try:
        app()
    except (DragonError, RetrievalError) as error:
        if "--verbose" in sys.argv:
            raise
        messages.print(f"dragonrt: {error}", style="red", markup=False, soft_wrap=True)
        sys.exit(1)
    except KeyboardInterrupt:
        sys.exit(130)
