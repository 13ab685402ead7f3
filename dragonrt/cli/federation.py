"""The options of `dragonrt device --mode federated`, and the workers that they name."""

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Annotated, Literal

from dragonrt.cli.groups import option
from dragonrt.errors import DragonError

if TYPE_CHECKING:
    from dragonrt.runtime.endpoints import Address
    from dragonrt.runtime.federation import WorkerAddress

FEDERATION = "Several workers"


@dataclass(frozen=True, slots=True)
class FederationOptions:
    """Which workers verify together, and how long they are waited for."""

    worker: Annotated[
        list[str] | None,
        option(
            "A `dragonrt cloud` that verifies, and its weight (else all equal); may be repeated.",
            "--worker",
            kind="HOST:PORT[=X]",
            panel=FEDERATION,
        ),
    ] = None
    weights: Annotated[
        Literal["fixed", "relevance"],
        option(
            "fixed, or relevance: by how well each one's documents fit.",
            "--weights",
            kind="NAME",
            panel=FEDERATION,
        ),
    ] = "fixed"
    quorum_deadline: Annotated[
        float | None,
        option(
            "Seconds a round waits for late workers; else four times the slowest one's usual time.",
            "--quorum-deadline",
            kind="X",
            panel=FEDERATION,
            min=0.001,
        ),
    ] = None
    require_all: Annotated[
        bool,
        option("Decide nothing without all workers.", "--require-all", panel=FEDERATION),
    ] = False

    def workers(self, address: "Address") -> "list[WorkerAddress]":
        """The workers, protected and emulated as `address` is; DragonError for what is none."""
        from dragonrt.runtime.federation import WorkerAddress

        if not self.worker:
            raise DragonError("--mode federated needs workers: name each one with --worker")
        parsed = [_parse(text) for text in self.worker]
        given = [weight for _, _, weight in parsed if weight is not None]
        if given and self.weights == "relevance":
            raise DragonError("--weights relevance finds the weights: give the workers none")
        if given and len(given) < len(parsed):
            raise DragonError("give every worker a weight, or none of them")
        places = [(host, port) for host, port, _ in parsed]
        if len(set(places)) < len(places):
            raise DragonError("each worker may be named once: give them different ports")
        return [
            WorkerAddress(replace(address, host=host, port=port), 1.0 if weight is None else weight)
            for host, port, weight in parsed
        ]


def _parse(text: str) -> tuple[str, int, float | None]:
    """(host, port, weight) of HOST:PORT or HOST:PORT=WEIGHT."""
    place, equals, weight = text.partition("=")
    host, _, port = place.rpartition(":")
    try:
        number, share = int(port), float(weight) if equals else None
    except ValueError:
        number, share = 0, None
    if not host or not 0 < number < 65536:
        raise DragonError(f"{text!r} is no worker: write HOST:PORT or HOST:PORT=WEIGHT")
    if share is not None and not 0 < share < float("inf"):
        raise DragonError(f"the weight of {place} must be above 0")
    return host.strip("[]"), number, share
