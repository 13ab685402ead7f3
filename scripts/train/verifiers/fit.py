"""Logistic regression: one linear layer by binary cross-entropy, Adam, early stopping."""

from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.nn import functional

LEARNING_RATE = 1e-3
_BATCH = 256
_PATIENCE = 10  # epochs without a better validation loss


@dataclass(frozen=True, slots=True, eq=False)
class Labelled:
    """Features float32 [n, features] and what is to be predicted, float32 [n] from 0 to 1."""

    features: NDArray[np.float32]
    labels: NDArray[np.float32]


@dataclass(frozen=True, slots=True, eq=False)
class LogisticLayer:
    """w float32 [features] and b, the validation loss they have, and the epochs it took."""

    weight: NDArray[np.float32]
    bias: float
    loss: float
    epochs: int

    def probabilities(self, features: NDArray[np.float32]) -> NDArray[np.float64]:
        """σ(w · f + b) of each row."""
        logits = features.astype(np.float64) @ self.weight + self.bias
        result: NDArray[np.float64] = (1 + np.tanh(logits / 2)) / 2
        return result


def fit(
    training: Labelled, validation: Labelled, epochs: int, seed: int, refusal_weight: float = 1.0
) -> LogisticLayer:
    """The layer of the epoch with the least loss on `validation`.

    Loss of a label y and a prediction a: -(y log a + `refusal_weight` · (1 - y) log(1 - a)).
    """
    generator = torch.Generator().manual_seed(seed)
    mean = training.features.mean(axis=0)
    deviation = training.features.std(axis=0) + 1e-6  # a feature that never changes stays 0
    x, y = _tensors(training, mean, deviation)
    held_x, held_y = _tensors(validation, mean, deviation)
    weight = torch.zeros(x.shape[1], requires_grad=True)
    bias = torch.zeros((), requires_grad=True)
    optimizer = torch.optim.Adam((weight, bias), lr=LEARNING_RATE)

    def loss_of(features: Tensor, labels: Tensor) -> Tensor:
        logits = features @ weight + bias
        return (
            labels * functional.softplus(-logits)
            + refusal_weight * (1 - labels) * functional.softplus(logits)
        ).mean()

    best, best_epoch = (float("inf"), weight.detach().clone(), 0.0), 0
    for epoch in range(1, epochs + 1):
        for batch in torch.split(torch.randperm(len(x), generator=generator), _BATCH):
            optimizer.zero_grad()
            batch_loss = loss_of(x[batch], y[batch])
            batch_loss.backward()  # type: ignore[no-untyped-call]  # torch has no types for it
            optimizer.step()
        with torch.no_grad():
            loss = float(loss_of(held_x, held_y))
        if loss < best[0]:
            best, best_epoch = (loss, weight.detach().clone(), bias.item()), epoch
        elif epoch - best_epoch >= _PATIENCE:
            break
    loss, found, offset = best
    plain = found.numpy() / deviation  # so that whoever uses it need not scale its features
    return LogisticLayer(plain, float(offset - plain @ mean), loss, best_epoch)


def _tensors(
    data: Labelled, mean: NDArray[np.float32], deviation: NDArray[np.float32]
) -> tuple[Tensor, Tensor]:
    features = torch.from_numpy((data.features - mean) / deviation)
    return features, torch.from_numpy(data.labels)
