"""Predict what follows prefixes of an answer; keep the KV of its prompt and newest text."""

import threading
from collections.abc import Callable, Sequence
from functools import cached_property, partial
from typing import Self

import numpy as np

from dragonrt.backends.agreement import BEFORE, Agreement, ValueState
from dragonrt.backends.backend import Preemption, RowLogits
from dragonrt.backends.mixture import Mixture, RowWeights, Weighing
from dragonrt.backends.row_set import RowSet
from dragonrt.backends.scheduler import Done, Request, run_alone

REMEMBERED_WEIGHINGS = 8
"""Weights kept for prefixes, in case of a rollback."""

REMEMBERED_STATES = 1024
"""The same of states; a value whose beginning is forgotten is read again."""

LONGEST_RUN = 16
"""The most tokens without a prediction that are read as part of an answer's block."""


class PrefixCache:
    """Predicts the next token after prefixes of an answer, and reads shared prefixes only once.

    Each prefix has a hash, which the caller gives. The first request allocates the KV and reads
    the prompt. Make a request only when the previous one is done, and in the model's thread.
    """

    def __init__(
        self,
        open_rows: Callable[[], RowSet],
        prompt: Sequence[int],
        start: int,
        weighing: Weighing | None = None,
        agreement: Agreement | None = None,
        *,
        in_blocks: bool = True,
    ) -> None:
        """`start` is the hash of the empty text. Without `weighing` rows weigh the same.

        With `agreement` they lose their weight in values that are not theirs. Unless `in_blocks`,
        forwards have one token of the answer: some machines compute other bits for a block.
        """
        self._open = open_rows
        self._prompt = prompt
        self._in_blocks = in_blocks
        self._after_prompt: RowLogits | None = None
        self._has_hidden = self._prefilled = False
        self._weighing = weighing or Weighing(np.zeros(1))
        self._doubts, self._initial = np.zeros(1), RowWeights([0.0])  # until it is prefilled
        self._weighed: dict[int, RowWeights] = {}
        self._weighing_lock = threading.Lock()
        self._agreement = agreement
        self._states = {start: BEFORE}
        self._newest: tuple[int, RowLogits] | None = None  # the prefix that was read last
        self._hashes = [start]  # of the prefixes in the rows, and perhaps more

    @classmethod
    def with_prompt_read(
        cls,
        rows: RowSet,
        prompt: Sequence[int],
        start: int,
        weighing: Weighing | None = None,
        *,
        in_blocks: bool = True,
    ) -> Self:
        """Return a PrefixCache of open `rows`; read its `prompt` now, without a scheduler.

        `start` is the hash of an empty answer. Without `weighing` all rows weigh the same. If
        `in_blocks`, one forward may read several tokens of the answer.
        """
        cache = cls(lambda: rows, prompt, start, weighing, in_blocks=in_blocks)
        run_alone(cache.prefill)
        return cache

    @cached_property
    def rows(self) -> RowSet:
        """Return the documents' rows. The first use reserves memory: ModelError or BusyError."""
        rows = self._open()
        del self._open  # which holds the documents
        return rows

    @property
    def context(self) -> int:
        """Return how many tokens precede the answer in the longest row: document and prompt."""
        return self.rows.longest_document + len(self._prompt)

    @property
    def relevance(self) -> float:
        """Return h̃, the log-sum-exp of initial document relevances; 0 until the prompt is read."""
        return self._initial.relevance

    def read(
        self, tokens: Sequence[int], hashes: Sequence[int], first: int, *, hidden: bool = False
    ) -> list[Mixture]:
        """Return now, without a scheduler, a Mixture for each n from `first` to len(tokens).

        It predicts what follows n `tokens`, named by `hashes[n]`. `hidden` requests hidden states.
        """
        return run_alone(partial(self.request, tokens, hashes, first, hidden=hidden))

    def prefill(self, done: Done[list[Mixture]], preemption: Preemption) -> Request:
        """Return a Request to read the prompt; `done` gets a list of one, the Mixture after it."""
        return self.request([], self._hashes[:1], 0, done, preemption)

    def request(
        self,
        tokens: Sequence[int],
        hashes: Sequence[int],
        first: int,
        done: Done[list[Mixture]],
        preemption: Preemption,
        *,
        hidden: bool = False,
    ) -> Request:
        """Return a Request to predict what follows the first n `tokens`, for each n >= `first`.

        `tokens` are an answer, `hashes[n]` the hash of its first n. `done` gets a Mixture for each
        n, with hidden states if `hidden`, or an error. ModelError or BusyError: no memory for KV.
        """
        rows, prompt = self.rows, self._prompt
        wanted, first = first, self._judged_from(tokens, hashes, first)
        lacks = self._after_prompt is None or (hidden and not self._has_hidden)
        if rows.length < len(prompt) or not self._prefilled or (first == 0 and lacks):
            piece = rows.info.question_piece
            rows.truncate(min(rows.length, (len(prompt) - 1) // piece * piece))
            prompt, keep = prompt[rows.length :], 0
        else:
            keep = self.reusable_tokens(hashes, first)
            rows.truncate(len(prompt) + keep)
            prompt = ()
        text, self._hashes = list(tokens), list(hashes)
        # A resumed answer takes turns with others, and gives no [rows, vocabulary] per token.
        resumes = self._in_blocks and first - 1 - keep > LONGEST_RUN
        every = first - 1 if resumes else keep
        before, fed = len(prompt), [*prompt, *text[keep:]]

        def finish(logits: list[RowLogits] | Exception) -> None:
            if isinstance(logits, Exception):
                done(logits)
                return
            if before:
                self._keep_prompt(logits.pop(0).copy(), hidden)
            logits = logits[max(first - 1 - every, 0) :]
            done(self._predictions(text, self._hashes, first, logits)[wanted - first :])

        return Request(
            rows,
            fed,
            finish,
            preemption,
            prompt=before,
            piece=rows.info.question_piece,
            every=before + every - keep,
            in_blocks=self._in_blocks,
            hidden=hidden,
        )

    def disagrees(self, prefix_hash: int) -> bool:
        """Return whether all documents disagree with the value (number, name) at a prefix's end."""
        state, rows = self._states.get(prefix_hash, BEFORE), self.rows.count
        read = np.isfinite(np.broadcast_to(self._weighing.initial, rows))
        return bool(state.lost) and bool(state.rows(rows)[read].all())

    def reusable_tokens(self, hashes: Sequence[int], first: int) -> int:
        """Return how many first tokens of an answer have KV, so a request need not read them.

        `hashes[n]` names the first n tokens. At most `first` - 1, as reading the next one predicts.
        """
        length = max(0, min(self.rows.length - len(self._prompt), len(hashes) - 1))
        while self._hashes[length] != hashes[length]:
            length -= 1
        return min(length, max(first - 1, 0))

    def _keep_prompt(self, logits: RowLogits, hidden: bool) -> None:
        self._after_prompt, self._has_hidden = logits, hidden
        if not self._prefilled:
            self._prefilled, self._doubts = True, self._weighing.doubts(logits)
            relevances = self._weighing.initial + self._doubts
            self._initial = RowWeights(np.broadcast_to(relevances, self.rows.count))

    def _predictions(
        self, tokens: list[int], hashes: list[int], first: int, logits: list[RowLogits]
    ) -> list[Mixture]:
        if first == 0 and self._after_prompt is not None:
            logits = [self._after_prompt, *logits]
        elif first:  # [rows, vocabulary] is large, and needed only to start over
            self._after_prompt = None
        if self._agreement is None:
            return [
                Mixture(each, partial(self._weigh, tokens, hashes, length))
                for length, each in enumerate(logits, start=first)
            ]
        found = []
        for length, each in enumerate(logits, start=first):
            state = self._states[hashes[length]]
            weigh = partial(self._weigh, tokens, hashes, length)
            found.append(Mixture(each, weigh, state, self._agreement))
            if length < len(tokens):
                self._judge(self._agreement, state, tokens[length], hashes[length + 1], each)
        self._newest = hashes[len(tokens)], each if len(logits) == 1 else each.copy()
        return found

    def _judged_from(self, tokens: Sequence[int], hashes: Sequence[int], first: int) -> int:
        """Return the first prefix to read, so that it is known which rows agree after `first`."""
        if self._agreement is None:
            return first
        if len(self._states) > REMEMBERED_STATES:
            self._states = {hashes[0]: BEFORE}
        known = first
        while hashes[known] not in self._states:
            known -= 1
        unknown, state = None, self._states[hashes[known]]
        for length in range(known, first):
            found = self._agreement.after(state, tokens[length])
            if found is None:
                unknown = length if unknown is None else unknown
                found = ValueState(self._agreement.phase(tokens[length : length + 1], state.phase))
            elif not found.phase:
                unknown = None
            if unknown is None:
                self._states[hashes[length + 1]] = found
            state = found
        if unknown is None:
            return first
        if self._newest is None or (unknown + 1, self._newest[0]) != (first, hashes[unknown]):
            return unknown
        before, rows = self._states[hashes[unknown]], self._newest[1]
        self._judge(self._agreement, before, tokens[unknown], hashes[first], rows)
        return first

    def _judge(
        self, by: Agreement, before: ValueState, token: int, prefix_hash: int, rows: RowLogits
    ) -> None:
        """Keep the state after the prefix that ends with `token`, of which `rows` gave it."""
        self._states[prefix_hash] = by.state_with_rows(before, token, rows)

    def _weigh(self, tokens: list[int], hashes: list[int], step: int) -> RowWeights:
        """Return the weights of the rows after `step` tokens."""
        again, every = self._weighing.again, self._weighing.every
        length = step - step % every if every else 0
        if again is None or length == 0:
            return self._initial
        with self._weighing_lock:
            if hashes[length] not in self._weighed:
                if len(self._weighed) >= REMEMBERED_WEIGHINGS:
                    self._weighed.clear()
                relevances = again(tokens[:length]) + self._doubts
                self._weighed[hashes[length]] = RowWeights(relevances)
            return self._weighed[hashes[length]]
