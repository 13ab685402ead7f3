"""Fair shares of a model among devices, by the tokens that it computes for each.

A weighted fair queue (Virtual Token Counter: Sheng et al., Fairness in Serving Large Language
Models, OSDI 2024): prompts and answers count alike, as rows times tokens, and the device that got
least goes first. Time without requests is no credit.
"""

from collections import Counter
from collections.abc import Iterable, Mapping
from math import inf

Device = tuple[str, ...]
"""Who a request is for: an address and a connection from it. Empty: this process itself.

Addresses share the model, and the connections of one share what it gets.
"""


def levels(device: Device) -> tuple[Device, ...]:
    """Return the address, and the connection from it."""
    return tuple(device[: length + 1] for length in range(len(device)))


class FairShares:
    """What each address and connection got more than the waiting one that got least.

    It is at most one forward for those that wait all the time. Others are forgotten as soon as they
    are not ahead, so that one that comes back is the equal of the least.
    """

    def __init__(self) -> None:
        self._ahead: dict[Device, float] = {}

    def place(self, device: Device) -> tuple[float, ...]:
        """Return the key that sorts the device that got least to the front."""
        return tuple(self._ahead.get(each, 0.0) for each in levels(device))

    def charge(self, used: Mapping[Device, int], waiting: Iterable[Device]) -> None:
        """Count a forward: what it computed for each device, and whose requests still wait."""
        least = dict[Device, float]()
        for each in {level for device in waiting for level in levels(device)}:
            least[each[:-1]] = min(least.get(each[:-1], inf), self._ahead.get(each, 0.0))
        rebased = {each: got - least.get(each[:-1], inf) for each, got in self._ahead.items()}
        self._ahead = {each: got for each, got in rebased.items() if got > 0.0}
        for device, size in used.items():
            for each in levels(device):
                self._ahead[each] = self._ahead.get(each, 0.0) + size


class Portions:
    """How much of one forward each device may have that has another one beside it."""

    def __init__(self, devices: Iterable[Device], size: int) -> None:
        """`devices` have open answers. Each may have one request, or several of `size`."""
        each = {level for device in devices for level in levels(device)}
        beside = Counter(level[:-1] for level in each)
        self._left: dict[Device, float] = {level: inf for level in each if beside[level[:-1]] > 1}
        self._size = size

    def room(self, device: Device, most: int) -> int:
        """Return how much of `most` the next request of that device may have."""
        return int(min([most, *(self._left.get(level, inf) for level in levels(device))]))

    def take(self, device: Device, size: int) -> None:
        """Count a request of that device."""
        for level in levels(device):
            if level in self._left:
                self._left[level] = min(self._left[level], self._size) - size
