"""Drive vLLM's engine with requests of one new token, and measure which forwards are exact."""

import random
from collections import Counter
from collections.abc import Sequence
from itertools import count
from typing import Any

import torch
from torch import Tensor

KEY = "row"
"""The argument of a request: its key, and the number of its rows that are kept."""
_UNUSED = ("mm_features", "pooling_params", "lora_request", "cache_salt", "data_parallel_rank")

CANDIDATES = (256, 128, 32, 15, 7, 3)
BLOCK = 32
"""Tokens that a request reads at once where it is compared."""
STARTS = (40, 256, 1024)
"""Tokens of a text, behind which one token after another is read: kernels may differ."""
_OTHERS = (11, 90, 33, 64, 5)
"""Tokens of texts beside it."""


class Engine:
    """vLLM's engine core, which computes the requests of all rows, and its workers.

    `most_open` limits the requests that stay open: their number, and their blocks of KV.
    """

    def __init__(self, llm: Any) -> None:
        from vllm import SamplingParams
        from vllm.v1.engine import EngineCoreRequest

        self._params, self._request = SamplingParams, EngineCoreRequest
        self._core, self._workers = llm.engine_core, llm.collective_rpc
        self._requests = self._core.engine_core.scheduler.requests
        self._awaited = Counter[str]()
        self._workers("keep_rows")
        self._workers("pair_lone_rows")
        specs = self._workers("get_kv_cache_spec")
        self.block_bytes: int = sum(each.page_size_bytes for of in specs for each in of.values())
        cache = llm.vllm_config.cache_config
        self.block_size: int = cache.block_size
        self.kv_blocks: int = cache.num_gpu_blocks
        longest = self.blocks(llm.vllm_config.model_config.max_model_len)
        most = min(self.kv_blocks // 2, self.kv_blocks - longest - 1)  # vLLM keeps one empty
        self.most_open = llm.vllm_config.scheduler_config.max_num_seqs // 2, most

    def blocks(self, tokens: int) -> int:
        return tokens // self.block_size + 1

    @property
    def busy(self) -> bool:
        return bool(self._awaited)

    def add(self, key: int, tokens: list[int], stays: bool, rows: int = 1) -> None:
        """Queue `tokens` for the request numbered `key`: a new request, or one that is still open.

        If it `stays`, the request remains open for more tokens. After `step` has computed them,
        `take` returns the predictions that follow each of the last `rows` tokens.
        """
        turns = [(tokens, rows)]
        if stays and 1 < rows < len(tokens):  # what comes before them may be found there
            turns = [(tokens[:-rows], 1), (tokens[-rows:], rows)]
        for part, wanted in turns:
            self._core.add_request(
                self._request(
                    request_id=str(key),
                    prompt_token_ids=part,
                    sampling_params=self._params(
                        temperature=0,
                        max_tokens=1,
                        detokenize=False,
                        extra_args={KEY: (key, wanted)},
                        skip_reading_prefix_cache=wanted > 1,
                    ),
                    arrival_time=0.0,
                    resumable=stays,
                    **dict.fromkeys(_UNUSED),
                )
            )
            self._awaited[str(key)] += 1

    def step(self) -> None:
        self._awaited -= Counter(each.request_id for each in self._core.get_output().outputs)

    def cut(self, key: int, length: int) -> bool:
        """Shorten an open request to its first `length` tokens, for example after rejected drafts.

        Return False, and change nothing, if a full KV block would be cut: others may share it.
        """
        request = self._requests[str(key)]
        read = request.num_computed_tokens
        if not read // self.block_size * self.block_size <= length <= read:
            return False
        del request.prompt_token_ids[length:]
        request.num_computed_tokens = request.num_prompt_tokens = length
        return True

    def abort(self, keys: Sequence[int]) -> None:
        """End the requests with these keys, also open ones. Keys without a request are ignored."""
        names = [str(key) for key in keys]
        self._core.abort_requests(names)
        for name in names:
            del self._awaited[name]

    def take(self, keys: Sequence[int]) -> list[list[tuple[Any, ...]]]:
        """Return and forget each request's predictions, as (log-probabilities, hidden state)."""
        found = self._workers("take_rows", args=(list(keys),))
        return next(rows for rows in found if rows is not None)


def exact_rows(engine: Engine, vocabulary: int, longest: int) -> int:
    """Measure how large a forward may be and give the same bits as forwards of one token each.

    Return that size, the tokens of all requests together: at most 256, or 0 if even three tokens
    change the bits. It is measured whenever a model is loaded, because vLLM chooses kernels by it.
    A random text of ids below `vocabulary` is read token by token, then in blocks together with
    others. It is compared after 40, 256, 1024 tokens, if `longest`, a request's limit, allows it.
    """
    room = min(longest, engine.block_size * (engine.kv_blocks // 2)) - BLOCK
    return min(_exact_rows(engine, vocabulary, start) for start in STARTS if start < max(room, 41))


def _exact_rows(engine: Engine, vocabulary: int, start: int) -> int:
    chance, numbers = random.Random(0), count()

    def run(texts: Sequence[list[int]], held: Sequence[int] = (), rows: int = 1) -> list[Tensor]:
        """Return what follows texts; the last ones are for open requests, of which all `rows`."""
        keys = [*(next(numbers) for _ in texts[len(held) :]), *held]
        for key, text in zip(keys, texts, strict=True):
            engine.add(key, text, key in held, rows if key in held else 1)
        while engine.busy:
            engine.step()
        return [row[0] for of in engine.take(keys) for row in of]

    def opened(requests: int) -> list[int]:
        """Return open requests of the first tokens of the text."""
        keys = [next(numbers) for _ in range(requests)]
        run([text[:start] for _ in keys], keys)
        return keys

    text, *others = (
        [chance.randrange(vocabulary) for _ in range(length)]
        for length in (start + BLOCK, *_OTHERS)
    )
    (alone,) = opened(1)
    known = [row for token in text[start:] for row in run([[token]], [alone])]
    engine.abort([alone])
    beside = [run([each])[0] for each in others]
    most_requests, most_blocks = engine.most_open
    for most in CANDIDATES:
        together = min(most, len(others))
        block = text[start : start + most - together + 1]
        copies = max(1, (most - together) // BLOCK)
        if copies > max(1, min(most_requests, most_blocks // engine.blocks(len(text)))):
            continue
        keys = opened(copies)
        found = run([*others[:together], *[block] * copies], keys, len(block))
        engine.abort(keys)
        if all(map(torch.equal, found, [*beside[:together], *known[: len(block)] * copies])):
            return most
    return 0


def line_of(error: Exception) -> str:
    """Return the first line of an exception's message, else the name of its type."""
    return str(error).strip().partition("\n")[0] or type(error).__name__
