"""`dragonrt index` and `dragonrt profile`: work done in advance, for faster answers."""

from pathlib import Path
from typing import Annotated

from cyclopts import Parameter

from dragonrt.cli.console import output, say
from dragonrt.cli.loading import counting, load_model
from dragonrt.cli.loading import index as index_documents
from dragonrt.cli.options import DAILY, derived, option, settings
from dragonrt.errors import DragonError
from dragonrt.node.process.side_settings import SideSettings


@derived(
    {SideSettings: "Index"},
    only=(
        *("model", "on", "dtype", "threads", "adapter", "prompt", "index", "store"),
        *("embedder", "chunk_words", "kv_cache", "llama_library"),
        *("exclude", "largest_file", "rebuild"),
    ),
)
class IndexOptions:
    """Options of an index: the model that reads the documents, and the place."""


@derived({SideSettings: DAILY}, only=("model", "on", "dtype", "threads", "llama_library"))
class ModelOptions:
    """Options of a model."""


def index(
    documents: Annotated[list[Path], Parameter(help="A directory, or files.", negative=())],
    *,
    kv: Annotated[bool, option("Compute the model's KV of all documents, too.")] = False,
    options: IndexOptions | None = None,
) -> None:
    """Index documents: text and embeddings. Only changed text is embedded again."""
    side = settings(SideSettings, options, side="device", documents=tuple(documents))
    loaded = load_model(side) if kv else None
    report = index_documents(side)
    if report is not None and not report.chunks:
        raise DragonError("nothing is indexed: the lines above say why")
    if loaded is None:
        return

    from dragonrt.node.process.composition import open_library
    from dragonrt.node.process.library import prefill

    library = open_library(side, loaded)
    assert library is not None  # it has documents
    library.on_notice = lambda notice: say(notice.text, "yellow")
    with counting("computing KV") as progress:
        prefill(library, progress)


def profile(
    *,
    model: ModelOptions | None = None,
    rows: Annotated[int, option("Documents decoded at the same time.", default="2", low=1)] = 2,
    runs: Annotated[int, option("Times the context is filled.", default="3", low=1)] = 3,
) -> None:
    """Measure this machine's time per token, which the scheduler of later answers uses."""
    side = settings(SideSettings, model, side="device")

    from dragonrt.node.process.host_profile import DOCUMENT_TOKENS, measure, save_profile

    loaded = load_model(side)
    with counting("measuring") as progress:
        fit = measure(loaded, rows=rows, runs=runs, progress=progress)
    path = save_profile(loaded.name, fit)
    first, last = DOCUMENT_TOKENS + 1, loaded.context_length
    output.print(
        f"{loaded.name} on {loaded.device}, {rows} documents: delay at context length t = "
        f"{1e6 * fit.k_a / fit.k_b:.3f} us * t + {1e3 * fit.k_c:.3f} ms",
        markup=False,
        soft_wrap=True,
    )
    for length in (first, (first + last) // 2, last):
        output.print(f"  {1000 * fit.predict(length):8.3f} ms per token at length {length}")
    say(f"saved as {path}")
