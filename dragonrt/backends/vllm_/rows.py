"""Keep the predictions and hidden states of requests, inside vLLM's workers.

A row is the prediction after one token. A request carries a key, and how many rows to keep.
"""

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor

from dragonrt.backends.vllm_.engine import KEY

Row = tuple[Tensor, Tensor]
"""Log-probabilities float32 [vocabulary], and the input of the output layer [hidden size]."""

_kept: dict[int, list[Row]] = {}
_SAMPLED = 64
"""Tokens of which vLLM samples one, which nobody reads: it need not search them all."""


class WorkerExtension:
    """Methods that vLLM adds to its workers: they keep predictions until the backend takes them."""

    model_runner: Any

    def keep_rows(self) -> None:
        """Patch the loaded model to keep each request's newest predictions until `take_rows`."""
        runner, states = self.model_runner, list[Tensor]()
        model, forward = runner.get_model(), runner._model_forward
        compute = model.compute_logits

        def forwarded(*arguments: Any, **options: Any) -> Any:
            states[:] = [forward(*arguments, **options)]
            return states[0]

        def computed(hidden: Tensor, *arguments: Any, **options: Any) -> Any:
            names, ends = runner.input_batch.req_ids, runner.query_start_loc.np.tolist()
            if len(names) != len(hidden):  # a rehearsal of vLLM's own
                return compute(hidden, *arguments, **options)
            keys, places, last = list[tuple[int, int]](), list[int](), list[int]()
            for number, name in enumerate(names):
                key, count = runner.requests[name].sampling_params.extra_args[KEY]
                first = max(ends[number], ends[number + 1] - count)
                places += range(first, ends[number + 1])
                keys += [(key, count)] * (len(places) - len(keys))
                last.append(len(places) - 1)
            hidden = states[0][places]
            logits = compute(hidden, *arguments, **options)
            if logits is None:  # of a worker that does not sample
                return None
            # A request that has read a part of its prompt has rows, too: later ones replace them.
            for (key, count), *row in zip(
                keys, logits.float().log_softmax(-1), hidden.float(), strict=True
            ):
                _kept[key] = [*_kept.get(key, []), (row[0], row[1])][-count:]
            return logits[last, :_SAMPLED]

        runner._model_forward, model.compute_logits = forwarded, computed

    def pair_lone_rows(self) -> None:
        """Patch CPU layers to compute a lone token twice, so its bits are as in a larger batch."""

        def paired(linear: Callable[..., Tensor]) -> Callable[..., Tensor]:
            def multiplied(x: Tensor, *arguments: Any, **options: Any) -> Tensor:
                pair = torch.cat([x, x]) if len(x) == 1 else x
                return linear(pair, *arguments, **options)[: len(x)]

            return multiplied

        for layer in self.model_runner.get_model().modules():
            if hasattr(layer, "cpu_linear"):
                layer.cpu_linear = paired(layer.cpu_linear)

    def take_rows(self, keys: Sequence[int]) -> list[list[Row]] | None:
        """Return and forget the predictions of requests; None if another worker computes them."""
        found = [_kept[key] for key in keys] if all(key in _kept for key in keys) else None
        _kept.clear()
        return found
