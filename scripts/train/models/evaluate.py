"""Scores of the models: exact answers, agreement."""

import json
from collections.abc import Callable
from pathlib import Path
from random import Random
from typing import Annotated, Any

import torch
from torch import Tensor
from transformers import AutoModelForCausalLM, PreTrainedModel, PreTrainedTokenizerFast

from dragonrt.cli.options import option

from .corpus import Corpus
from .countries import country_facts
from .notes import note
from .prose import real_questions
from .sample import UNKNOWN, Asking, Sample, answering
from .values import read_lines

_SEED = 987654321
_LONGEST = 24  # tokens of an answer
Pair = tuple[str, str]  # prompt, expected answer
Model = tuple[PreTrainedModel, PreTrainedTokenizerFast]


def load(directory: Path) -> Model:
    network: PreTrainedModel = AutoModelForCausalLM.from_pretrained(directory, dtype=torch.float32)
    network.train(False)
    return network, PreTrainedTokenizerFast.from_pretrained(directory)


def question_sets(corpus: Corpus, n: int) -> dict[str, list[Pair]]:
    """Held-out questions of every sort, the same for every model."""
    r = Random(_SEED)
    sorts: dict[str, Callable[[bool, Asking], Sample]] = {
        "notes": lambda held_out, asking: note(r, held_out, asking, 1)
    }
    if corpus.countries:
        sorts["facts"] = lambda held_out, asking: country_facts(r, corpus, held_out, asking, 1)
    if corpus.readings[True]:
        sorts["readings"] = lambda _, asking: real_questions(r, corpus, True, asking, 1)
    cases: tuple[tuple[str, bool, Asking], ...] = (
        ("known forms", False, "answer"),
        ("unseen forms", True, "answer"),
        ("not in the document", False, "unknown"),
    )
    sets = {
        f"{sort}, {case}": [_first_turn(make(held_out, asking)) for _ in range(n)]
        for sort, make in sorts.items()
        for case, held_out, asking in cases
        # People's questions have no forms to be known.
        if (sort, case) != ("readings", "known forms")
    }
    sets["hand-written"] = []
    for line in read_lines("hand_written.txt"):
        document, pair = line.split(" || ")
        question, answer = pair.split(" | ")
        sets["hand-written"].append(_first_turn(answering(document, [(question, answer)])))
    return sets


def _first_turn(sample: Sample) -> Pair:
    (document, _), (question, _), (answer, _) = sample[:3]
    return document + question, answer.strip()


@torch.inference_mode()
def answer(model: Model, prompt: str) -> str:
    """The greedy answer up to the newline."""
    network, tokenizer = model
    tokens = tokenizer(prompt, return_tensors="pt").input_ids
    newline = tokenizer.encode("\n", add_special_tokens=False)[0]
    generated: Tensor = network.generate(  # type: ignore[operator]
        tokens,
        max_new_tokens=_LONGEST,
        do_sample=False,
        eos_token_id=[newline, tokenizer.eos_token_id],
    )
    text = str(tokenizer.decode(generated[0, tokens.shape[1] :], skip_special_tokens=True))
    return text.split("\n")[0].strip()


def score(model: Model, pairs: list[Pair]) -> dict[str, float]:
    answers = [answer(model, prompt) for prompt, _ in pairs]
    n = len(pairs)
    judged = list(zip(answers, pairs, strict=True))
    return {
        "exact": round(sum(got == expected for got, (_, expected) in judged) / n, 3),
        "contains": round(sum(expected in got for got, (_, expected) in judged) / n, 3),
        "unknown": round(sum(got == UNKNOWN for got in answers) / n, 3),
        "copied": round(sum(got in prompt for got, (prompt, _) in judged) / n, 3),
    }


@torch.inference_mode()
def agreement(target: Model, draft: Model, pairs: list[Pair]) -> dict[str, float]:
    """Mean over the tokens of right answers: total variation, and whether the best token is one."""
    distances, same, n = 0.0, 0, 0
    for prompt, expected in pairs:
        before = target[1].encode(prompt)
        tokens = torch.tensor([before + target[1].encode(f" {expected}\n")])
        p, q = (m(tokens).logits[0, len(before) - 1 : -1].softmax(-1) for m, _ in (target, draft))
        distances += 0.5 * float((p - q).abs().sum())
        same += int((p.argmax(-1) == q.argmax(-1)).sum())
        n += len(p)
    return {"total_variation": round(distances / n, 3), "same_best_token": round(same / n, 3)}


def evaluate(
    corpus: Path,
    models: Path,
    *,
    n: Annotated[int, option("Questions of each set.", default="200", low=1)] = 200,
) -> None:
    """Print one JSON object: scores of every dragon-* directory of MODELS.

    Shares of exact answers, of "I don't know." and of copied spans per set of questions; with
    dragon-small and dragon-draft, their agreement.
    """
    sets = question_sets(Corpus.read(corpus), n)
    report: dict[str, Any] = {}
    loaded = {path.parent.name: load(path.parent) for path in models.glob("dragon-*/config.json")}
    for name, model in sorted(loaded.items()):
        report[name] = {kind: score(model, pairs) for kind, pairs in sets.items()}
    if {"dragon-small", "dragon-draft"} <= loaded.keys():
        pair = loaded["dragon-small"], loaded["dragon-draft"]
        report["agreement"] = agreement(*pair, sets["notes, known forms"])
    print(json.dumps(report, indent=1))
