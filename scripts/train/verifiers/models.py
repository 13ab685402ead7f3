"""Many texts at once: both models of a pair one token further along a batch of prefixes."""

import inspect
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, Union

import torch
from torch import Tensor

from dragonrt.backends.model import LanguageModel
from dragonrt.backends.prompt import PromptFormat, prompt_format
from dragonrt.backends.torch_.checkpoint import Checkpoint, load_checkpoint
from dragonrt.backends.transformers_.tokenizer import TransformersTokenizer
from dragonrt.errors import TrainingError
from dragonrt.side import TorchDevice

_Model = Union["BatchedModel", LanguageModel]


class RowOutputs(NamedTuple):
    """What a model predicts after the last token of every row."""

    log_probabilities: Tensor  # float32 [rows, vocabulary]
    hidden: Tensor  # float32 [rows, hidden], what the output layer read


class BatchedModel:
    """A transformers model that reads rows of different texts, shorter ones padded on the left."""

    def __init__(self, name: str, checkpoint: Checkpoint) -> None:
        self.name = name
        self.fingerprint = checkpoint.fingerprint
        self._tokenizer = TransformersTokenizer(checkpoint.tokenizer)
        self.tokenizer_fingerprint = self._tokenizer.fingerprint
        self.prompt: PromptFormat = prompt_format(self._tokenizer)
        self._model = checkpoint.model
        accepted = inspect.signature(self._model.forward).parameters
        self._takes_positions = "position_ids" in accepted
        self._options = {"logits_to_keep": 1} if "logits_to_keep" in accepted else {}
        self._read = torch.empty(0)
        self._model.get_output_embeddings().register_forward_pre_hook(self._notice)

    @classmethod
    def load(cls, name: str, on: TorchDevice = "auto") -> "BatchedModel":
        """Load it in float32, the precision whose hidden states a verifier is trained on.

        Raises ModelError as `load_checkpoint` does.
        """
        return cls(name, load_checkpoint(name, on, "float32"))

    @property
    def device(self) -> torch.device:
        """Where it runs."""
        place: torch.device = self._model.device
        return place

    @property
    def vocabulary(self) -> int:
        """The size of a distribution."""
        return int(self._model.get_output_embeddings().weight.shape[0])

    @property
    def stop_tokens(self) -> tuple[int, ...]:
        """Tokens behind which a text does not go on."""
        ids = self._model.generation_config.eos_token_id
        return tuple(ids) if isinstance(ids, list) else () if ids is None else (int(ids),)

    @property
    def answer_stops(self) -> tuple[int, ...]:
        """Tokens that end an answer: those, and what the prompt's form ends it with."""
        written = [self.encode(stop) for stop in self.prompt.template.stops]
        return self.stop_tokens + tuple(tokens[0] for tokens in written if len(tokens) == 1)

    def encode(self, text: str) -> list[int]:
        """The tokens of a text, none added."""
        return self._tokenizer.encode(text)

    def read(self, prefixes: Sequence[Sequence[int]]) -> "BatchedTexts":
        """Rows that have read these prefixes, none of them empty."""
        return BatchedTexts(self, prefixes)

    def forward(self, tokens: Tensor, mask: Tensor, cache: Any) -> tuple[RowOutputs, Any]:
        """Run tokens [rows, n] whose mask [rows, columns] covers the cache too; the new cache."""
        options: dict[str, Any] = dict(self._options)
        if self._takes_positions:
            positions = (mask.cumsum(dim=1) - 1).clamp(min=0)
            options["position_ids"] = positions[:, -tokens.shape[1] :]
        output = self._model(
            input_ids=tokens, attention_mask=mask, past_key_values=cache, use_cache=True, **options
        )
        log_probabilities = output.logits[:, -1].float().log_softmax(-1)
        return RowOutputs(log_probabilities, self._read[:, -1].float()), output.past_key_values

    def _notice(self, _output_layer: Any, inputs: tuple[Tensor, ...]) -> None:
        self._read = inputs[0]


class BatchedTexts:
    """Texts of a batch that grow by one token each at a time."""

    def __init__(self, model: BatchedModel, prefixes: Sequence[Sequence[int]]) -> None:
        longest = max(map(len, prefixes))
        padded = [[0] * (longest - len(prefix)) + list(prefix) for prefix in prefixes]
        masked = [[0] * (longest - len(prefix)) + [1] * len(prefix) for prefix in prefixes]
        self._model = model
        self._mask = torch.tensor(masked, device=model.device)
        self.said, self._cache = model.forward(
            torch.tensor(padded, device=model.device), self._mask, None
        )

    def append(self, tokens: Tensor) -> None:
        """Go on by these tokens [rows]; `said` is then what follows them."""
        self._mask = torch.nn.functional.pad(self._mask, (0, 1), value=1)
        self.said, self._cache = self._model.forward(tokens[:, None], self._mask, self._cache)


@dataclass(frozen=True, slots=True)
class BatchedPair:
    """A draft model and its target. Raises TrainingError if their tokens do not mean the same."""

    draft: BatchedModel
    target: BatchedModel

    def __post_init__(self) -> None:
        require_same_tokens(self.draft, self.target)


def require_same_tokens(draft: _Model, target: _Model) -> None:
    """Raise TrainingError unless the distributions of two models are over the same tokens."""
    if draft.tokenizer_fingerprint != target.tokenizer_fingerprint:
        raise TrainingError(
            f"{draft.name} and {target.name} have different tokenizers: choose a pair with one"
        )
    if draft.vocabulary != target.vocabulary:
        raise TrainingError(
            f"{draft.name} has distributions over {draft.vocabulary} tokens, {target.name} over "
            f"{target.vocabulary}: choose a pair of one size"
        )
