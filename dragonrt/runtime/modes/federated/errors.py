"""What can go wrong among several workers."""

from dragonrt.errors import DragonError


class FederationError(DragonError):
    """Too few workers are left to go on."""
