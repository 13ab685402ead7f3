"""What a mode needs beside its settings: what was trained, and what is known of the other sides.

Nothing heavy is imported, so that files that are none are found before anything is loaded.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from dragonrt.control.learned import controller
from dragonrt.control.policies import Controller
from dragonrt.control.verifier import Kind, Verifier
from dragonrt.errors import DragonError
from dragonrt.modes.registry import Resources
from dragonrt.modes.settings import Settings, SpeculativeSettings, SprinterSettings
from dragonrt.modes.told import MARKER
from dragonrt.node.addresses import Member
from dragonrt.node.connector import NotConnectedError

if TYPE_CHECKING:
    from dragonrt.node.hosts import Hosts
    from dragonrt.node.local_side import LocalSide


@dataclass(frozen=True, slots=True)
class Trained:
    """What the settings name of what was trained."""

    controller: Controller | None = None
    verifier: Verifier | None = None


def trained_for(how: Settings) -> Trained:
    """Load what the settings name; raises ControlError for what is none."""
    if not isinstance(how, SpeculativeSettings | SprinterSettings):
        return Trained()
    control = how.controller if isinstance(how, SpeculativeSettings) else None
    return Trained(
        controller(control) if control is not None else None,
        Verifier.load(Path(how.verifier)) if how.verifier is not None else None,
    )


def mode_resources(
    side: "LocalSide",
    members: Sequence[Member],
    connectors: "Mapping[str, Hosts]",
    how: Settings,
) -> Resources:
    """What the mode needs beside its settings; raises DragonError for what does not fit.

    NotConnectedError if that depends on another side, which is not there.
    """
    resources = Resources(
        vocabulary=side.vocabulary,
        timeouts=side.timeouts,
        members={member.name: member.weight for member in members},
        profile=side.profile,
        marker=tuple(side.model.encode(MARKER)),
    )
    trained = trained_for(how)
    if isinstance(how, SpeculativeSettings):
        resources = replace(resources, controller=trained.controller)
    specdec = isinstance(how, SpeculativeSettings) and how.stopping == "specdec++"
    if specdec or isinstance(how, SprinterSettings):
        peer = connectors[members[0].name].peer
        cloud = peer.connection.peer if peer is not None else None
        if cloud is None:
            raise NotConnectedError(
                "the verifier is chosen by the cloud's model, and the cloud is not there: "
                f"{connectors[members[0].name].absence}"
            )
        kind: Kind = "specdec++" if specdec else "sprinter"
        found = verifier_of(side.model.fingerprint, cloud.weights, trained.verifier, kind)
        return (
            replace(resources, acceptance=found) if specdec else replace(resources, verifier=found)
        )
    return resources


def completed(how: Settings, resources: Resources) -> Settings:
    """The settings as the resources completes them: a verifier has a threshold of its own."""
    if (
        isinstance(how, SprinterSettings)
        and how.threshold is None
        and resources.verifier is not None
    ):
        return replace(how, threshold=resources.verifier.threshold)
    return how


def verifier_of(draft: str, target: str, given: Verifier | None, kind: Kind) -> Verifier:
    """`given`, if it was trained for the models with these fingerprints, else the bundled one.

    Raises DragonError where the given one does not fit, or none was given and none is bundled.
    """
    if given is None:
        return Verifier.for_pair(draft, target, kind)
    if given.kind != kind:
        raise DragonError(
            f"a {given.kind} verifier does not predict what {kind} needs: "
            f"train one with `scripts/train/run verifier --kind {kind}`"
        )
    given.check_pair(draft, target)
    return given
