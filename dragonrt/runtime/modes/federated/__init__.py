"""Federated inference (SPEC 3): a coordinator drafts, several workers verify together.

The coordinator broadcasts each block; every worker uploads its distributions of all positions from
one forward, truncated to the top K; their mixture decides. The target is the mixture of what the
uploads are reconstructed to, and it is sampled exactly.
"""

from dragonrt.runtime.modes.federated.asking import Answer, Asking, beginning
from dragonrt.runtime.modes.federated.counts import Counts
from dragonrt.runtime.modes.federated.errors import FederationError
from dragonrt.runtime.modes.federated.plan import FederatedPlan, Weighing
from dragonrt.runtime.modes.federated.verifying import FederatedVerifying
from dragonrt.runtime.modes.federated.worker import Member

__all__ = [
    "Answer",
    "Asking",
    "Counts",
    "FederatedPlan",
    "FederatedVerifying",
    "FederationError",
    "Member",
    "Weighing",
    "beginning",
]
