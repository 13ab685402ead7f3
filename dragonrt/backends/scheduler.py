"""Choose which requests share a model's next forward, and how many tokens each of them reads.

Requests join and leave between two forwards. Clients have fair shares of the computed tokens
(`FairShares`); one client's requests go in order of arrival. The model's thread runs all this.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from math import inf
from typing import TypeVar

from dragonrt.backends.backend import Feed, ModelInfo, Preempted, Preemption, RowLogits
from dragonrt.backends.row_set import LARGEST, RowSet

ALONE = 256
"""Rows times tokens of prompts in a forward while no other answer is open."""
PER_ROW = 2
"""Rows times tokens of prompts beside one of an answer, if more: each costs half of it."""

Client = tuple[str, ...]
"""The client of a request: an address and a connection from it. Empty: this process itself.

Addresses share the model, and the connections of one share what it gets.
"""

T = TypeVar("T")

Done = Callable[[T | Exception], None]
"""Receives a result or an exception. It must not raise."""


def share_keys(client: Client) -> tuple[Client, ...]:
    """Return a client's keys in FairShares: (address,), and (address, connection) if it has one."""
    return tuple(client[: length + 1] for length in range(len(client)))


class FairShares:
    """Counts what each address and connection got of the model, to give all fair shares.

    It is a weighted fair queue (Virtual Token Counter, Sheng et al. 2024). Prompts and answers
    count alike, in rows times tokens, and the client that got least is first.
    """

    def __init__(self) -> None:
        self._ahead: dict[Client, float] = {}

    def place(self, client: Client) -> tuple[float, ...]:
        """Return what a client's address and connection got of the model. The least is first."""
        return tuple(self._ahead.get(each, 0.0) for each in share_keys(client))

    def charge(self, used: Mapping[Client, int], waiting: Iterable[Client]) -> None:
        """Count what clients `used` of a forward, in rows times tokens.

        First the least count of `waiting` clients is taken from all, so idle time earns nothing.
        """
        least = dict[Client, float]()
        for each in {level for client in waiting for level in share_keys(client)}:
            least[each[:-1]] = min(least.get(each[:-1], inf), self._ahead.get(each, 0.0))
        rebased = {each: got - least.get(each[:-1], inf) for each, got in self._ahead.items()}
        self._ahead = {each: got for each, got in rebased.items() if got > 0.0}
        for client, size in used.items():
            for each in share_keys(client):
                self._ahead[each] = self._ahead.get(each, 0.0) + size


class Portions:
    """Limits each client's rows times tokens of a forward while several have open answers."""

    def __init__(self, clients: Iterable[Client], size: int) -> None:
        """`clients` have open answers. Each may have one request, or several of `size`."""
        each = {level for client in clients for level in share_keys(client)}
        beside = Counter(level[:-1] for level in each)
        self._left: dict[Client, float] = {level: inf for level in each if beside[level[:-1]] > 1}
        self._size = size

    def remaining(self, client: Client, most: int) -> int:
        """Return how many rows times tokens a client may still add to the forward, up to `most`."""
        return int(min([most, *(self._left.get(level, inf) for level in share_keys(client))]))

    def take(self, client: Client, size: int) -> None:
        for level in share_keys(client):
            if level in self._left:
                self._left[level] = min(self._left[level], self._size) - size


@dataclass(eq=False, slots=True)
class Request:
    """A request to append `tokens` to each of `rows`; the first `prompt` of them are a prompt.

    Attributes:
        piece: prompts are split between forwards only at multiples of so many tokens; 1: anywhere.
        every: the index of the first token after which logits are wanted, as after all later ones.
        done: gets a list of the logits after the prompt, if there is one, and after each token from
            `every` on; or an exception, and then the rows keep what earlier forwards read.
        in_blocks: whether one forward may read several of the tokens from `every` on, or only one.
        hidden: whether `RowLogits.hidden` is wanted, too.
        client: the client whose fair share the request uses.
        read: how many of the tokens earlier forwards have read.
    """

    rows: RowSet
    tokens: Sequence[int]
    done: Done[list[RowLogits]]
    preemption: Preemption
    prompt: int = 0
    piece: int = 1
    every: int = 0
    in_blocks: bool = True
    hidden: bool = False
    client: Client = ()
    read: int = 0
    logits: list[RowLogits] = field(default_factory=list)


@dataclass(slots=True)
class Batch:
    """One forward: the requests that share it, and in `feeds` the tokens that each reads in it.

    `size` is its rows times tokens; for several clients `used` has each one's part of `size`.
    """

    requests: list[Request] = field(default_factory=list)
    feeds: list[Feed] = field(default_factory=list)
    size: int = 0
    portions: Portions | None = None
    used: Counter[Client] = field(default_factory=Counter)

    def add(self, request: Request, tokens: int) -> None:
        """Add the next `tokens` unread tokens of a request to the forward."""
        rows, start = request.rows, request.read
        self.requests.append(request)
        self.feeds.append(
            Feed(
                rows.kv,
                request.tokens[start : start + tokens],
                rows.length,
                start >= request.every,
                request.preemption,
                request.piece > 1 and start < request.prompt,
                request.hidden,
            )
        )
        self.size += rows.count * tokens
        if self.portions is not None:
            self.used[request.client] += rows.count * tokens

    def leaves(self, request: Request, end: int) -> bool:
        """Return whether this forward leaves some of a request's first `end` tokens unread."""
        if request not in self.requests:
            return request.read < end
        return request.read + len(self.feeds[self.requests.index(request)].tokens) < end


