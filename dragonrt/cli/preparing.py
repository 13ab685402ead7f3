"""`dragonrt index` and `dragonrt profile`: work done once, so that answers come fast."""

from pathlib import Path
from typing import Annotated

import typer

from dragonrt.cli.console import messages, output
from dragonrt.cli.groups import option
from dragonrt.cli.loading import load, progress_bar
from dragonrt.cli.options import IndexOptions, ModelOptions, SideOptions, side_settings


def index(
    documents: Annotated[list[Path], typer.Argument(help="A directory, or files.")],
    model: ModelOptions,
    options: IndexOptions,
    rebuild: Annotated[bool, typer.Option("--rebuild", help="Make the index anew.")] = False,
) -> None:
    """Index documents: text, embeddings and the model's KV. Only what changed costs anything."""
    from dataclasses import replace

    settings = side_settings("device", model, options, SideOptions())
    load(replace(settings, documents=tuple(documents), rebuild=rebuild))


def profile(
    model: ModelOptions,
    rows: Annotated[
        int, option("Documents decoded at the same time.", "--rows", kind="N", min=1)
    ] = 2,
    runs: Annotated[int, option("Times the context is filled.", "--runs", kind="N", min=1)] = 3,
) -> None:
    """Measure how long this machine takes per token; later answers are scheduled by it."""
    from dragonrt.language.model import LanguageModel
    from dragonrt.runtime.host_profile import measure, profile_path, save_profile

    with messages.status("loading the model"):
        loaded = LanguageModel.load(model.name, model.device, model.dtype)
    with progress_bar("measuring") as bar:
        task = bar.add_task("runs", total=runs)
        measurement = measure(
            loaded,
            rows=rows,
            runs=runs,
            progress=lambda done, total: bar.update(task, completed=done, total=total),
        )
    path = profile_path(loaded.name)
    save_profile(measurement, path)
    fit = measurement.profile
    first, last = min(measurement.lengths), max(measurement.lengths)
    output.print(
        f"{loaded.name} on {loaded.on}, {rows} documents: delay at context length t = "
        f"{1e6 * fit.k_a / fit.k_b:.3f} us * t + {1e3 * fit.k_c:.3f} ms",
        markup=False,
        soft_wrap=True,
    )
    for length in (first, (first + last) // 2, last):
        output.print(f"  {1000 * fit.predict(length):8.3f} ms per token at length {length}")
    messages.print(f"saved as {path}", markup=False, soft_wrap=True)
