"""The commands `dragonrt keys`, `index`, `profile` and `model`: steps before the first answer."""

import shutil
import sys
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Annotated

from cyclopts import App, Parameter

from dragonrt import bundled
from dragonrt.cli.console import output, say
from dragonrt.cli.loading import index as index_documents
from dragonrt.cli.loading import load_model, showing_progress
from dragonrt.cli.options import DAILY, derived, option, settings
from dragonrt.errors import DragonError
from dragonrt.node.process.side_settings import SideSettings

MOST_DAYS = 36_500

keys = App(name="keys", help="Make the key that both sides share, and show or enter it.")

File = Annotated[Path, Parameter(help="File of the shared key.")]
KEY = Path("dragonrt.key")


@keys.command
def new(
    file: File = KEY,
    *,
    days: Annotated[int, option("Days until the key should be renewed.", low=1)] = 365,
) -> None:
    """Make a new shared key, in a file that only its owner can read."""
    from dragonrt.link.shared_key import new_key, write_secret

    if days > MOST_DAYS:
        raise DragonError(f"--days is at most {MOST_DAYS}")
    last = (datetime.now(UTC) + timedelta(days=days)).date()
    write_secret(file, new_key(last).encode() + b"\n")
    say(f"made {file}; bring it to the other machine with `dragonrt keys show {file}`")


@keys.command
def show(file: File = KEY) -> None:
    """Print the shared key as a QR code and as a line to type. Keep it secret."""
    import segno

    from dragonrt.link.shared_key import read_key, renewal

    key = read_key(file)
    renew = renewal(key)
    if renew is None:
        raise DragonError(
            f"the key in {file} was not made by `dragonrt keys new`: copy the file instead"
        )
    segno.make(key.decode(), micro=False).terminal(out=sys.stdout, compact=True)
    output.print(key.decode(), markup=False, soft_wrap=True)
    say(f"on the other machine: `dragonrt keys enter`; renew it before {renew}")


@keys.command
def enter(file: File = KEY) -> None:
    """Read the line that `keys show` printed on the other machine, and write the key to a file."""
    from dragonrt.link.shared_key import parse_key, write_secret

    if sys.stdin.isatty():
        say("The line that `dragonrt keys show` shows on the other machine:")
    write_secret(file, parse_key(sys.stdin.readline()).encode() + b"\n")
    say(f"made {file}; use it with --key-file {file}")


@derived(
    {SideSettings: "Index"},
    only=(
        *("model", "on", "dtype", "threads", "adapter", "prompt", "index", "store"),
        *("embedder", "chunk_words", "kv_cache", "llama_library"),
        *("exclude", "largest_file", "rebuild"),
    ),
)
class IndexOptions:
    """Options of `dragonrt index`: model, index, chunks and files; each is None unless given."""


@derived({SideSettings: DAILY}, only=("model", "on", "dtype", "threads", "llama_library"))
class ModelOptions:
    """Options of `dragonrt profile`: the model and where it runs; each is None unless given."""


def index(
    documents: Annotated[list[Path], Parameter(help="Directories or files to index.", negative=())],
    *,
    kv: Annotated[bool, option("Compute the model's KV of all documents, too.")] = False,
    options: IndexOptions | None = None,
) -> None:
    """Run `dragonrt index`: index documents by text and embeddings; only changes are embedded."""
    side = settings(SideSettings, options, side="device", documents=tuple(documents))
    loaded = load_model(side) if kv else None
    report = index_documents(side)
    if report is not None and not report.chunks:
        raise DragonError("no document is indexed: see the lines above")
    if loaded is None:
        return

    from dragonrt.node.process.composition import open_library
    from dragonrt.node.process.library import prefill

    library = open_library(side, loaded)
    assert library is not None  # it has documents
    library.on_notice = lambda notice: say(notice.text, "yellow")
    with showing_progress("computing KV") as progress:
        prefill(library, progress)


def profile(
    *,
    model: ModelOptions | None = None,
    rows: Annotated[int, option("Documents read at once, a row each.", low=1)] = 2,
    runs: Annotated[int, option("Decodings of a full context.", low=1)] = 3,
) -> None:
    """Run `dragonrt profile`: measure and save the time per token, for --aggregator greedy."""
    side = settings(SideSettings, model, side="device")

    from dragonrt.node.process.host_profile import DOCUMENT_TOKENS, measure, save_profile

    loaded = load_model(side)
    with showing_progress("measuring") as progress:
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


models = App(name="model", help="Write the default models as files for other programs.")


@models.command
def build(
    path: Annotated[Path, Parameter(help="The GGUF file to write.")],
    *,
    draft: Annotated[bool, option("Write the draft model instead of the default model.")] = False,
) -> None:
    """Write the default model, SmolLM2 with a merged LoRA adapter, as a 4-bit GGUF file."""
    from dragonrt.backends.llama_cpp.model_file import MADE

    with showing_progress("making the model") as show:
        made = MADE[bundled.SMOLLM2_DRAFT if draft else bundled.SMOLLM2](show)
    try:
        shutil.copyfile(made, path)
    except OSError as error:
        raise DragonError(f"{path} cannot be written: {error}") from error
    say(f"saved as {path}")
