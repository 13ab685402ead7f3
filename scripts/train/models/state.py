"""What a training run needs to go on: weights, Adam's moments and counters, as flat tensors."""

from dataclasses import dataclass
from pathlib import Path

import torch
from safetensors import safe_open
from safetensors.torch import save_file
from torch import Tensor
from transformers import PreTrainedModel

_BETAS = (0.9, 0.95)
_EPSILON = 1e-9
_WEIGHT_DECAY = 0.05


@dataclass(slots=True)
class State:
    """Flat float32 tensors over all parameters, and float64 counters.

    `counters` are the updates since the beginning, the updates and the seconds of the current
    schedule, and the tokens since the beginning.
    """

    weights: Tensor
    mean: Tensor
    variance: Tensor
    decays: Tensor  # 1 where weight decay applies
    counters: Tensor  # [4]

    @classmethod
    def of(cls, model: PreTrainedModel) -> "State":
        """A fresh state with the weights of a model."""
        parameters = list(model.parameters())
        weights = torch.cat([p.detach().reshape(-1) for p in parameters])
        decays = torch.cat([torch.full((p.numel(),), float(p.dim() >= 2)) for p in parameters])
        return cls(
            weights,
            torch.zeros_like(weights),
            torch.zeros_like(weights),
            decays.to(weights.device),
            torch.zeros(4, dtype=torch.float64),
        )

    def share(self) -> None:
        """Move everything into memory that other processes see."""
        for name in self.__slots__:
            getattr(self, name).share_memory_()

    def bind(self, model: PreTrainedModel, gradient: Tensor) -> None:
        """Make a model's parameters and gradients views of the flat tensors."""
        start = 0
        for parameter in model.parameters():
            end = start + parameter.numel()
            parameter.data = self.weights[start:end].view(parameter.shape)
            parameter.grad = gradient[start:end].view(parameter.shape)
            start = end

    def update(self, part: slice, gradient: Tensor, rate: float) -> None:
        """One step of AdamW on a part of the parameters; the counters are the caller's."""
        n = int(self.counters[0]) + 1
        mean, variance, weights = self.mean[part], self.variance[part], self.weights[part]
        mean.mul_(_BETAS[0]).add_(gradient, alpha=1 - _BETAS[0])
        variance.mul_(_BETAS[1]).addcmul_(gradient, gradient, value=1 - _BETAS[1])
        scale = (variance / (1 - _BETAS[1] ** n)).sqrt_().add_(_EPSILON)
        weights.mul_(1 - rate * _WEIGHT_DECAY * self.decays[part])
        weights.addcdiv_(mean / (1 - _BETAS[0] ** n), scale, value=-rate)

    def save(self, path: Path) -> None:
        unfinished = path.with_name(path.name + ".unfinished")
        names = ("weights", "mean", "variance", "counters")
        save_file({name: getattr(self, name).cpu() for name in names}, unfinished)
        unfinished.replace(path)

    def load(self, path: Path) -> None:
        """Take over a saved state of the same model.

        Raises:
            ValueError: the file is of a model of another size.
        """
        with safe_open(path, framework="pt") as stored:
            if stored.get_slice("weights").get_shape() != [self.weights.numel()]:
                raise ValueError(f"{path} is the state of a model of another size")
            for name in stored.keys():  # noqa: SIM118
                getattr(self, name).copy_(stored.get_tensor(name))
