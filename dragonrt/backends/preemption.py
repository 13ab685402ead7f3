"""Stopping a forward pass that works on a dead line (DRAGON section 4.2)."""


class Preempted(Exception):  # noqa: N818 - the term of the paper; nothing went wrong
    """The forward was stopped on request; the sequence is as it was before the call."""


class Preemption:
    """A flag that any thread may raise and a forward pass looks at between its layers.

    A request stays until `clear`, so a forward that has not begun yet is stopped as well.
    """

    __slots__ = ("_requested",)

    def __init__(self) -> None:
        self._requested = False

    @property
    def requested(self) -> bool:
        """Whether forwards holding this flag are to stop."""
        return self._requested

    def request(self) -> None:
        """Ask the forward that holds this flag to stop at its next check."""
        self._requested = True

    def clear(self) -> None:
        """Withdraw the request."""
        self._requested = False

    def check(self) -> None:
        """Raise `Preempted` if a stop was requested."""
        if self.requested:
            raise Preempted
