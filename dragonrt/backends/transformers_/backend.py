"""Implements the interface of a backend on a causal language model of transformers."""

import inspect
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import torch
import transformers
from jinja2 import TemplateError
from numpy.typing import NDArray
from torch import Tensor
from transformers import DynamicCache
from typing_extensions import override

from dragonrt.backends.backend import (
    Backend,
    Feed,
    ModelInfo,
    Preempted,
    RowLogits,
    Tokenizer,
    vocabulary_fingerprint,
)
from dragonrt.backends.resources import KvPool
from dragonrt.backends.transformers_.kv_cache import DocumentKV, Geometry, LayerShape, PaddedKvCache
from dragonrt.errors import ModelError

_ATTENTION = {"full_attention", "sliding_attention", "chunked_attention"}
_PROMPT_PIECE = 64  # a prompt's bits depend on how it is cut: always in the same way
_CONTEXT = ("max_position_embeddings", "seq_length", "max_seq_len")


class TransformersTokenizer(Tokenizer):
    """A Tokenizer that wraps a tokenizer of the package transformers."""

    def __init__(self, tokenizer: Any) -> None:
        self._tokenizer = tokenizer
        self.is_chat = bool(tokenizer.chat_template)
        bos = tokenizer.bos_token_id
        self.start = tokenizer.bos_token if bos is not None and bos in tokenizer.encode("") else ""

    @property
    def fingerprint(self) -> str:
        """Return the vocabulary's SHA-256: only models with equal ones can mix distributions."""
        backend = getattr(self._tokenizer, "backend_tokenizer", None)
        kind = "slow" if backend is None else backend.decoder.__getstate__().decode()
        for mark, name in (("ByteFallback", "sentencepiece"), ("ByteLevel", "byte-level")):
            kind = name if mark in kind else kind
        return vocabulary_fingerprint(kind, self._tokenizer.get_vocab())

    @override
    def encode(self, text: str) -> list[int]:
        tokens: list[int] = self._tokenizer.encode(text, add_special_tokens=False)
        return tokens

    @override
    def decode(self, tokens: Sequence[int]) -> str:
        text: str = self._tokenizer.decode(
            list(tokens), skip_special_tokens=True, clean_up_tokenization_spaces=False
        )
        return text

    @override
    def chat(self, messages: Sequence[Mapping[str, str]]) -> str:
        try:
            rendered: str = self._tokenizer.apply_chat_template(
                messages,
                tokenize=False,
                add_generation_prompt=True,
                enable_thinking=False,  # of Qwen3 and SmolLM3; other templates do not read it
            )
        except TemplateError as error:
            raise ModelError(f"the model's chat template refuses the messages: {error}") from error
        return rendered


class TorchLogits(RowLogits):
    """RowLogits in torch: log-probabilities, float32 [rows, vocabulary]; `hidden` [rows, size]."""

    def __init__(self, log_probabilities: Tensor, hidden: Tensor) -> None:
        self._log_probabilities, self._hidden = log_probabilities, hidden

    @override
    def mixed(self, log_weights: NDArray[np.float32]) -> NDArray[np.float32]:
        with torch.inference_mode():
            logs = torch.from_numpy(log_weights)[:, None].to(self._log_probabilities.device)
            mixed = (self._log_probabilities + logs).exp_().sum(dim=0)
        return mixed.numpy(force=True)

    @override
    def log_probabilities(self, tokens: NDArray[np.int64]) -> NDArray[np.float32]:
        places = torch.from_numpy(tokens).to(self._log_probabilities.device)
        return self._log_probabilities.index_select(1, places).numpy(force=True)

    @override
    def probability(self, token: int) -> NDArray[np.float64]:
        return np.exp(self._log_probabilities[:, token].numpy(force=True).astype(np.float64))

    @override
    def hidden(self) -> NDArray[np.float32]:
        return self._hidden.float().numpy(force=True)

    @override
    def copy(self) -> "TorchLogits":
        return TorchLogits(self._log_probabilities.clone(), self._hidden.clone())


