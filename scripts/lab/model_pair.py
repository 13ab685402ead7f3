"""A draft and a target model in one process, and recordings of their predictions."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Self

import numpy as np
from numpy.typing import NDArray

from dragonrt.backends.llama_cpp.model_file import base_file
from dragonrt.backends.mixture import Mixture
from dragonrt.backends.model import LanguageModel
from dragonrt.backends.prefix_cache import PrefixCache
from dragonrt.bundled import SMOLLM2
from dragonrt.distributions import Codec, Distribution, Step, codec
from dragonrt.errors import TrainingError
from dragonrt.modes.prefix import TokenPrefix, start_hash
from dragonrt.sampling.noise import Noise, race_at
from dragonrt.sampling.samplers import Sampler
from scripts.lab.prompt import Prompt
from scripts.lab.recording import RecordedText

_START = start_hash(0)  # a reader has one prompt, so its texts need no seed of their own
_TASK_STREAM = 2  # keeps the choice of a task apart from other uses of its seed


@dataclass(frozen=True, slots=True)
class Tasks:
    """Prompts to continue, sampling temperatures, and the most tokens of a continuation."""

    prompts: tuple[Prompt, ...]
    temperatures: tuple[float, ...]
    max_tokens: int

    def choose(self, seed: int) -> tuple[Prompt, Sampler, Noise]:
        """Return the task that `seed` draws: its prompt, its sampler, and its noise."""
        generator = np.random.default_rng((seed, _TASK_STREAM))
        prompt = self.prompts[int(generator.integers(len(self.prompts)))]
        temperature = self.temperatures[int(generator.integers(len(self.temperatures)))]
        return prompt, Sampler(temperature), Noise(int(generator.integers(2**63)))


class AnswerReader:
    """Reads answers to one prompt with a model, to get the model's predictions along them."""

    def __init__(self, model: LanguageModel, prompt: Sequence[int], max_tokens: int) -> None:
        """`max_tokens` is the number of an answer's tokens to make room for at first."""
        rows = model.rows([model.document_kv([])], len(prompt) + max_tokens)
        self._reader = PrefixCache.with_prompt_read(rows, prompt, _START)

    def after(self, answer: Sequence[int], first: int) -> list[Mixture]:
        """Return the predictions after each prefix of `answer` with `first` tokens or more."""
        text = TokenPrefix(_START, answer)
        return self._reader.read(text.tokens, text.hashes, first, hidden=True)


@dataclass(frozen=True, slots=True)
class ModelPair:
    """A draft model and the target model that verifies its drafts.

    Raises TrainingError if their tokenizers or the sizes of their vocabularies differ.
    """

    draft: LanguageModel
    target: LanguageModel

    def __post_init__(self) -> None:
        draft, target = self.draft, self.target
        if draft.tokenizer_fingerprint != target.tokenizer_fingerprint:
            raise TrainingError(
                f"{draft.name} and {target.name} have different tokenizers: choose a pair with one"
            )
        if draft.vocabulary != target.vocabulary:
            raise TrainingError(
                f"{draft.name} has distributions over {draft.vocabulary} tokens, {target.name} "
                f"over {target.vocabulary}: choose a pair of one size"
            )

    @classmethod
    def load(cls, draft: str, target: str, *, adapters: bool = True) -> Self:
        """Load both models, smollm2 with or without the bundled adapter. Raises DragonError."""
        target = target if adapters else without_adapter(target)
        return cls(LanguageModel.load(draft), LanguageModel.load(target))

    def record(
        self, tasks: Tasks, codec_name: str, resolutions: Sequence[int], seeds: Sequence[int]
    ) -> list[RecordedText]:
        """Let the target do the tasks `seeds`; record both models' predictions of its tokens."""
        coder = codec(codec_name, self.target.vocabulary)
        texts = []
        for seed in seeds:
            prompt, sampler, noise = tasks.choose(seed)
            tokens, p = self._answer(prompt, sampler, noise, tasks.max_tokens)
            reader = AnswerReader(self.draft, prompt.tokens, len(tokens))
            said = reader.after(tokens[:-1], 0)
            q = [sampler.dense(one.p) for one in said]
            likeliest = np.array([one.p.max() for one in said], np.float64)
            texts.append(_recorded(tokens, p, q, likeliest, coder, resolutions))
        return texts

    def _answer(
        self, prompt: Prompt, sampler: Sampler, noise: Noise, max_tokens: int
    ) -> tuple[list[int], list[NDArray[np.float64]]]:
        reader = AnswerReader(self.target, prompt.tokens, max_tokens)
        tokens: list[int] = []
        distributions = []
        while len(tokens) < max_tokens and not set(tokens[-1:]) & set(prompt.stops):
            p = sampler.dense(reader.after(tokens, len(tokens))[0].p)
            tokens.append(race_at(noise, len(tokens), Distribution.from_dense(p)))
            distributions.append(p)
        return tokens, distributions


def without_adapter(model: str) -> str:
    """Return the file of smollm2 without the bundled adapter; another model's name unchanged."""
    return str(base_file()) if model == SMOLLM2 else model


def _recorded(
    tokens: Sequence[int],
    p: Sequence[NDArray[np.float64]],
    q: Sequence[NDArray[np.float64]],
    likeliest: NDArray[np.float64],
    coder: Codec,
    resolutions: Sequence[int],
) -> RecordedText:
    given = np.empty((len(tokens), len(resolutions)))
    bits = np.empty(given.shape, np.int64)
    for row, (token, q_t) in enumerate(zip(tokens, q, strict=True)):
        for column, resolution in enumerate(resolutions):
            quantized = coder.quantize(q_t, Step(row, resolution))
            given[row, column] = quantized.distribution.probability(token)
            bits[row, column] = quantized.bits + quantized.token_bits
    stated, confidence = (
        np.array([one[token] for one, token in zip(each, tokens, strict=True)]) for each in (p, q)
    )
    return RecordedText(stated, confidence, likeliest, given, bits)
