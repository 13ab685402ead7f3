"""Samples: documents of both sides with questions, and the rows of tokens that they become."""

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from random import Random
from typing import Any, NamedTuple

import torch
from torch import Tensor
from transformers import AutoTokenizer, PreTrainedTokenizerBase

from dragonrt import bundled
from dragonrt.backends.llama_cpp.model_file import base_file
from dragonrt.backends.prompt import READER, prompt_format
from dragonrt.backends.transformers_.backend import TransformersTokenizer
from scripts.bench.reference import transformers_model

UNKNOWN = READER.refusal
DTYPE = torch.bfloat16 if torch.ops.mkldnn._is_mkldnn_bf16_supported() else torch.float32
"""Of products: bfloat16 needs AVX-512."""
_LONGEST = 640  # tokens of a row
_POOL = 96  # readings of which those of like length are put into one batch

Turn = tuple[str, str]  # question, answer


class Branch(NamedTuple):
    """A question after earlier turns, and the cosine that retrieval gives each document for it."""

    turns: list[Turn]
    scores: list[float]


@dataclass(frozen=True, slots=True)
class Reading:
    """Documents of both sides, and questions about them that do not see each other."""

    documents: list[str]
    branches: list[Branch]

    @classmethod
    def read(cls, line: str) -> "Reading":
        """Read what `line` wrote."""
        documents, branches = json.loads(line)
        return cls(documents, [Branch(*branch) for branch in branches])

    def line(self) -> str:
        return json.dumps([self.documents, self.branches], ensure_ascii=False)

    def apart(self) -> list["Reading"]:
        """Return each document alone, with the questions that it is nearest to."""
        return [
            Reading([document], [b for b in self.branches if b.scores[i] == max(b.scores)])
            for i, document in enumerate(self.documents)
        ]


@dataclass(frozen=True, slots=True)
class Row:
    """A document's tokens (branch 0) and those of its questions, a branch each.

    A target is the position before it, its token, and whether it is an answer's first.
    """

    tokens: list[int]
    positions: list[int]
    branches: list[int]
    targets: list[tuple[int, int, bool]]


@dataclass(frozen=True, slots=True)
class Rows:
    """A reading's rows, one a document; all have the same target tokens.

    `scores` [questions][documents] are cosines.
    """

    rows: list[Row]
    scores: list[list[float]]

    @property
    def length(self) -> int:
        return max(len(row.tokens) for row in self.rows)


def encoded(tokenizer: PreTrainedTokenizerBase, reading: Reading) -> Rows | None:
    """Render a reading in the chat prompt without what does not fit; None if nothing is left."""

    def ids(text: str) -> list[int]:
        return list(tokenizer(text, add_special_tokens=False).input_ids)

    prompt = prompt_format(TransformersTokenizer(tokenizer), READER)
    documents = [ids(prompt.document_text("", document)) for document in reading.documents]
    room = _LONGEST - max(map(len, documents))
    asked: list[tuple[list[int], list[int]]] = []
    for branch in reading.branches:
        *earlier, (question, answer) = branch.turns
        asked.append((ids(prompt.question_text(earlier, question)), ids(f"{answer}<|im_end|>")))
        room -= len(asked[-1][0]) + len(asked[-1][1]) - 1
        if room < 0:
            asked.pop()
            break
    scores = [branch.scores for branch in reading.branches[: len(asked)]]
    return Rows([_row(each, asked) for each in documents], scores) if asked else None


def _row(document: list[int], asked: list[tuple[list[int], list[int]]]) -> Row:
    row = Row(list(document), list(range(len(document))), [0] * len(document), [])
    for number, (prompt, answer) in enumerate(asked, 1):
        at, own = len(row.tokens) + len(prompt) - 1, prompt + answer[:-1]
        row.targets.extend((at + j, token, j == 0) for j, token in enumerate(answer))
        row.tokens.extend(own)
        row.positions.extend(range(len(document), len(document) + len(own)))
        row.branches.extend([number] * len(own))
    return row


def read_rows(samples: Path, tokenizer: PreTrainedTokenizerBase) -> list[Rows]:
    """Read what `adapter-samples` wrote."""
    lines = samples.read_text("utf-8").splitlines()
    return [rows for line in lines if (rows := encoded(tokenizer, Reading.read(line)))]


def batches(readings: Sequence[Rows], seed: int, budget: int) -> Iterator[list[Rows]]:
    """Yield readings of like length of at most `budget` positions, without end."""
    r = Random(seed)
    while True:
        order = r.sample(readings, len(readings))
        for begin in range(0, len(order), _POOL):
            groups: list[list[Rows]] = [[]]
            for each in sorted(order[begin : begin + _POOL], key=lambda each: each.length):
                rows = sum(len(other.rows) for other in [*groups[-1], each])
                if groups[-1] and rows * each.length > budget:
                    groups.append([])
                groups[-1].append(each)
            r.shuffle(groups)
            yield from groups


def states(llama: Any, rows: Sequence[Row]) -> Tensor:
    """Return what a Llama's output layer multiplies: [R, T, hidden], padded behind.

    A position sees those before it of branch 0 and of its own branch.
    """
    length = max(len(row.tokens) for row in rows)

    def padded(name: str, value: int) -> Tensor:
        lists = [getattr(row, name) for row in rows]
        return torch.tensor([each + [value] * (length - len(each)) for each in lists])

    branches = padded("branches", -1)
    mine, theirs = branches[:, :, None], branches[:, None, :]
    visible = ((theirs == 0) | (mine == theirs)) & torch.ones(length, length).tril().bool()
    bias = torch.zeros(visible.shape, dtype=llama.dtype).masked_fill_(~visible, -30000.0)
    result: Tensor = llama.model(
        input_ids=padded("tokens", 0),
        position_ids=padded("positions", 0),
        attention_mask=bias[:, None],
        use_cache=False,
    ).last_hidden_state
    return result


def load(base: Path | None, *, adapted: bool = False) -> tuple[Any, PreTrainedTokenizerBase]:
    """Return a Llama in DTYPE without gradients, and its tokenizer: a directory's, or SmolLM2's.

    SmolLM2 has the values of its 4-bit file; `adapted` with the bundled adapter.
    """
    if base is None:
        file = base_file()
        tokenizer = AutoTokenizer.from_pretrained(file.parent, gguf_file=file.name)
    else:
        tokenizer = AutoTokenizer.from_pretrained(base)
    model = transformers_model(str(base or bundled.SMOLLM2), adapted=adapted)
    return model.to(DTYPE).requires_grad_(False), tokenizer
