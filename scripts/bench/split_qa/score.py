#!/usr/bin/env python3
"""Score a system's answers to Split-QA: one file, without any import but Python's own.

    python score.py SET.json ANSWERS.json

ANSWERS.json is an object: the id of each question, and the system's text. docs/split-qa.md has the
format of the set and says how a question is judged.
"""

import argparse
import json
import random
import re
import string
import sys
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from itertools import product
from pathlib import Path
from typing import Any

HOMES = {
    "one side": ("device", "cloud"),
    "both sides hold it": ("both",),
    "needs both": ("needs both",),
    "nowhere": ("nowhere",),
}
"""The four kinds of questions, by the `place` of their answers."""
MEASURES = ("right", "wrong", "refused", "parts", "f1")
REFUSALS = ("I don't know", "I do not know", "I cannot answer", "unknown", "not found")
RESAMPLES = 1000

_MARKS = str.maketrans("", "", string.punctuation)
_ARTICLES = re.compile(r"\b(a|an|the)\b")


def normalised(text: str) -> str:
    """Return the text in lower case, without punctuation, articles and extra spaces (SQuAD 1.1)."""
    return " ".join(_ARTICLES.sub(" ", text.lower().translate(_MARKS)).split())


def contains(text: str, answers: Iterable[str]) -> bool:
    """Return whether one of the answers, normalised, stands within the text, as whole words."""
    words = f" {normalised(text)} "
    return any(f" {known} " in words for each in answers if (known := normalised(each)))


def f1(text: str, answers: Iterable[str]) -> float:
    """Return the greatest F1 of the text's words over those of each answer, from 0 to 1.

    An answer without words, such as "The", is right if the text has none either (SQuAD 1.1).
    """
    return max(
        (_f1(normalised(text).split(), normalised(each).split()) for each in answers), default=0.0
    )


def refuses(text: str, *refusals: str) -> bool:
    """Return whether the text begins with a refusal, such as "I don't know."."""
    begins = f"{normalised(text)} "
    return any(begins.startswith(f"{normalised(each)} ") for each in refusals)


def there(text: str, answers: Sequence[Sequence[str]]) -> list[bool]:
    """Return for each part of an answer whether the text has one of its alternatives.

    A single part whose first alternative is yes or no is there if the text begins with that word,
    or if it begins with neither and contains another alternative: the ground.
    """
    first = answers[0][0].lower() if len(answers) == 1 and answers[0] else ""
    if first in ("yes", "no"):
        begins = normalised(text).partition(" ")[0]
        return [begins == first if begins in ("yes", "no") else contains(text, answers[0][1:])]
    return [contains(text, part) for part in answers]


def judged(question: Mapping[str, Any], text: str, *refusals: str) -> dict[str, Any]:
    """Return a text's measures: right, wrong, refused, share of parts, F1.

    Right has every part and no wrong value; where the answer is nowhere, only a refusal is right.
    Wrong is neither right nor a refusal.
    """
    refused = not text.strip() or refuses(text, *refusals)
    nowhere, answers = question["place"] == "nowhere", question["answers"]
    parts = [] if nowhere else there(text, answers)
    spliced = contains(text, question.get("wrong", ()))
    right = refused if nowhere else all(parts) and bool(parts) and not spliced
    return {
        "right": right,
        "wrong": not right and not refused,
        "refused": refused,
        "parts": sum(parts) / len(parts) if parts else 0.0,
        "f1": 0.0 if nowhere else f1(text, map(" ".join, product(*answers))),
    }


def scores(
    questions: Sequence[Mapping[str, Any]], answers: Mapping[str, str], *refusals: str
) -> list[dict[str, Any]]:
    """Return the measures by where the answer is and by form, with bootstrap 95 % intervals."""
    rows = [
        {**each, **judged(each, answers.get(each["id"], ""), *(refusals or REFUSALS))}
        for each in questions
    ]
    tables = []
    for home, places in HOMES.items():
        here = [row for row in rows if row["place"] in places]
        forms = sorted({row["form"] for row in here})
        for form in ("all", *forms) if len(forms) > 1 else forms:
            chosen = [row for row in here if form in ("all", row["form"])]
            tables.append(
                {"answer": home, "form": form, "questions": len(chosen)}
                | {measure: interval(chosen, measure) for measure in MEASURES}
            )
    return tables


def interval(rows: Sequence[Mapping[str, Any]], measure: str) -> dict[str, float]:
    """Return the mean of a measure and its 95 % interval, resampled by group."""
    groups: dict[str, list[float]] = {}
    for row in rows:
        groups.setdefault(row["group"], []).append(float(row[measure]))
    sums = [(sum(group), len(group)) for group in groups.values()]
    drawn, means = random.Random(0), list[float]()
    for _ in range(RESAMPLES):
        sample = drawn.choices(sums, k=len(sums))
        means.append(sum(total for total, _ in sample) / sum(count for _, count in sample))
    means.sort()
    mean = sum(total for total, _ in sums) / len(rows)
    ends = means[round(0.025 * RESAMPLES)], means[round(0.975 * RESAMPLES) - 1]
    return dict(zip(("mean", "low", "high"), (round(x, 4) for x in (mean, *ends)), strict=True))


def _f1(text: Sequence[str], answer: Sequence[str]) -> float:
    if not text or not answer:
        return float(text == answer)
    common = sum((Counter(text) & Counter(answer)).values())
    return 2 * common / (len(text) + len(answer))


def main() -> None:
    """Print a table, then one line of JSON."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("set", type=Path, help="the questions: generate.py wrote them")
    parser.add_argument("answers", type=Path, help="an object: the id of a question, and a text")
    parser.add_argument("--refusal", action="append", default=[], help="how a refusal begins")
    given = parser.parse_args()
    try:
        worlds = json.loads(given.set.read_text("utf-8"))["worlds"]
        questions = [each for world in worlds for each in world["questions"]]
        answers = dict(json.loads(given.answers.read_text("utf-8")))
        missing = [each["id"] for each in questions if each["id"] not in answers]
        if unknown := answers.keys() - {each["id"] for each in questions}:
            sys.exit(f"{given.answers}: no question has the id {min(unknown)}")
        found = scores(questions, answers, *given.refusal)
    except OSError as error:
        sys.exit(f"cannot read {error.filename}: {error.strerror}")
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        sys.exit(f"not of the form that docs/split-qa.md describes: {error!r}")
    print(f"{'answer':20}{'form':12}{'n':>5}" + "".join(f"{each:>20}" for each in MEASURES))
    for row in found:
        cells = ("{mean:.2f} ({low:.2f}-{high:.2f})".format(**row[each]) for each in MEASURES)
        print(f"{row['answer']:20}{row['form']:12}{row['questions']:5}", end="")
        print("".join(f"{cell:>20}" for cell in cells))
    print(json.dumps({"set": given.set.name, "missing": len(missing), "scores": found}))


if __name__ == "__main__":
    main()
