"""Drafts, and the hash that says for which text a draft is valid (SPEC 1.3).

A draft of step `t` carries a 64-bit running hash of the tokens it was conditioned on. Nothing
else, no step number and no order of arrival, decides whether it may be aggregated.
"""

import hashlib
from base64 import b64encode
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any

from dragonrt.distributions import Codec, Distribution, Step, decode_distribution
from dragonrt.sampling.aggregation import Candidate


def start_hash(seed: int) -> int:
    """The prefix hash of the empty answer of a generation with this seed."""
    return _hash(seed.to_bytes(8, "little"))


def extend_hash(prefix_hash: int, token: int) -> int:
    """The prefix hash after one more token."""
    return _hash(prefix_hash.to_bytes(8, "little") + token.to_bytes(4, "little"))


def _hash(data: bytes) -> int:
    return int.from_bytes(hashlib.blake2b(data, digest_size=8).digest(), "little")


@dataclass(frozen=True, slots=True)
class Draft:
    """One side's next-token guess for one prefix.

    `payload` is the encoded distribution as it travels. `distribution` is the same, decoded: a
    side knows its own at once, the other side's is decoded only if the draft comes to a decision.
    `relevance` is h̃, the log-sum-exp of the side's document relevances; `decode_s` the seconds
    the forward took; `document` the own row that carried the token.
    """

    step: int
    prefix_hash: int
    token: int
    payload: bytes
    relevance: float
    decode_s: float
    distribution: Distribution | None = None
    document: int | None = None

    def decoded(self, codec: Codec) -> "Draft":
        """This draft with its distribution at hand; CodecError for a malformed payload."""
        if self.distribution is not None:
            return self
        distribution = decode_distribution(codec, self.payload, Step(self.step))
        return replace(self, distribution=distribution)

    def traced(self) -> dict[str, Any]:
        """The fields of its trace event: all that a simulation needs to give it again."""
        return {
            "step": self.step,
            "prefix": f"{self.prefix_hash:016x}",
            "seconds": round(self.decode_s, 6),
            "relevance": self.relevance,
            "payload": b64encode(self.payload).decode(),
        }

    @property
    def candidate(self) -> Candidate:
        """What an aggregation rule needs of a decoded draft."""
        if self.distribution is None:
            raise ValueError("the draft is not decoded yet")
        return Candidate(self.token, self.distribution)


class Line:
    """The tokens a side drafts along, with the prefix hash before every one of them.

    `hashes[n]` is the hash of the first `n` tokens, so it always has one entry more than `tokens`.
    """

    def __init__(self, start: int, tokens: Iterable[int] = ()) -> None:
        self.tokens: list[int] = []
        self.hashes: list[int] = [start]
        for token in tokens:
            self.append(token)

    def __len__(self) -> int:
        return len(self.tokens)

    @property
    def hash(self) -> int:
        """The hash of the whole line."""
        return self.hashes[-1]

    def append(self, token: int) -> None:
        self.tokens.append(token)
        self.hashes.append(extend_hash(self.hashes[-1], token))

    def cut(self, length: int) -> None:
        """Keep the first `length` tokens."""
        del self.tokens[length:]
        del self.hashes[length + 1 :]

    def replace_from(self, step: int, tokens: Sequence[int]) -> None:
        """Cut back to `step` and go on with `tokens`."""
        self.cut(step)
        for token in tokens:
            self.append(token)