class TransformersBackend(Backend):
    """The Backend that runs a model of transformers, with one forward for each feed of a call.

    A feed is the tokens that one answer or document appends to its rows. The last bits of its
    logits depend on how many tokens and rows it has, so `info.exact_blocks` is false.
    """

    def __init__(self, model: Any, tokenizer: TransformersTokenizer, fingerprint: str) -> None:
        """Wrap a model. Raises ModelError if it keeps a state that cannot be truncated."""
        kind = model.config.model_type
        kinds = set(getattr(model.config, "layer_types", None) or ())
        if getattr(model, "_is_stateful", False) or not kinds <= _ATTENTION:
            raise ModelError(
                f"{kind} keeps a recurrent state, which cannot be cut back to an earlier token: "
                "use a model with attention only"
            )
        self.tokenizer, self.pool = tokenizer, KvPool()
        self._model = model
        self._accepted = inspect.signature(model.forward).parameters
        self._hidden: Tensor | None = None
        output_layer = model.get_output_embeddings()
        if output_layer is None:
            raise ModelError(f"{kind} has no output layer: use another model")
        output_layer.register_forward_pre_hook(self._notice)
        self._geometry = geometry = self._measure()
        ends = model.generation_config.eos_token_id
        ends = model.config.eos_token_id if ends is None else ends
        on_cuda = geometry.device.type == "cuda"
        self.info = ModelInfo(
            parameters=int(model.num_parameters()),
            fingerprint=fingerprint,
            tokenizer_fingerprint=tokenizer.fingerprint,
            stop_tokens=tuple(ends) if isinstance(ends, list) else () if ends is None else (ends,),
            vocabulary=geometry.vocabulary,
            context_length=geometry.context_length,
            device=geometry.device.type,
            device_memory=int(torch.cuda.mem_get_info()[1]) if on_cuda else None,
            dtype=str(model.dtype).removeprefix("torch."),
            version="hub 3",
            engine=f"transformers {transformers.__version__}, torch {torch.__version__}",
            exact_blocks=False,
            prompt_piece=_PROMPT_PIECE,
        )

    @override
    def load(self, arrays: Mapping[str, NDArray[Any]]) -> DocumentKV:
        return DocumentKV.from_arrays(arrays)

    @override
    def empty(self) -> DocumentKV:
        shapes, dtype = self._geometry.layers, self._geometry.dtype
        return DocumentKV(
            tuple(torch.empty(each.heads, 0, each.key_dim, dtype=dtype) for each in shapes),
            tuple(torch.empty(each.heads, 0, each.value_dim, dtype=dtype) for each in shapes),
        )

    @override
    def open(self, documents: Sequence[Any], capacity: int) -> PaddedKvCache:
        geometry = self._geometry
        sizes = [(each.heads, each.key_dim) for each in geometry.layers]
        sizes += [(each.heads, each.value_dim) for each in geometry.layers]
        for each in documents:
            parts = each.keys + each.values
            found = [(part.shape[0], part.shape[2]) for part in parts]
            if found != sizes or parts[0].dtype != geometry.dtype:
                raise ModelError("a document's stored KV was made by another model: re-index it")
        with torch.inference_mode():
            return PaddedKvCache(geometry, documents, capacity, self.pool)

    @override
    def forward(self, feeds: Sequence[Feed]) -> list[list[TorchLogits] | None]:
        with torch.inference_mode():
            return [self._run(feed) for feed in feeds]

    def _run(self, feed: Feed) -> list[TorchLogits] | None:
        """Run one feed. Between the last layer and the logits no preemption is checked."""
        device, padding = self._geometry.device, feed.rows.padding
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
                past_key_values=feed.rows.cache_for_forward(start, feed.preemption),
                use_cache=True,
                **options,
            ).logits
        except Preempted:
            return None
        hidden = self._take_hidden()
        if not feed.every:
            logits, hidden = logits[:, -1:], hidden[:, -1:]
        log_p = logits.float().log_softmax(-1)
        return list(map(TorchLogits, log_p.unbind(1), hidden.unbind(1)))

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
