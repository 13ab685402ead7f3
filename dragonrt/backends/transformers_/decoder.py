"""Any other decoder-only model, through its own transformers forward.

The forward writes into our cache with a fixed place for every token, so a rejection or a preemption
needs no repair. Documents are padded on the left, the layout that every architecture's masks and
positions support.
"""

import inspect
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional
from transformers import Cache, DynamicCache
from transformers.cache_utils import CacheLayerMixin

from dragonrt.backends.backend import Feed, Preempted, Preemption
from dragonrt.backends.torch_.backend import Geometry, LayerShape, Output
from dragonrt.backends.torch_.document import DocumentKV
from dragonrt.backends.torch_.linear import pack_linear_layers
from dragonrt.errors import ModelError

_ATTENTION = {"full_attention", "sliding_attention", "chunked_attention"}
_CONTEXT = ("max_position_embeddings", "seq_length", "max_seq_len")


class PaddedKvCache:
    """Implements Rows: documents end in the same column, `width`."""

    def __init__(self, geometry: Geometry, documents: Sequence[DocumentKV], capacity: int) -> None:
        lengths = [document.length for document in documents]
        self.width = max(lengths)
        self.padding = self.width - torch.tensor(lengths, device=geometry.device)
        self._layers = [
            _PlacedLayer(len(documents), shape, self.width + capacity, geometry)
            for shape in geometry.layers
        ]
        self._capacity = capacity
        for row, document in enumerate(documents):
            place = slice(self.width - document.length, self.width)
            for layer, *stored in zip(self._layers, document.keys, document.values, strict=True):
                for buffer, part in zip(layer.buffers, stored, strict=True):
                    buffer[row, :, place] = part

    @staticmethod
    def memory(geometry: Geometry, documents: Sequence[DocumentKV], capacity: int) -> int:
        columns = max(document.length for document in documents) + capacity
        sizes = (each.heads * (each.key_dim + each.value_dim) for each in geometry.layers)
        return len(documents) * columns * sum(sizes) * geometry.dtype.itemsize

    @torch.inference_mode()
    def reserve(self, tokens: int) -> None:
        """See `Rows.reserve`: the buffers at least double if they grow."""
        if tokens > self._capacity:
            grown = max(tokens, 2 * self._capacity)
            more = (0, 0, 0, grown - self._capacity)
            for layer in self._layers:
                layer.buffers = [functional.pad(buffer, more) for buffer in layer.buffers]
            self._capacity = grown

    def document(self, row: int, length: int) -> DocumentKV:
        place = slice(self.width, self.width + length)
        keys, values = (
            tuple(layer.buffers[kind][row, :, place].contiguous().cpu() for layer in self._layers)
            for kind in range(2)
        )
        return DocumentKV(keys, values)

    def attached(self, start: int, preemption: Preemption) -> Cache:
        """Return a transformers cache of `start` columns that appends new ones."""
        for layer in self._layers:
            layer.start, layer.preemption = start, preemption
        return Cache(layers=list(self._layers))


class _PlacedLayer(CacheLayerMixin):  # type: ignore[no-untyped-call]  # it has no types
    """One layer's buffers with the interface that attention modules write through.

    Every layer calls `update` once per forward, so preemptions are checked there.
    """

    is_sliding = False

    def __init__(self, rows: int, shape: LayerShape, columns: int, geometry: Geometry) -> None:
        super().__init__()  # type: ignore[no-untyped-call]  # it has no types
        self.is_initialized = True
        self.start = 0
        self.preemption = Preemption()
        # zeros, for masked columns are multiplied by zero and must be finite
        dtype, device = geometry.dtype, geometry.device
        self.buffers = [
            torch.zeros(rows, shape.heads, columns, size, dtype=dtype, device=device)
            for size in (shape.key_dim, shape.value_dim)
        ]

    def lazy_initialization(self, key_states: Tensor, value_states: Tensor) -> None:
        """Do nothing: the buffers are there from the start."""

    def update(
        self, key_states: Tensor, value_states: Tensor, *_args: Any, **_options: Any
    ) -> tuple[Tensor, Tensor]:
        """Store the new columns and return all of them up to the last new one."""
        if self.preemption.requested:
            raise Preempted
        stop = self.start + key_states.shape[2]
        keys, values = (buffer[:, :, :stop] for buffer in self.buffers)
        keys[:, :, self.start :] = key_states
        values[:, :, self.start :] = value_states
        return keys, values

    def get_mask_sizes(self, query_length: int) -> tuple[int, int]:
        """Return how many columns a mask must cover, and the first of them."""
        return self.start + query_length, 0

    def get_seq_length(self) -> int:
        """Return how many columns are stored before this forward."""
        return self.start

    def get_max_length(self) -> int:
        """Return how many columns there is room for."""
        return int(self.buffers[0].shape[2])


