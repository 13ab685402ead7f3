"""`dragonrt model`: the bundled models as files for other programs."""

import shutil
from pathlib import Path
from typing import Annotated

from cyclopts import App, Parameter

from dragonrt import bundled
from dragonrt.cli.console import say
from dragonrt.cli.loading import counting
from dragonrt.cli.options import option
from dragonrt.errors import DragonError

model = App(name="model", help="Write the default models as files for other programs.")


@model.command
def build(
    path: Annotated[Path, Parameter(help="The GGUF file to write.")],
    *,
    draft: Annotated[bool, option("Write the draft model instead.")] = False,
) -> None:
    """Write smollm2 with its adapter, in 4 bits, as a GGUF file."""
    from dragonrt.backends.llama_cpp.model_file import MADE

    with counting("making the model") as show:
        made = MADE[bundled.SMOLLM2_DRAFT if draft else bundled.SMOLLM2](show)
    try:
        shutil.copyfile(made, path)
    except OSError as error:
        raise DragonError(f"{path} cannot be written: {error}") from error
    say(f"saved as {path}")