class Scheduler:
    """The queue of one model's requests. `schedule` chooses the next forward, `update` ends it."""

    def __init__(self, info: ModelInfo) -> None:
        self.requests: list[Request] = []
        self._exact = LARGEST if info.exact_tokens is None else info.exact_tokens
        # An accelerator computes many rows in the time of a few.
        self.shared_tokens = info.shared_tokens if info.device == "cpu" else LARGEST
        self._shares = FairShares()

    def add(self, request: Request, client: Client = ()) -> None:
        """Queue a request of `client`, or call `done([])` of one without tokens.

        Raises ModelError or BusyError if the rows have no room for the tokens and cannot grow.
        """
        if request.tokens:
            request.client = client
            request.rows.reserve(request.tokens)
            self.requests.append(request)
        else:
            request.done([])

    def schedule(self, piece: int = ALONE, clients: Iterable[Client] = ()) -> Batch:
        """Return the next forward: tokens of answers, then pieces of prompts in the space left.

        The model's thread calls it for each forward. Preempted requests end. The client that got
        least of the model is first. If several `clients` have open answers, the forward has one
        answer of each, or several within `shared_tokens` rows times tokens. All prompts together
        have at most `piece` rows times tokens, or twice those of the answers if that is more. The
        first request is alone if it would get less than half of it, and not end its prompt.
        """
        for request in tuple(self.requests):
            if request.preemption.requested:
                self.requests.remove(request)
                request.done(Preempted())
        batch, silent, requests = Batch(), list[Request](), self.requests
        open_, waiting = set(clients), {each.client for each in requests}
        if len(open_ | waiting) > 1:
            batch.portions = Portions(open_, self.shared_tokens)
            requests = sorted(requests, key=lambda each: self._shares.place(each.client))
        for request in requests:
            room, rows = self._exact - batch.size, request.rows.count
            if request.read < request.every:
                silent.append(request)
                continue
            if batch.portions is not None:
                room = batch.portions.remaining(request.client, room)
            if room >= rows or not batch.requests:
                left = len(request.tokens) - request.read
                tokens = min(left, max(1, room // rows)) if request.in_blocks else 1
                batch.add(request, tokens)
                if batch.portions is not None:
                    batch.portions.take(request.client, rows * tokens)
        left = piece = max(piece, PER_ROW * batch.size)
        for request in silent:
            room = self._exact - batch.size
            tokens = self._piece(request, min(left, room) if batch.requests else left)
            size = tokens * request.rows.count
            if left > 0 and (size <= room or not batch.requests):
                batch.add(request, tokens)
                left -= size
        if requests and not _suffices(batch, requests[0]):
            batch = Batch(portions=batch.portions)
            batch.add(requests[0], self._piece(requests[0], piece))
        return batch

    def update(self, batch: Batch, found: Sequence[Sequence[RowLogits] | None] | Exception) -> None:
        """Pass `found`, a forward's logits or error, to `done`; queue unfinished requests again."""
        if batch.portions is not None:
            waiting = [each for each in self.requests if batch.leaves(each, len(each.tokens))]
            self._shares.charge(batch.used, {each.client for each in waiting})
        for request in batch.requests:
            self.requests.remove(request)
        if isinstance(found, Exception):
            for request in batch.requests:
                request.done(found)
            return
        for request, feed, logits in zip(batch.requests, batch.feeds, found, strict=True):
            if logits is None:
                request.done(Preempted())
                continue
            request.rows.length += len(feed.tokens)
            request.read += len(feed.tokens)
            if feed.every or request.read == request.prompt:
                request.logits += logits
            if request.read < len(request.tokens):
                self.requests.append(request)
            else:
                request.done(request.logits)

    def _piece(self, request: Request, size: int) -> int:
        """Return the tokens of a request's next piece: about `size` of all rows, at least one."""
        rows = request.rows.count
        end = request.prompt if request.read < request.prompt else request.every
        piece = request.piece if request.read < request.prompt else 1
        if piece == 1:
            size = min(size, self._exact)
        return min(max(piece, size // rows // piece * piece), end - request.read)


def _suffices(batch: Batch, first: Request) -> bool:
    """Return whether a forward reads enough of the first request: if it is cut, its fair part."""
    if first not in batch.requests:
        return False
    if batch.portions is None:
        return True
    fair = 2 * batch.used[first.client] >= batch.size
    return fair or not batch.leaves(first, first.every)


def run_alone(make: Callable[[Done[T], Preemption], Request]) -> T:
    """Run the Request that `make` returns, without any others, and return or raise its result."""
    found: list[T | Exception] = []
    request = make(found.append, Preemption())
    scheduler = Scheduler(request.rows.info)
    scheduler.add(request)
    while not found:
        batch = scheduler.schedule()
        scheduler.update(batch, request.rows.backend.forward(batch.feeds))
    if isinstance(found[0], Exception):
        raise found[0]
    return found[0]
