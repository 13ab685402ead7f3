"""Noise, samplers, codes and verdicts once more, plainly: what the oracles go by (SPEC 0 - 4).

Every distribution is of all V tokens, every choice a loop over them. Nothing is shared with
`dragonrt.sampling` and `dragonrt.distributions`, so a defect there gives another text than here.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from math import comb, exp, fsum
from typing import Any

import numpy as np
from numpy.random import Philox
from numpy.typing import NDArray

from dragonrt.sampling.samplers import Sampler
from dragonrt.side import Side

Probabilities = NDArray[np.floating[Any]]
"""Of all tokens: [V]."""

RACE, DRAFT, ACCEPT, RESAMPLE, CHOICE = 1, 2, 3, 4, 5
_SIDES: dict[Side | None, int] = {None: 0, "device": 1, "cloud": 2}

# Noise: Philox keyed with (seed, purpose and side), from the counter (0, step, 0, 0) on.


def _words(seed: int, purpose: int, side: Side | None, step: int, count: int) -> list[int]:
    key = np.array((seed, 256 * purpose + _SIDES[side]), np.uint64)
    counter = np.array((0, step, 0, 0), np.uint64)
    words: list[int] = Philox(key=key, counter=counter).random_raw(count).tolist()
    return words


def uniform(seed: int, purpose: int, side: Side | None, step: int) -> float:
    """Return a number in [0, 1)."""
    return (_words(seed, purpose, side, step, 1)[0] >> 11) / 2**53


def raced(seed: int, step: int, p: Probabilities) -> int:
    """Return argmax p(x) / E(x), the lowest id of equals (SPEC 1.2)."""
    words = np.array(_words(seed, RACE, None, step, p.size), np.uint64)
    exponentials = -np.log(((words >> np.uint64(12)) + 0.5) / 2**52)
    return int(np.argmax(p / exponentials))


# Samplers.


def _likeliest(p: Probabilities) -> list[int]:
    """The tokens above zero, the likeliest first; ties: the lower id."""
    values = p.tolist()
    return sorted((x for x in range(p.size) if values[x] > 0), key=lambda x: (-values[x], x))


def _head(p: Probabilities, ids: Sequence[int], mass: float) -> list[int]:
    """The first of `ids` up to the one with which they have that mass."""
    total, head = 0.0, list[int]()
    for x in ids:
        head.append(x)
        total += float(p[x])
        if total >= mass:
            break
    return head


def sampled(sampler: Sampler, p: Probabilities) -> NDArray[np.float64]:
    """Return what `sampler` draws from: temperature, top-k, top-p of the rest, min-p. Of sum 1."""
    kept, law = _likeliest(p), np.zeros(p.size)
    if sampler.temperature == 0:
        law[kept[0]] = 1.0
        return law
    heated = (p.astype(np.float64) / float(p.max())) ** (1 / sampler.temperature)
    if sampler.top_k:
        kept = kept[: sampler.top_k]
    kept.sort(key=lambda x: (-heated[x], x))  # what differed in its last bits may be equal now
    if sampler.top_p < 1:
        kept = _head(heated, kept, sampler.top_p * fsum(heated[kept]))
    kept = [x for x in kept if heated[x] >= sampler.min_p]
    law[kept] = heated[kept] / fsum(heated[kept])
    return law


def drawn(p: Probabilities, u: float, listed: Iterable[int] = ()) -> int:
    """Return the token at `u` of cumulated weights `p`: those `listed` first, each by its id."""
    first = sorted(listed)
    order = [*first, *sorted(set(range(p.size)) - set(first))]
    goal, reached, last = u * float(p.sum()), 0.0, order[0]
    for x in order:
        if p[x] > 0:
            reached, last = reached + float(p[x]), x
            if reached > goal:
                break
    return last


def looked_up(texts: Sequence[Sequence[int]], tokens: Sequence[int]) -> tuple[int, Sequence[int]]:
    """Return the longest match of the last 1 to 4 tokens, and what follows where it is first found.

    Sought from the newest place in `tokens` on, then from the first in each of `texts`.
    """
    for length in range(min(4, len(tokens)), 0, -1):
        sought = list(tokens[-length:])
        own = [(tokens, end) for end in reversed(range(length, len(tokens)))]
        for text, end in own + [(x, end) for x in texts for end in range(length, len(x))]:
            if list(text[end - length : end]) == sought:
                return length, text[end:]
    return 0, ()


# Codes: what the other side reconstructs.


@dataclass(frozen=True, slots=True, eq=False)
class Coded:
    """All probabilities, float64 [V], as a code says them; `listed` are the tokens that it names.

    `bits` is what a lattice's or a dense code takes in a block, with a token; `dropped` the mass
    that C-SQS leaves out.
    """

    p: NDArray[np.float64]
    listed: tuple[int, ...]
    bits: int = 0
    dropped: float = 0.0


def coded(name: str, p: Probabilities, *, by_id: bool = False, beta: float | None = None) -> Coded:
    """Return `p` in the code of that name; `by_id` and `beta` are of lattices, whose β moves."""
    family, *arguments = name.split(":")
    match family:
        case "ids":
            return _of_values(p.astype(np.float64))
        case "dense":
            form = np.float16 if arguments == ["fp16"] else np.float32
            bits = 8 * (1 + p.size * np.dtype(form).itemsize) + (p.size - 1).bit_length()
            return _of_values(_relative(p, form), bits=bits)
        case "topp":
            kept = _head(p, _likeliest(p), float(arguments[0]) * fsum(p))
            return _of_values(_relative(_only(p, kept), np.float16))
        case "topk":
            kept = _likeliest(p)[: int(arguments[0])]
            if arguments[1] == "renorm":
                return _of_values(_relative(_only(p, kept), np.float16))
            return _residual(p.astype(np.float64), kept)
        case _:
            return _lattice(family, arguments, p, by_id, beta)


def _only(p: Probabilities, kept: Sequence[int]) -> Probabilities:
    """Zero elsewhere."""
    values = np.zeros_like(p)
    values[kept] = p[kept]
    return values


def _relative(p: Probabilities, form: type[np.floating[Any]]) -> NDArray[np.float64]:
    """Rounded to that format, relative to the largest."""
    rounded: NDArray[np.float64] = (p / p.max()).astype(form).astype(np.float64)
    return rounded


def _of_values(values: NDArray[np.float64], total: float | None = None, bits: int = 0) -> Coded:
    """Of nothing but values, whose sum is `total`."""
    listed = tuple(np.flatnonzero(values).tolist())
    return Coded(values / (fsum(values) if total is None else total), listed, bits)


def _residual(p: NDArray[np.float64], kept: Sequence[int]) -> Coded:
    rest = max(0.0, fsum(p) - fsum(p[kept]))
    scale = max(float(p[kept].max()), rest)
    values = np.zeros(p.size)
    values[kept] = (p[kept] / scale).astype(np.float16)
    listed = tuple(np.flatnonzero(values).tolist())
    left = float(np.float16(rest / scale))
    others = [x for x in range(p.size) if x not in listed]
    total = fsum(values) + left
    values[others] = left / max(1, len(others))
    return Coded(values / total, listed)


def _lattice(
    family: str, arguments: Sequence[str], p: Probabilities, by_id: bool, beta: float | None
) -> Coded:
    """The nearest of the points with whole multiples of 1/ℓ on the set X (SQS Alg. 2)."""
    wide, vocabulary, resolution = p.astype(np.float64), p.size, int(arguments[-1])
    kept, size_bits = list(range(vocabulary)), 0
    if family == "ksqs":
        kept = sorted(kept, key=lambda x: (-wide[x], x))[: int(arguments[0])]
    elif family == "csqs":
        least = float(arguments[0]) if beta is None else beta
        kept = [x for x in kept if wide[x] >= least * fsum(wide)] or [int(wide.argmax())]
        size_bits = (vocabulary - 1).bit_length()
    kept.sort()
    exact = [resolution * float(wide[x]) / fsum(wide[kept]) for x in kept]
    counts = [int(each + 0.5) for each in exact]
    places = range(len(kept))
    errors = [count - each for count, each in zip(counts, exact, strict=True)]
    for place in sorted(places, key=lambda n: (-errors[n], -n))[: max(0, sum(counts) - resolution)]:
        counts[place] -= 1
    for place in sorted(places, key=lambda n: (errors[n], n))[: max(0, resolution - sum(counts))]:
        counts[place] += 1
    values = np.zeros(vocabulary)
    values[kept] = counts
    choices = vocabulary if by_id else np.count_nonzero(values)
    bits = size_bits + (int(choices) - 1).bit_length()
    for states in (comb(vocabulary, len(kept)), comb(resolution + len(kept) - 1, len(kept) - 1)):
        bits += (states - 1).bit_length()
    outside = np.delete(wide, kept)
    sent = _of_values(values, float(resolution))
    return Coded(sent.p, sent.listed, bits, fsum(outside) / fsum(wide))


# Mixtures and verdicts.


def softmax(h: Sequence[float]) -> list[float]:
    """Return exp(h) as parts of 1 (DRAGON Eq. 4)."""
    weights = [exp(each - max(h)) for each in h]
    return [each / fsum(weights) for each in weights]


def mixed(codes: Sequence[Coded], weights: Sequence[float]) -> NDArray[np.float64]:
    """Return Σ w p. The tokens that no code lists share one mass, which is rounded as a whole."""
    mixture = np.zeros(codes[0].p.size)
    for each, weight in zip(codes, weights, strict=True):
        mixture += weight * each.p
    others = sorted(set(range(mixture.size)).difference(*(each.listed for each in codes)))
    mixture[others] = mixture[others] * len(others) / max(1, len(others))
    return mixture


def aggregated(
    seed: int, step: int, device: Coded, cloud: Coded, weights: Sequence[float], drafts: list[int]
) -> int:
    """Return the token of DRAGON's Algorithm 1 (SPEC 1.1), of the device's and cloud's drafts."""
    by_device = uniform(seed, CHOICE, None, step) < 0.5
    side: Side = "device" if by_device else "cloud"
    own, other = (device, cloud) if by_device else (cloud, device)
    x, weight = (drafts[0], weights[1]) if by_device else (drafts[1], weights[0])
    u = uniform(seed, ACCEPT, side, step)
    if own.p[x] <= other.p[x] or u >= weight * (1 - other.p[x] / own.p[x]):
        return x
    excess = np.maximum(other.p - own.p, 0.0)
    if not excess.any():
        return x
    return drawn(excess, uniform(seed, RESAMPLE, side, step), {*own.listed, *other.listed})


def corrected(seed: int, step: int, x: int, q: Probabilities, p: Probabilities) -> int:
    """Return a draft from `q` if it stands, or else a sample of `p` (QSV Eq. 1, 2)."""
    u, excess = uniform(seed, ACCEPT, "cloud", step), np.maximum(p - q, 0.0)
    if p[x] >= q[x] or u < p[x] / q[x] or not excess.any():
        return x
    return drawn(excess, uniform(seed, RESAMPLE, "cloud", step))


def verified(
    seed: int,
    first: int,
    tokens: Sequence[int],
    q: Sequence[Probabilities],
    p: Sequence[Probabilities],
) -> tuple[list[int], int]:
    """Return what a block from step `first` on comes to, and how many of its tokens stand."""
    for place, (x, each) in enumerate(zip(tokens, q, strict=True)):
        decided = corrected(seed, first + place, x, each, p[place])
        if decided != x:
            return [*tokens[:place], decided], place
    return [*tokens, raced(seed, first + len(tokens), p[len(tokens)])], len(tokens)
