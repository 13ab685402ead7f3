"""What runs in vLLM's workers: it keeps logits and hidden states of marked requests.

A request with the argument KEY is marked. Workers may be other processes, so the backend asks by
`collective_rpc` for what they keep.
"""

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor
from typing_extensions import override
from vllm.v1.sample.logits_processor import BatchUpdate, LogitsProcessor
from vllm.v1.sample.logits_processor.builtin import process_dict_updates

from dragonrt.backends.vllm_.engine import KEY

Row = tuple[Tensor, Tensor]
"""Log-probabilities float32 [vocabulary], and the input of the output layer [hidden size]."""

_kept: dict[int, Row] = {}
_hidden: list[Tensor] = []


class RowKeeper(LogitsProcessor):  # type: ignore[misc]  # it has no types
    """Keeps the rows of a forward's marked requests, and changes none."""

    def __init__(self, vllm_config: Any, device: torch.device, is_pin_memory: bool) -> None:
        self._marked: dict[int, int] = {}  # by place in the batch

    @override
    def is_argmax_invariant(self) -> bool:
        return False  # else greedy sampling leaves it out

    @override
    def update_state(self, batch_update: BatchUpdate | None) -> None:
        process_dict_updates(
            self._marked, batch_update, lambda of, *_: (of.extra_args or {}).get(KEY)
        )

    @override
    def apply(self, logits: Tensor) -> Tensor:
        # A request that has read a part of its prompt has a row, too: a later one replaces it.
        if self._marked:
            places = list(self._marked)
            log_p = logits[places].float().log_softmax(-1)
            hidden = _hidden[0][places].float()
            rows = zip(self._marked.values(), log_p, hidden, strict=True)
            _kept.update({key: (of, state) for key, of, state in rows})
        return logits


class WorkerExtension:
    """Methods that vLLM adds to its workers (`worker_extension_cls`)."""

    model_runner: Any

    def keep_hidden(self) -> None:
        """Keep the input of the output layer of each forward from now on."""
        model = self.model_runner.get_model()
        compute = model.compute_logits

        def computed(hidden: Tensor, *arguments: Any, **options: Any) -> Any:
            _hidden[:] = [hidden]
            return compute(hidden, *arguments, **options)

        model.compute_logits = computed

    def pair_lone_rows(self) -> None:
        """Let CPUs multiply a lone row as two: oneDNN's product of one sums in another order."""

        def paired(linear: Callable[..., Tensor]) -> Callable[..., Tensor]:
            def multiplied(x: Tensor, *arguments: Any, **options: Any) -> Tensor:
                pair = torch.cat([x, x]) if len(x) == 1 else x
                return linear(pair, *arguments, **options)[: len(x)]

            return multiplied

        for layer in self.model_runner.get_model().modules():
            if hasattr(layer, "cpu_linear"):
                layer.cpu_linear = paired(layer.cpu_linear)

    def take_rows(self, keys: Sequence[int]) -> list[Row] | None:
        """Return the rows of these requests, if this worker has them, and forget all."""
        found = [_kept[key] for key in keys] if all(key in _kept for key in keys) else None
        _kept.clear()
        return found
