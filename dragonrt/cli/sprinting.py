"""The options of `dragonrt device --mode sprinter`."""

from dataclasses import dataclass
from typing import Annotated

from dragonrt.cli.groups import option

SPRINTING = "Approximate verification (the text is not exactly the cloud's)"


@dataclass(frozen=True, slots=True)
class SprinterOptions:
    """What stands in for the cloud's model, and how far it is trusted."""

    verifier: Annotated[
        str | None,
        option(
            "Made by `dragonrt train verifier`; else the bundled one for the two models.",
            "--verifier",
            kind="FILE",
            panel=SPRINTING,
        ),
    ] = None
    threshold: Annotated[
        float | None,
        option(
            "The cloud decides tokens that the verifier gives less; else the verifier's own.",
            "--threshold",
            kind="X",
            panel=SPRINTING,
            min=0,
            max=1,
        ),
    ] = None
    run_length: Annotated[
        int | None,
        option(
            "The cloud decides at least every Nth token; else 32.",
            "--run-length",
            kind="N",
            panel=SPRINTING,
            min=1,
            max=256,
        ),
    ] = None
