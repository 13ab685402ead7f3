"""The ways in which sides work together: state machines without I/O behind one contract."""

from dragonrt.modes import dragon, speculative  # isort: split

from dragonrt.modes import federated, sprinter

__all__ = ["dragon", "federated", "speculative", "sprinter"]
