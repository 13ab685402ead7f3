"""What a verifier learns from: drafted tokens, what both models gave to them, and features.

At run time a prefix holds tokens of the draft and of the target, so it learns from prefixes of four
kinds in equal share (SPRINTER section 3.2).
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from scripts.train.verifiers.models import BatchedPair
from scripts.train.verifiers.texts import CutPassage, Passage

KINDS = ("original", "draft", "target", "both")
"""How a prefix goes on behind its original beginning: as the original does, or completed by the
draft model, by the target, or by both, each token by either."""
_ORIGINAL, _DRAFT, _TARGET, _BOTH = range(len(KINDS))

COMPLETION = 32
"""Tokens that a prefix is completed by; each length on the way is a sample."""

_LARGEST_BATCH = 32  # texts
_LARGEST_LOGITS = 1 << 22  # numbers of one step of a batch: bounds its memory at any vocabulary

Progress = Callable[[int, int], None]


@dataclass(frozen=True, slots=True, eq=False)
class Samples:
    """n drafted tokens x, each drawn from the draft model's q after some prefix.

    `hidden` float32 [n, hidden]: the draft model's last hidden state, from which q was computed.
    `confidence` float32 [n, 3]: `control.verifier.confidences`. `log_ratio` float32 [n]:
    log q(x)/p(x). `kind` int64 [n]: which of `KINDS` its prefix is.
    """

    hidden: NDArray[np.float32]
    confidence: NDArray[np.float32]
    log_ratio: NDArray[np.float32]
    kind: NDArray[np.int64]

    def __len__(self) -> int:
        return len(self.kind)

    def only(self, chosen: NDArray[np.bool_]) -> "Samples":
        """Those of them that are chosen [n]."""
        return Samples(*(getattr(self, name)[chosen] for name in Samples.__slots__))

    def features(self, confidence: bool) -> NDArray[np.float32]:
        """What a verifier reads: float32 [n, features]."""
        if not confidence:
            return self.hidden
        return np.concatenate((self.hidden, self.confidence), axis=1)

    def acceptable(self, ratio: float) -> NDArray[np.bool_]:
        """q(x)/p(x) ≤ λ: the labels of SPRINTER."""
        result: NDArray[np.bool_] = self.log_ratio <= np.log(ratio)
        return result

    def acceptance(self) -> NDArray[np.float32]:
        """min(1, p(x)/q(x)), with which speculative decoding accepts x: SpecDec++'s labels."""
        probability: NDArray[np.float32] = np.exp(-np.maximum(self.log_ratio, 0))
        return probability


def collect(
    pair: BatchedPair, passages: Sequence[Passage], number: int, seed: int, progress: Progress
) -> Samples:
    """`number` samples, rounded down to an equal share of each kind.

    Passages are used in random order, again and again with other cuts and kinds.
    """
    random = np.random.default_rng(seed)
    generator = torch.Generator(pair.draft.device).manual_seed(seed)
    largest = min(_LARGEST_BATCH, _LARGEST_LOGITS // pair.draft.vocabulary)
    share = number // len(KINDS)
    found: list[list[Samples]] = [[] for _ in KINDS]
    have = [0] * len(KINDS)
    order = _endless(len(passages), random)
    while min(have) < share:
        done = sum(min(one, share) for one in have)
        progress(done, share * len(KINDS))
        missing = [kind for kind, one in enumerate(have) if one < share]
        needed = -(-(share * len(KINDS) - done) // COMPLETION)
        rows = max(len(missing), min(largest, needed))
        kinds = [missing[row % len(missing)] for row in range(rows)]
        cuts = [passages[next(order)].cut(random) for _ in kinds]
        drafted = _walk(pair, cuts, kinds, generator)
        for kind in missing:
            found[kind].append(drafted.only(drafted.kind == kind))
            have[kind] += len(found[kind][-1])
    wholes = (_joined(parts) for parts in found)
    return _joined([whole.only(np.arange(len(whole)) < share) for whole in wholes])


def _walk(
    pair: BatchedPair, cuts: Sequence[CutPassage], kinds: Sequence[int], generator: torch.Generator
) -> Samples:
    """Complete each prefix in its kind; a sample at each step.

    A text ends with its original or behind a stop token, an answer where it would end at run time.
    """
    device = pair.draft.device
    kind = torch.tensor(kinds, device=device)
    original = torch.tensor([_padded(cut.rest) for cut in cuts], device=device)
    is_answer = torch.tensor([cut.is_answer for cut in cuts], device=device)
    stops = torch.tensor(pair.target.stop_tokens, device=device)
    answer_stops = torch.tensor(pair.target.answer_stops, device=device)
    goes_on = torch.ones_like(kind, dtype=torch.bool)
    steps = []
    with torch.inference_mode():
        draft, target = (
            model.read([cut.prefix for cut in cuts]) for model in (pair.draft, pair.target)
        )
        for step in range(COMPLETION):
            log_q, log_p = draft.said.log_probabilities, target.said.log_probabilities
            x, y = (_drawn(log, generator) for log in (log_q, log_p))
            log_qx, log_px = (log.gather(1, x)[:, 0] for log in (log_q, log_p))
            confidence = torch.stack((log_qx.exp(), log_qx, log_q.amax(dim=1).exp()), dim=1)
            steps.append(
                Samples(
                    *(
                        array[goes_on].numpy(force=True)
                        for array in (draft.said.hidden, confidence, log_qx - log_px, kind)
                    )
                )
            )
            either = torch.rand(len(cuts), generator=generator, device=device) < 0.5
            drafts = (kind == _DRAFT) | ((kind == _BOTH) & either)
            following = torch.where(drafts, x[:, 0], y[:, 0])
            following = torch.where(kind == _ORIGINAL, original[:, step], following)
            ends = torch.isin(following, stops) | (is_answer & torch.isin(following, answer_stops))
            goes_on &= (following >= 0) & ~ends
            if step + 1 == COMPLETION or not goes_on.any():
                break
            for rows in (draft, target):
                rows.append(following.clamp(min=0))
    return _joined(steps)


def _drawn(log_probabilities: Tensor, generator: torch.Generator) -> Tensor:
    """A token of each row's distribution: [rows, vocabulary] to int64 [rows, 1]."""
    cumulated = log_probabilities.exp().cumsum(dim=1)
    u = torch.rand(len(cumulated), 1, generator=generator, device=cumulated.device)
    return torch.searchsorted(
        cumulated, u * cumulated[:, -1:]
    )  # torch.multinomial: 12 times slower


def _padded(tokens: list[int]) -> list[int]:
    return tokens[:COMPLETION] + [-1] * (COMPLETION - len(tokens))


def _joined(parts: Sequence[Samples]) -> Samples:
    names = Samples.__slots__
    return Samples(*(np.concatenate([getattr(part, name) for part in parts]) for name in names))


def _endless(number: int, random: np.random.Generator) -> Iterator[int]:
    """The numbers below `number` in a random order, then in another, and so on."""
    while True:
        yield from random.permutation(number).tolist()
