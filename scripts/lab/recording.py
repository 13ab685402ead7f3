"""Training from a recording: texts of the target, and what both models gave to their tokens.

Speculative decoding gives texts of the target's distribution whatever the actions are (QSV Prop.
1). So a recorded text can be taken for the answer of every episode: a drafted token and the text's
token y are the same with probability min(1, q̂(y)/p(y)), for Pr[drafted and accepted y] is
min(q̂(y), p(y)) and Pr[y] is p(y). Taken over texts, the expected number of accepted tokens is that
of QSV Eq. 14. No model runs in training, at any length and resolution.
"""

from dataclasses import dataclass, replace
from itertools import pairwise
from pathlib import Path
from typing import Any, Self
from zipfile import BadZipFile

import numpy as np
from numpy.typing import NDArray

from dragonrt.control.policies import Action, ControlState
from dragonrt.errors import TrainingError
from scripts.lab.course import Course, IterationCosts, Transition, estimated_accepted

_EPISODE_STREAM = 1  # keeps an episode's numbers apart from other uses of its seed


@dataclass(frozen=True, slots=True)
class RecordedText:
    """One text of N tokens at R resolutions.

    `p` float64 [N]: what the target's distribution, as it is sampled from, gave to each token;
    `confidence` float64 [N]: what the draft's gave to it; `likeliest` float64 [N]: the most that
    the draft gave to any token there, before the sampler; `q` float64 [N, R]: what it gave to the
    text's token as each resolution sends it; `overlap` float64 [N, R]: Σ min(p, q̂), the probability
    that a token drafted there is accepted; `bits` int64 [N, R]: what the distribution and a token
    drafted from it take.
    """

    p: NDArray[np.float64]
    confidence: NDArray[np.float64]
    likeliest: NDArray[np.float64]
    q: NDArray[np.float64]
    overlap: NDArray[np.float64]
    bits: NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class PairRecording:
    """Texts of `target` with what `draft` gave, sent with a codec at `resolutions`."""

    draft: str
    target: str
    codec: str
    resolutions: tuple[int, ...]
    vocabulary: int
    texts: tuple[RecordedText, ...]

    def split(self) -> tuple[Self, Self]:
        """Two thirds of its texts, and the rest, to be held out."""
        cut = 2 * len(self.texts) // 3
        return replace(self, texts=self.texts[:cut]), replace(self, texts=self.texts[cut:])

    def save(self, path: Path) -> None:
        """Write it as .npz. Raises TrainingError if that cannot be done."""
        arrays: dict[str, Any] = {
            name: np.concatenate([getattr(text, name) for text in self.texts])
            for name in RecordedText.__slots__
        }
        arrays["ends"] = np.cumsum([len(text.p) for text in self.texts])
        for name in ("draft", "target", "codec", "resolutions", "vocabulary"):
            arrays[name] = np.array(getattr(self, name))
        try:
            with path.open("wb") as file:
                np.savez_compressed(file, **arrays)
        except OSError as error:
            raise TrainingError(f"cannot write the recording {path}: {error.strerror}") from None

    @classmethod
    def load(cls, path: Path) -> Self:
        """What `save` wrote. Raises TrainingError for anything else."""
        try:
            with path.open("rb") as file, np.load(file, allow_pickle=False) as archive:
                arrays: dict[str, Any] = dict(archive)
            ends = [0, *arrays["ends"].tolist()]
            texts = tuple(
                RecordedText(*(arrays[name][start:end] for name in RecordedText.__slots__))
                for start, end in pairwise(ends)
            )
            draft, target, codec = (str(arrays[name]) for name in ("draft", "target", "codec"))
            resolutions = tuple(arrays["resolutions"].tolist())
            return cls(draft, target, codec, resolutions, int(arrays["vocabulary"]), texts)
        except OSError as error:
            raise TrainingError(f"cannot read the recording {path}: {error.strerror}") from None
        except (ValueError, KeyError, TypeError, AttributeError, EOFError, BadZipFile):
            raise TrainingError(
                f"{path} is not a recording of two models: give another name to make one"
            ) from None


class RecordedEnvironment:
    """Episodes over the texts of a recording; their seed chooses the text and the uplink's course.

    Tokens drafted behind a refused one take the bits of the text's own positions there, for what
    they were drafted from is not recorded.
    """

    def __init__(self, recording: PairRecording, costs: IterationCosts) -> None:
        self._recording = recording
        self._costs = costs
        self._columns = {one: column for column, one in enumerate(recording.resolutions)}
        self._longest = max(len(text.p) for text in recording.texts)

    def reset(self, seed: int) -> ControlState:
        """Begin the text and the course of the uplink that have this number."""
        self._generator = np.random.default_rng((seed, _EPISODE_STREAM))
        texts = self._recording.texts
        self._text = texts[int(self._generator.integers(len(texts)))]
        self._course = Course(self._costs, seed)
        self._position = 0
        return self._state

    @property
    def _state(self) -> ControlState:
        left = self._text.likeliest[self._position :]
        return self._course.state(float(left[0]) if left.size else 1.0)

    def step(self, action: Action) -> Transition:
        """One block over the text; a text that is over ends the block like a stop token."""
        text, column, start = self._text, self._columns[action.resolution], self._position
        left = len(text.p) - start
        length = min(action.length, self._longest - start)
        p, q = text.p[start : start + length], text.q[start : start + length, column]
        stands = np.minimum(1.0, q / p)
        refused = np.flatnonzero(self._generator.random(len(stands)) >= stands)
        accepted = int(refused[0]) if refused.size else len(stands)
        whole = accepted == left  # to its last token: nothing was drafted behind it
        drafted = left if whole else length
        at = np.minimum(np.arange(start, start + drafted), len(text.p) - 1)
        shown = text.confidence[start : start + min(accepted + 1, len(stands))].tolist()
        bits = float(text.bits[at, column].sum())
        seconds = self._course.iteration(drafted, bits, accepted, shown)
        tokens = accepted if whole else accepted + 1
        self._position = start + tokens
        expected = 1 + estimated_accepted(stands, text.overlap[start : start + length, column])
        done = self._position == len(text.p)
        return Transition(self._state, expected / seconds, tokens, seconds, done)
