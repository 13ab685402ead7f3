"""A side's resources in mode federated."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from dragonrt.modes.federated.settings import FederatedSettings
from dragonrt.modes.registry import Counterpart, Host, Resources


@dataclass(frozen=True, slots=True, kw_only=True)
class FederatedResources(Resources):
    """`members` are the weights of the workers by name, each above 0."""

    members: Mapping[str, float] = field(default_factory=dict)


def prepare(
    host: Host, others: Mapping[str, Counterpart], settings: FederatedSettings
) -> FederatedResources:
    """Return the resources of a side."""
    members = {name: each.weight for name, each in others.items()}
    return FederatedResources.of(host, members=members)
