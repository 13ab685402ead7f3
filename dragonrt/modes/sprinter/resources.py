"""A side's resources in mode sprinter."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from dragonrt.control.verifier import TokenVerifier, Verifier
from dragonrt.modes.registry import Counterpart, Host, Resources
from dragonrt.modes.sprinter.settings import SprinterSettings


@dataclass(frozen=True, slots=True, kw_only=True)
class SprinterResources(Resources):
    """`verifier` is the device's, trained for the two models."""

    verifier: TokenVerifier | None = None


def prepare(
    host: Host, others: Mapping[str, Counterpart], settings: SprinterSettings
) -> SprinterResources:
    """Return the resources of a side. Raises DragonError if no verifier fits the cloud's model."""
    found = None
    if host.side == "device":
        (cloud,) = others.values()
        found = host.verifier(settings.verifier, cloud.fingerprint)
    return SprinterResources.of(host, verifier=found)


def check(settings: SprinterSettings, model: str) -> None:
    """Raise ControlError for a file that holds no verifier."""
    if settings.verifier is not None:
        Verifier.load(Path(settings.verifier))
