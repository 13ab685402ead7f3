"""What attackers make of an answer: which question, which document, whether it was read. Pure."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from scripts.papers.dragon.crossing import Seen

EVENTS = 120
"""So many sizes and times, from the question on, are what a question is named by."""

Observed = NDArray[np.float64]
Classifier = Callable[[Observed, Sequence[int], Observed], Sequence[int]]
"""Name the class of each of the last observations, from others and their classes."""


# What somebody on the wire sees.


def features(seen: Sequence[Seen]) -> Observed:
    """Return times and signed sizes of the first EVENTS, then how much there was in all."""
    start_s = seen[0].time_s
    found = np.zeros(2 * EVENTS + 5)
    for place, each in enumerate(seen[:EVENTS]):
        found[2 * place] = each.time_s - start_s
        found[2 * place + 1] = each.size if each.up else -each.size
    up = [each.size for each in seen if each.up]
    down = [each.size for each in seen if not each.up]
    found[-5:] = len(up), len(down), sum(up), sum(down), seen[-1].time_s - start_s
    return found


def events(seen: Sequence[Seen]) -> Observed:
    """Return direction (±1; 0: none), log size and log gap of the first EVENTS: [3, EVENTS]."""
    found, before_s = np.zeros((3, EVENTS)), seen[0].time_s
    for place, each in enumerate(seen[:EVENTS]):
        gap_s, before_s = each.time_s - before_s, each.time_s
        found[:, place] = 1 if each.up else -1, np.log(each.size), np.log(gap_s + 1e-4)
    return found


def forest(observed: Observed, asked: Sequence[int], others: Observed) -> Sequence[int]:
    """Implement Classifier by a random forest, on `features`."""
    from sklearn.ensemble import RandomForestClassifier

    trees = RandomForestClassifier(n_estimators=100, random_state=0).fit(observed, asked)
    return [int(guess) for guess in trees.predict(others)]


def convolutions(observed: Observed, asked: Sequence[int], others: Observed) -> Sequence[int]:
    """Implement Classifier by two layers of convolutions along `events`, trained with Adam."""
    import torch
    from torch import nn

    known, right = np.unique(asked, return_inverse=True)
    middle, scale = observed.mean(0), observed.std(0) + 1e-3  # at each place: most are the same
    x, theirs = (torch.from_numpy((each - middle) / scale).float() for each in (observed, others))
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        net = nn.Sequential(
            *(nn.Conv1d(3, 32, 5, stride=2), nn.ReLU(), nn.Conv1d(32, 32, 5, stride=2), nn.ReLU()),
            *(nn.Flatten(), nn.Dropout(0.3), nn.LazyLinear(len(known))),
        )
        net(x[:1])
        adam = torch.optim.Adam(net.parameters(), 2e-3, weight_decay=1e-4)
        for _ in range(100):
            adam.zero_grad()
            loss = nn.functional.cross_entropy(net(x), torch.from_numpy(right))
            torch.autograd.backward(loss)
            adam.step()
    with torch.inference_mode():
        return [int(known[best]) for best in net.eval()(theirs).argmax(1)]


CLASSIFIERS: Mapping[str, tuple[Callable[[Sequence[Seen]], Observed], Classifier]] = {
    "random forest": (features, forest),
    "times alone": (lambda seen: events(seen)[::2].ravel(), forest),  # after arXiv 2410.17175
    "convolutions": (events, convolutions),
}


def named(
    seen: Sequence[Sequence[Seen]], asked: Sequence[int], folds: int, classifier: str
) -> list[bool]:
    """Return whether that classifier names the question of each observation from the others."""
    from sklearn.model_selection import StratifiedKFold

    observe, classify = CLASSIFIERS[classifier]
    observed, right = np.stack([observe(each) for each in seen]), np.asarray(asked)
    found = np.zeros(len(right), dtype=bool)
    for ours, others in StratifiedKFold(folds, shuffle=True, random_state=0).split(right, right):
        guesses = classify(observed[ours], right[ours].tolist(), observed[others])
        found[others] = np.asarray(guesses) == right[others]
    return [bool(each) for each in found]


# What the cloud makes of the messages.


def membership(crossed: Mapping[int, float], tokens: Iterable[int], known: set[int]) -> float:
    """Return how much of a document crossed: the summed probability of its tokens.

    `known` tokens, such as those of the question, say nothing.
    """
    return sum(crossed.get(token, 0.0) for token in set(tokens) - known)


def guessed(scores: Sequence[float], right: int) -> float:
    """Return the chance that the highest score is that of `right`: among equal ones a draw."""
    best = max(scores)
    return (scores[right] == best) / list(scores).count(best)


def auc(members: Any, others: Any, axis: int = -1) -> Any:
    """Return the chance that a document of the store scores higher than one that is not in it.

    It is vectorised for `intervals.paired`: the samples lie along the last axis.
    """
    ours, theirs = np.asarray(members)[..., None], np.asarray(others)[..., None, :]
    return np.mean((ours > theirs) + 0.5 * (ours == theirs), axis=(-2, -1))
