"""Fair shares of a model among clients, by the tokens that it computes for each.

A weighted fair queue (Virtual Token Counter: Sheng et al., Fairness in Serving Large Language
Models, OSDI 2024): prompts and answers count alike, as rows times tokens, and the client that got
least goes first. Time without requests is no credit.
"""

from collections import Counter
from collections.abc import Iterable, Mapping
from math import inf

Client = tuple[str, ...]
"""The client of a request: an address and a connection from it. Empty: this process itself.

Addresses share the model, and the connections of one share what it gets.
"""


def levels(client: Client) -> tuple[Client, ...]:
    """Return the address, and the connection from it."""
    return tuple(client[: length + 1] for length in range(len(client)))


class FairShares:
    """The lead of each address and connection over the waiting one that got least.

    It is at most one forward for those that wait all the time. Others are forgotten as soon as they
    are not ahead, so that one that comes back is the equal of the least.
    """

    def __init__(self) -> None:
        self._ahead: dict[Client, float] = {}

    def place(self, client: Client) -> tuple[float, ...]:
        """Return the key that sorts the client that got least to the front."""
        return tuple(self._ahead.get(each, 0.0) for each in levels(client))

    def charge(self, used: Mapping[Client, int], waiting: Iterable[Client]) -> None:
        """Count a forward: what it computed for each client, and whose requests still wait."""
        least = dict[Client, float]()
        for each in {level for client in waiting for level in levels(client)}:
            least[each[:-1]] = min(least.get(each[:-1], inf), self._ahead.get(each, 0.0))
        rebased = {each: got - least.get(each[:-1], inf) for each, got in self._ahead.items()}
        self._ahead = {each: got for each, got in rebased.items() if got > 0.0}
        for client, size in used.items():
            for each in levels(client):
                self._ahead[each] = self._ahead.get(each, 0.0) + size


class Portions:
    """Limits of what a client gets of one forward if another one waits beside it."""

    def __init__(self, clients: Iterable[Client], size: int) -> None:
        """`clients` have open answers. Each may have one request, or several of `size`."""
        each = {level for client in clients for level in levels(client)}
        beside = Counter(level[:-1] for level in each)
        self._left: dict[Client, float] = {level: inf for level in each if beside[level[:-1]] > 1}
        self._size = size

    def room(self, client: Client, most: int) -> int:
        """Return how much of `most` the next request of that client may have."""
        return int(min([most, *(self._left.get(level, inf) for level in levels(client))]))

    def take(self, client: Client, size: int) -> None:
        """Count a request of that client."""
        for level in levels(client):
            if level in self._left:
                self._left[level] = min(self._left[level], self._size) - size