class TransformersDecoder:
    """The `Decoder` of a transformers causal language model."""

    version = "hub 2"
    exact_blocks = False  # a foreign forward does not guarantee its bits
    rows = PaddedKvCache

    def __init__(self, model: Any) -> None:
        """Wrap a model. Raises ModelError if it keeps a state that cannot be truncated."""
        kind = model.config.model_type
        kinds = set(getattr(model.config, "layer_types", None) or ())
        if getattr(model, "_is_stateful", False) or not kinds <= _ATTENTION:
            raise ModelError(
                f"{kind} keeps a recurrent state, which cannot be cut back to an earlier token: "
                "use a model with attention only"
            )
        self._model = model
        self._accepted = inspect.signature(model.forward).parameters
        self._hidden: Tensor | None = None
        with torch.inference_mode():
            pack_linear_layers(model)
        output_layer = model.get_output_embeddings()
        if output_layer is None:
            raise ModelError(f"{kind} has no output layer: use another model")
        output_layer.register_forward_pre_hook(self._notice)
        self.geometry = self._measure()

    def forward(self, feeds: Sequence[Feed]) -> list[Output | None]:
        """See `Backend.forward`: one after another."""
        return [self._run(feed) for feed in feeds]

    def _run(self, feed: Feed) -> Output | None:
        """Run one feed. Between the last layer and the logits no preemption is checked."""
        device, padding = self.geometry.device, feed.rows.padding
        start = feed.rows.width + feed.length
        columns = torch.arange(start + len(feed.tokens), device=device)
        options: dict[str, Any] = {}
        if "position_ids" in self._accepted:
            options["position_ids"] = columns[start:] - padding[:, None]
        if "logits_to_keep" in self._accepted and not feed.every:
            options["logits_to_keep"] = 1
        try:
            logits = self._model(
                input_ids=torch.tensor([list(feed.tokens)] * len(padding), device=device),
                attention_mask=(columns >= padding[:, None]).long(),
                past_key_values=feed.rows.attached(start, feed.preemption),
                use_cache=True,
                **options,
            ).logits
        except Preempted:
            return None
        hidden = self._take_hidden()
        if not feed.every:
            logits, hidden = logits[:, -1:], hidden[:, -1:]
        return logits.float().log_softmax(-1), hidden

    def _notice(self, _output_layer: Any, inputs: tuple[Tensor, ...]) -> None:
        self._hidden = inputs[0]

    def _take_hidden(self) -> Tensor:
        """Return the input of the output layer in the last forward."""
        hidden, self._hidden = self._hidden, None
        if hidden is None:
            name = self._model.config.model_type
            raise ModelError(f"{name} does not call its output layer: use another model")
        return hidden

    def _measure(self) -> Geometry:
        config, device = self._model.config.get_text_config(), self._model.device
        probe: Any = DynamicCache()
        token = torch.zeros((1, 1), dtype=torch.long, device=device)
        with torch.inference_mode():
            logits = self._model(input_ids=token, past_key_values=probe, use_cache=True).logits
        self._take_hidden()
        if not probe.layers or any(layer.keys is None for layer in probe.layers):
            raise ModelError(f"{config.model_type} stores no keys and values of its tokens")
        context_length = next(filter(None, (getattr(config, name, 0) for name in _CONTEXT)), 0)
        if not context_length:
            raise ModelError(f"{config.model_type} does not say how many tokens its context holds")
        shapes = [(each.keys.shape, each.values.shape[3]) for each in probe.layers]
        return Geometry(
            layers=tuple(LayerShape(keys[1], keys[3], value_dim) for keys, value_dim in shapes),
            vocabulary=logits.shape[-1],
            context_length=context_length,
            dtype=probe.layers[0].keys.dtype,
            device=device,
        )
