"""The evaluation texts that docs/results are of, made of the public files.

    xquad.en.json          github.com/google-deepmind/xquad
    question.jsonl         github.com/hemingkx/Spec-Bench, data/spec_bench
    test.txt, valid.txt    github.com/pytorch/examples, word_language_model/data/wikitext-2

Of XQuAD and of Spec-Bench they are one half.
"""

import json
from collections.abc import Callable
from hashlib import sha256
from pathlib import Path
from typing import Annotated, Final

from cyclopts import Parameter

from dragonrt.cli.console import output
from dragonrt.errors import DragonError
from retrieval.files import read_text

LARGEST: Final = 2**24  # bytes of a public file
XQUAD_HALF: Final = (
    *(25, 23, 47, 24, 29, 13, 4, 27, 5, 1, 46, 17),
    *(22, 30, 18, 16, 11, 8, 12, 42, 10, 44, 21, 34),
)
"""Numbers of the articles, in their order here."""


def texts(
    folder: Annotated[Path, Parameter(help="Has the public files, and gets the texts.")],
) -> None:
    """Make the evaluation texts of the public files in a folder; that is `--data` then."""
    for name, (public, digest, make) in TEXTS.items():
        path = folder / name
        try:
            text = _made(folder / public, digest, make)
            path.parent.mkdir(exist_ok=True)
            path.write_text(text, encoding="utf-8")
        except OSError as error:
            raise DragonError(f"{error.filename or folder / public}: {error.strerror}") from None
        output.print(f"{path}: as in docs/results", soft_wrap=True, markup=False)


def _made(public: Path, digest: str, make: Callable[[str], str]) -> str:
    """Return the text of that digest. Raises OSError, or DragonError for another public file."""
    try:
        text = make(read_text(public, LARGEST))
    except (ValueError, LookupError, TypeError):  # it has another form
        text = ""
    if sha256(text.encode()).hexdigest() != digest:
        raise DragonError(
            f"{public} is another version than docs/results are of: see docs/artefact.md"
        )
    return text


def xquad_half(public: str) -> str:
    """Return half of the articles: paragraphs with their questions and answers."""
    articles = json.loads(public)["data"]
    return json.dumps(
        [
            {
                "title": articles[number]["title"],
                "paragraphs": [
                    {
                        "text": paragraph["context"],
                        "questions": [
                            {
                                "question": asked["question"],
                                "answers": [answer["text"] for answer in asked["answers"]],
                            }
                            for asked in paragraph["qas"]
                        ],
                    }
                    for paragraph in articles[number]["paragraphs"]
                ],
            }
            for number in XQUAD_HALF
        ],
        ensure_ascii=False,
        indent=1,
    )


def spec_bench_half(public: str) -> str:
    """Return every second conversation: its category and what the user says."""
    rows = [json.loads(line) for line in public.splitlines()][::2]
    kept = ({"category": row["category"], "turns": row["turns"]} for row in rows)
    return "".join(f"{json.dumps(each, ensure_ascii=False)}\n" for each in kept)


TEXTS: Final[dict[str, tuple[str, str, Callable[[str], str]]]] = {
    "xquad-en.dev.json": (
        "xquad.en.json",
        "b66373123348108ec94b16ac409e19130b6d23c7d47f7e020e9f20e6dfca711d",
        xquad_half,
    ),
    "spec-bench.dev.jsonl": (
        "question.jsonl",
        "30b3a09b1c509bf0daaac8fc1bc9d29b10c4e6dfbbc35887329f593c511d4b01",
        spec_bench_half,
    ),
    "wikitext-2/test.txt": (
        "test.txt",
        "d790b833ef8cf03a90db7bf1271b7520b83c45ce07ba3c1a9699df81e239eca0",
        str,
    ),
    "wikitext-2/valid.txt": (
        "valid.txt",
        "f0737ed31fc1329026e95cb8b98e19c2a182c39c240ab909dc31abf2f8af58e8",
        str,
    ),
}
"""By name: the public file, the digest of the text, and how it is made."""
