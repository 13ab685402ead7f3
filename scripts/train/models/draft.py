"""Train a draft: layers cut from a Llama model, which learn what the whole of it says."""

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from random import Random
from typing import Annotated

import torch
import torch.nn.functional as F  # noqa: N812
from cyclopts import Parameter
from torch import Tensor
from transformers import AutoTokenizer

from dragonrt.cli.options import option
from scripts.train.loop import Losses, Schedule, run

from .batches import of_like_length, padded
from .draft_model import Draft
from .draft_samples import copies, read_samples
from .draft_teacher import ANSWER, CHAT, PROMPT, Row, read_rows, tensors_of

_WEIGHTS = {PROMPT: 0.3, ANSWER: 3.0, CHAT: 1.0}
_PROMPTS = 0.2  # of their positions are in the loss
_LABELS = 1.8  # weight of an answer's token where only the text is known, not the target's states
_STATES = 0.2  # weight of the distance between the states
_SHARES = (0.42, 0.13, 0.25, 0.2)  # of chats, answers with states, those without, copies
_POOL = 128  # rows of which those of like length are put into one batch
_ROUNDED = 0.5  # of the schedule, after which weights are rounded as in the file
_MISSED = 3.0  # weight of what a step of speculation rejects, beside the divergence


@Parameter(name="*")
@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """One training run."""

    base: Annotated[Path, option("Checkpoint of the target.", kind="DIR")]
    adapter: Annotated[Path, option("Adapter that the layers begin with.", kind="DIR")]
    file: Annotated[Path, option("GGUF file that the draft is for.", kind="FILE")]
    samples: Annotated[Path, option("What `adapter-samples` wrote.", kind="FILE")]
    rows: Annotated[Path, option("What `draft-samples` wrote.", kind="DIR")]
    out: Annotated[Path, option("Where `draft/NAME-draft.gguf` is written.", kind="DIR")]
    name: Annotated[str, option("The runtime's name of the base.", default="smollm2")] = "smollm2"
    layers: Annotated[tuple[int, ...], option("The base's layers that it begins with.")]
    minutes: Annotated[float, option("Length of the schedule.", default="60")] = 60.0
    steps: Annotated[int | None, option("Its length in steps, instead.", low=1)] = None
    rate: Annotated[float, option("Highest learning rate.", default="0.001")] = 1e-3
    positions: Annotated[int, option("Tokens of a step at most.", default="1100", low=1)] = 1100
    seed: Annotated[int, option("Of the samples' order.", default="1", low=0)] = 1


def draft(settings: Settings) -> None:
    """Train a draft. A stopped run goes on from its saved state, also with more rows."""
    schedule = Schedule(settings.steps, settings.minutes, settings.rate)
    run(partial(_Training, settings), schedule, settings.out / "draft")


class _Training:
    """A draft and its endless batches."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        config = json.loads((settings.base / "config.json").read_text())
        outputs: list[int] = json.loads((settings.rows / "outputs.json").read_text())
        tensors = tensors_of(settings.base, settings.adapter)
        self._draft = Draft(config, tensors, settings.layers, outputs)
        self.parameters = self._draft.parameters
        self._places = {token: place for place, token in enumerate(outputs)}
        self._kinds = [
            [row for path in sorted(settings.rows.glob(f"{kind}*")) for row in read_rows(path)]
            for kind in ("chat", "answers")
        ]
        tokenizer = AutoTokenizer.from_pretrained(settings.base)
        read = read_samples(settings.samples, tokenizer, set())
        self._kinds += [read, copies(read, tokenizer, Random(settings.seed))]
        self._batches: Iterator[list[Row]] | None = None

    def losses(self, step: int, progress: float) -> Losses:
        """Return the divergence from the target, and from halfway on what is rejected, too."""
        r = Random(f"{self._settings.seed}/{step}")
        if self._batches is None:
            self._batches = self._endless(r)
        rows = next(self._batches)
        self._draft.rounds = progress >= _ROUNDED
        states = self._draft.hidden(*padded(rows))
        chosen, labels, aims, weights = [], [], [], []
        far = torch.zeros(())
        for row, mine in zip(rows, states, strict=True):
            if row.states is None:
                known = [(at, self._places[t]) for at, t in row.labels if t in self._places]
                chosen.append(mine[[at for at, _ in known]])
                labels += [place for _, place in known]
                continue
            at = [i for i, k in enumerate(row.kinds) if k != PROMPT or r.random() < _PROMPTS]
            aims.append((mine[at], row.states[at]))
            weights += [_WEIGHTS[row.kinds[i]] for i in at]
            aim = row.states.float()
            distance = (mine[: len(aim)] - aim).square().sum(1) / aim.square().sum(1)
            far = far + distance.sum()
        loss, wrong, output = _STATES * far, 0.0, self._draft.output.T
        if labels:
            said = (torch.cat(chosen) @ output).float()
            loss = loss + _LABELS * F.cross_entropy(said, torch.tensor(labels), reduction="sum")
        weight = torch.tensor(weights)
        if aims:
            ours, theirs = (torch.cat(each) for each in zip(*aims, strict=True))
            said = torch.log_softmax((ours @ output).float(), 1)
            aimed = torch.log_softmax((theirs @ output).float(), 1)
            share = max(0.0, progress - 0.5)
            loss = loss + (_losses(aimed, said, share) * weight).sum()
            differ = (said.argmax(1) != aimed.argmax(1)).float()
            wrong = float((differ * weight).sum() / weight.sum())
        total = float(weight.sum()) + _LABELS * len(labels)
        return Losses(loss / total, wrong, sum(len(row.tokens) for row in rows))

    def _endless(self, r: Random) -> Iterator[list[Row]]:
        """Yield batches of at most `positions` positions, of rows of like length, without end."""
        while True:
            pool = [r.choice(r.choices(self._kinds, _SHARES)[0]) for _ in range(_POOL)]
            yield from of_like_length(pool, r, self._settings.positions)

    def save(self, weights: Sequence[Tensor], directory: Path) -> None:
        """See `Task.save`."""
        directory.mkdir(parents=True, exist_ok=True)
        name = self._settings.name
        path = directory / f"{name}-draft.gguf"
        self._draft.export(weights, path, self._settings.file, name)


def _losses(aimed: Tensor, said: Tensor, share: float) -> Tensor:
    """Return the divergence [S], with a share of what a step of speculation rejects."""
    p = aimed.exp()
    missed = 1 - torch.minimum(p, said.exp()).sum(1)
    return (1 - share) * (p * (aimed - said)).sum(1) + share * _MISSED * missed
