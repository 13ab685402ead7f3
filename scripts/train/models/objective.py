"""The training loss: cross entropy, and for a draft model the teacher's whole distribution."""

from collections.abc import Callable
from typing import cast

import torch
import torch.nn.functional as F  # noqa: N812
from torch import Tensor
from transformers import OPTForCausalLM, PreTrainedModel

from .batches import Batch

Loss = Callable[[Batch], tuple[Tensor, Tensor]]
_NORMALIZER_PENALTY = 1e-4  # keeps the logits' normalizer near one in bfloat16


def objective(
    model: PreTrainedModel, teacher: PreTrainedModel | None, teacher_share: float
) -> Loss:
    """A function of a batch that returns the loss and the cross entropies [S] without gradient.

    The teacher's share of the loss is the cross entropy against its distribution, which is the
    Kullback-Leibler divergence up to a constant.
    """

    def loss(batch: Batch) -> tuple[Tensor, Tensor]:
        logits = _logits(model, batch)
        normalizer = torch.logsumexp(logits, -1)
        entropies = normalizer - logits.gather(1, batch.targets[:, None]).squeeze(1)
        total = (entropies * batch.weights).sum() / batch.weights.sum()
        total = total + _NORMALIZER_PENALTY * normalizer.square().mean()
        if teacher is not None:
            with torch.no_grad():
                probabilities = _logits(teacher, batch).softmax(-1)
            distilled = normalizer - (probabilities * logits).sum(-1)
            total = (1 - teacher_share) * total + teacher_share * distilled.mean()
        return total, entropies.detach()

    return loss


def _logits(model: PreTrainedModel, batch: Batch) -> Tensor:
    """Float32 logits [S, V] of the selected positions only."""
    trunk = model.model.decoder if isinstance(model, OPTForCausalLM) else model.model
    with torch.autocast(batch.tokens.device.type, dtype=torch.bfloat16):
        hidden = trunk(
            input_ids=batch.tokens,
            attention_mask=batch.bias,
            position_ids=batch.positions,
            use_cache=False,
        ).last_hidden_state
        chosen = hidden.reshape(-1, hidden.shape[-1]).index_select(0, batch.selected)
        embeddings = cast(Tensor, model.get_input_embeddings().weight)
        return F.linear(chosen, embeddings).float()
