"""What can go wrong in a session with blocks."""

from dragonrt.errors import DragonError


class BlockError(DragonError):
    """The other side sent what this session cannot use: the session ends, nothing else."""
