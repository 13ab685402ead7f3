"""The error of this package."""

from dragonrt.errors import DragonError


class LinkError(DragonError):
    """A link that cannot be made or is gone, or a wrong description of one; one line says what to
    do about it."""
