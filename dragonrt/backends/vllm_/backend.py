"""Implements the interface of a backend by requests of one token to vLLM's engine.

A row (an answer over one document) is a request that stays open for more tokens. To roll a row
back, its request is cut, or a new request reads the shorter text if a full KV block would change.
"""

import weakref
from collections import deque
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from itertools import count
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from typing_extensions import override

from dragonrt.backends.backend import Backend, Feed, ModelInfo, Rows, Tokenizer
from dragonrt.backends.resources import KvPool, Room
from dragonrt.backends.transformers_.backend import TorchLogits
from dragonrt.backends.vllm_.engine import Engine, line_of
from dragonrt.errors import ModelError

TOKENS = "tokens"


@dataclass(frozen=True, slots=True, weakref_slot=True)
class TokenDocument:
    """A Document that stores its token ids only: the engine keeps their KV or computes it again."""

    tokens: tuple[int, ...]

    @property
    def length(self) -> int:
        return len(self.tokens)

    def dump(self) -> dict[str, NDArray[Any]]:
        return {TOKENS: np.array(self.tokens, np.int32)}


class TokenRows(Rows):
    """The token ids of rows: a row's document, then tokens that all rows share. vLLM has the KV."""

    def __init__(self, number: int, documents: Sequence[TokenDocument], room: Room) -> None:
        self.number, self.count, self._room = number, len(documents), room
        self.documents = [list(each.tokens) for each in documents]
        self.shared: list[int] = []

    @override
    def reserve(self, tokens: int) -> None:
        """Do nothing: Rows demands that room be made for tokens, but these lists grow as needed."""

    @override
    def document(self, row: int, length: int) -> TokenDocument:
        return TokenDocument(tuple(self.shared[:length]))


@dataclass(frozen=True, slots=True)
class OpenRequests:
    """The open vLLM requests of a TokenRows: a key for each row, and their number of KV blocks."""

    keys: list[int]
    blocks: int


class VllmBackend(Backend):
    """The Backend that runs a model in vLLM's engine. All feeds of a call share its batches.

    A feed, the tokens that one answer or document appends, can be preempted between two forwards
    of the engine. If open requests need room, those unused for the longest time are ended.
    """

    def __init__(self, engine: Engine, tokenizer: Tokenizer, info: ModelInfo) -> None:
        self.tokenizer, self.info, self.pool = tokenizer, info, KvPool()
        self._engine = engine
        self._numbers = count()  # of requests and of rows
        self._held: dict[int, OpenRequests] = {}  # by the number of their rows, the newest last
        self._gone = deque[int]()  # rows that were forgotten, in any thread
        self._dead = ""

    @override
    def load(self, arrays: Mapping[str, NDArray[Any]]) -> TokenDocument:
        found = arrays.get(TOKENS)
        if len(arrays) != 1 or found is None or found.ndim != 1 or found.dtype != np.int32:
            raise ModelError("stored document has no list of tokens: re-index")
        return TokenDocument(tuple(found.tolist()))

    @override
    def empty(self) -> TokenDocument:
        return TokenDocument(())

    @override
    def token_document(self, tokens: Sequence[int]) -> TokenDocument:
        return TokenDocument(tuple(tokens))

    @override
    def open(self, documents: Sequence[Any], capacity: int) -> TokenRows:
        if not all(isinstance(each, TokenDocument) for each in documents):
            raise ModelError("a document's stored KV was made by another engine: re-index it")
        if max(max(each.tokens, default=0) for each in documents) >= self.info.vocabulary:
            raise ModelError("a document's tokens are another model's: re-index it")
        blocks = sum(self._engine.blocks(each.length + capacity) for each in documents)
        room = self.pool.room(blocks * self._engine.block_bytes)
        rows = TokenRows(next(self._numbers), documents, room)
        weakref.finalize(rows, self._gone.append, rows.number).atexit = False
        return rows

    @override
    def forward(self, feeds: Sequence[Feed]) -> list[list[TorchLogits] | None]:
        """Append each feed's tokens to its rows, and return the logits that follow them.

        Each feed's result is a list, None if preempted. ModelError once the engine has failed.
        """
        if self._dead:
            raise ModelError(self._dead)
        try:
            return self._run(feeds)
        except Exception as error:  # of any kind: what an engine raises is no interface
            self._dead = f"vLLM's engine failed ({line_of(error)}): restart this side"
            raise ModelError(self._dead) from error

    def _run(self, feeds: Sequence[Feed]) -> list[list[TorchLogits] | None]:
        while self._gone:
            self._end(self._gone.popleft())
        using = {feed.rows.number for feed in feeds}
        keys = [self._add(feed, using) for feed in feeds]
        going = dict(enumerate(keys))  # requests of feeds that are not preempted
        while True:
            for number in [n for n in going if feeds[n].preemption.requested]:
                self._engine.abort(going.pop(number))
                self._held.pop(feeds[number].rows.number, None)
            if not self._engine.busy:
                break
            self._engine.step()
        rows = iter(self._engine.take([key for of in going.values() for key in of]))
        after = {n: zip(*(next(rows) for _ in of), strict=True) for n, of in going.items()}
        return [
            [TorchLogits(*map(torch.stack, zip(*each, strict=True))) for each in after[n]]
            if n in after
            else None
            for n in range(len(feeds))
        ]

    def _add(self, feed: Feed, using: Collection[int]) -> list[int]:
        """Append the tokens to the rows; return the requests of them, one a row."""
        rows: TokenRows = feed.rows
        rows.shared[feed.length :] = feed.tokens
        texts = [of + rows.shared for of in rows.documents]
        held = self._held.pop(rows.number, None)
        blocks = sum(self._engine.blocks(len(text)) for text in texts)
        stay = self._make_room(rows.count, blocks, using)
        keys, wanted = list[int](), len(feed.tokens) if feed.every else 1
        for row, text in enumerate(texts):
            key, before = next(self._numbers), len(text) - len(feed.tokens)
            if held is not None and stay and self._engine.cut(held.keys[row], before):
                key, text = held.keys[row], list(feed.tokens)
            elif held is not None:
                self._engine.abort([held.keys[row]])
            self._engine.add(key, text, stay, wanted)
            keys.append(key)
        if stay:
            self._held[rows.number] = OpenRequests(keys, blocks)
        return keys

    def _make_room(self, requests: int, blocks: int, using: Collection[int]) -> bool:
        """Return whether these may be open, too; end what no feed is `using` until they may."""
        most_requests, most_blocks = self._engine.most_open
        idle = [number for number in self._held if number not in using]
        while (
            requests + sum(len(of.keys) for of in self._held.values()) > most_requests
            or blocks + sum(of.blocks for of in self._held.values()) > most_blocks
        ):
            if not idle:
                return False
            self._end(idle.pop(0))
        return True

    def _end(self, number: int) -> None:
        """End the open requests of rows, if there are any."""
        if (held := self._held.pop(number, None)) is not None:
            self._engine.abort(held.keys)
