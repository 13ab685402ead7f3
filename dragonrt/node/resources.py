"""What a mode needs beside its settings: trained parts, and properties of the other sides.

Imports nothing heavy, so that a bad file is reported before a model is loaded.
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from dragonrt.control.learned import controller
from dragonrt.control.policies import Controller
from dragonrt.control.verifier import Kind, Verifier
from dragonrt.errors import DragonError
from dragonrt.modes.registry import Resources
from dragonrt.modes.settings import Settings
from dragonrt.node.addresses import Member
from dragonrt.node.hosts import NotConnectedError
from dragonrt.privacy.redaction import MARKER

if TYPE_CHECKING:
    from dragonrt.node.hosts import Hosts
    from dragonrt.node.local_side import LocalSide


def trained_for(how: Settings, draft: str) -> tuple[Controller | None, Verifier | None]:
    """Load what the settings name, for drafts of that model. Raises ControlError."""
    return (
        controller(how.controller, draft) if how.controller is not None else None,
        Verifier.load(Path(how.verifier)) if how.verifier is not None else None,
    )


def mode_resources(
    side: "LocalSide", members: Sequence[Member], connectors: "Mapping[str, Hosts]", how: Settings
) -> Resources:
    """Return what the mode needs beside its settings.

    Raises DragonError for parts that do not fit; NotConnectedError if a verifier depends on the
    cloud's model and the cloud is not connected.
    """
    (control, given), kind = trained_for(how, side.model.name), how.verifies_with
    resources = Resources(
        vocabulary=side.vocabulary,
        timeouts=side.timeouts,
        members={member.name: member.weight for member in members},
        profile=side.profile,
        controller=control,
        marker=tuple(side.model.encode(MARKER)),
    )
    if kind is None:
        return resources
    hosts = connectors[members[0].name]
    cloud = hosts.peer.connection.peer if hosts.peer is not None else None
    if cloud is None:
        why = "the verifier is chosen by the cloud's model, and the cloud is not there"
        raise NotConnectedError(f"{why}: {hosts.absence}")
    found = verifier_of(side.model.fingerprint, cloud.weights, given, kind)
    return replace(resources, verifier=found)


def verifier_of(draft: str, target: str, given: Verifier | None, kind: Kind) -> Verifier:
    """Return `given` if it fits, or the bundled verifier of these models. Raises DragonError."""
    if given is None:
        return Verifier.for_pair(draft, target, kind)
    if given.kind != kind:
        raise DragonError(
            f"a {given.kind} verifier does not predict what {kind} needs: "
            f"name one of kind {kind} with --verifier, or leave it out for the bundled one"
        )
    given.check_pair(draft, target)
    return given
