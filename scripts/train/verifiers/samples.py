"""What a verifier learns from: drafted tokens, what both models gave to them, and features.

At run time a prefix holds tokens of the draft and of the target, so it learns from prefixes of four
kinds in equal share (SPRINTER section 3.2).
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from dragonrt.control.trained import confidences
from scripts.lab.model_pair import AnswerReader, ModelPair
from scripts.lab.passages import CutPassage, Passage

KINDS = ("original", "draft", "target", "both")
"""How a prefix goes on behind its original beginning: as the original does, or completed by the
draft model, by the target, or by both, each token by either."""

COMPLETION = 32
"""Tokens that a prefix is completed by; each length on the way is a sample."""

_SMALLEST = 1e-12  # a probability, so that no ratio is infinite

Progress = Callable[[int, int], None]
_Sample = tuple[NDArray[np.float32], NDArray[np.float32], float, int]


@dataclass(frozen=True, slots=True, eq=False)
class Samples:
    """n drafted tokens x, each drawn from the draft model's q after some prefix.

    `hidden` float32 [n, hidden]: the draft model's last hidden state, from which q was computed.
    `confidence` float32 [n, 3]: `control.trained.confidences`. `log_ratio` float32 [n]:
    log q(x)/p(x). `kind` int64 [n]: which of `KINDS` its prefix is.
    """

    hidden: NDArray[np.float32]
    confidence: NDArray[np.float32]
    log_ratio: NDArray[np.float32]
    kind: NDArray[np.int64]

    def __len__(self) -> int:
        return len(self.kind)

    def features(self, confidence: bool) -> NDArray[np.float32]:
        """What a verifier reads: float32 [n, features]."""
        if not confidence:
            return self.hidden
        return np.concatenate((self.hidden, self.confidence), axis=1)

    def acceptable(self, ratio: float) -> NDArray[np.bool_]:
        """q(x)/p(x) ≤ λ: the labels of SPRINTER."""
        result: NDArray[np.bool_] = self.log_ratio <= np.log(ratio)
        return result


def collect(
    pair: ModelPair, passages: Sequence[Passage], number: int, seed: int, progress: Progress
) -> Samples:
    """`number` samples, rounded down to an equal share of each kind.

    Passages are used in random order, again and again with other cuts.
    """
    random, share = np.random.default_rng(seed), number // len(KINDS)
    found: list[list[_Sample]] = [[] for _ in KINDS]
    order = _endless(len(passages), random)
    while min(map(len, found)) < share:
        progress(sum(min(len(each), share) for each in found), share * len(KINDS))
        cut = passages[next(order)].cut(random)
        readers = [
            AnswerReader(model, cut.prefix, COMPLETION) for model in (pair.draft, pair.target)
        ]
        stops = set(pair.target.answer_stops if cut.is_answer else pair.target.stop_tokens)
        for kind, several in enumerate(found):
            if len(several) < share:
                text = _completed(readers, cut, kind, stops, random)
                several += _drafted(readers, text, kind, random)
    columns = zip(*(one for several in found for one in several[:share]), strict=True)
    hidden, confidence, log_ratio, kinds = map(np.array, columns)
    return Samples(hidden, confidence, log_ratio.astype(np.float32), kinds)


def _completed(
    readers: Sequence[AnswerReader],
    cut: CutPassage,
    kind: int,
    stops: set[int],
    random: np.random.Generator,
) -> list[int]:
    """Return how a prefix of this kind goes on, to the first stop token."""
    text: list[int] = []
    limit = COMPLETION if KINDS[kind] != "original" else min(COMPLETION, len(cut.rest))
    while len(text) < limit and stops.isdisjoint(text):
        match KINDS[kind]:
            case "original":
                text.append(cut.rest[len(text)])
                continue
            case "both":
                reader = readers[int(random.integers(2))]
            case name:
                reader = readers[name == "target"]
        text.append(_drawn(reader.after(text, len(text))[0].p, random))
    return text


def _drafted(
    readers: Sequence[AnswerReader], text: Sequence[int], kind: int, random: np.random.Generator
) -> Iterator[_Sample]:
    """Yield a token drafted after each prefix of a text but the whole."""
    for said, verified in zip(*(reader.after(text[:-1], 0) for reader in readers), strict=True):
        token = _drawn(said.p, random)
        log_ratio = np.log(said.p[token]) - np.log(max(verified.p[token], _SMALLEST))
        yield said.hidden, confidences(said.p, token), log_ratio, kind


def _drawn(p: NDArray[np.float32], random: np.random.Generator) -> int:
    """Draw a token of a distribution [vocabulary]."""
    cumulated = p.cumsum(dtype=np.float64)
    return int(np.searchsorted(cumulated, random.random() * cumulated[-1], side="right"))


def _endless(number: int, random: np.random.Generator) -> Iterator[int]:
    """The numbers below `number` in a random order, then in another, and so on."""
    while True:
        yield from random.permutation(number).tolist()
