"""Questions with known answers over two sides' documents, and where each answer stands.

A set is the name of one that is made here, or a JSON or TOML file. Of `split_qa/generate.py` it has
worlds; one of SQuAD's format has articles, of which worlds are made. An object without them names
the sides' documents, relative to the file:
{"device": ["notes"], "cloud": ["articles"], "questions": [{"question", "answers", "place"}]}.
"""

import json
import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, get_args

import numpy as np

from dragonrt.errors import DragonError
from retrieval.files import read_text
from scripts.bench.forms import notes
from scripts.bench.split_qa import generate
from scripts.bench.split_qa.score import judged, there

LARGEST = 2**28  # bytes of a set
NOTES, SPLIT_QA = "notes", ("split-qa", "written", "forms")
"""Sets by name: forms that no training saw (`forms`), and Split-QA's written worlds or one."""

Place = Literal["device", "cloud", "both", "needs both", "nowhere"]
"""Which side's documents hold an answer: one side's, both sides', one part each, none."""
PLACES: tuple[Place, ...] = get_args(Place)


@dataclass(frozen=True, slots=True)
class KnownQuestion:
    """A question, the alternatives of each part of its answer, and where these stand.

    Attributes:
        wrong: values that a right answer does not have.
        form: the kind of question, such as a bridge.
        group: what intervals are resampled by: the article.
        source: the file with the answer, or files joined by " + ", where that is known.
    """

    question: str
    answers: tuple[tuple[str, ...], ...]
    place: Place
    group: str
    source: str = ""
    wrong: tuple[str, ...] = ()
    form: str = "question"
    id: str = ""

    @classmethod
    def read(cls, each: Mapping[str, Any]) -> "KnownQuestion":
        """Return the question of a set; texts for answers are alternatives of a single part.

        Raises KeyError, TypeError or ValueError.
        """
        parts = each["answers"]
        if parts and all(isinstance(part, str) for part in parts):
            parts = [parts]
        return cls(
            each["question"],
            tuple(map(tuple, parts)),
            PLACES[PLACES.index(each["place"])],
            each.get("group", each["question"]),
            each.get("source", ""),
            tuple(each.get("wrong", ())),
            each.get("form", "question"),
            each.get("id", each["question"]),
        )

    def judged(self, text: str, *refusals: str) -> dict[str, Any]:
        known = {"place": self.place, "answers": self.answers, "wrong": self.wrong}
        return judged(known, text, *refusals)

    def is_in(self, texts: Sequence[str], files: Sequence[str]) -> bool:
        """Return whether chunks with these texts, of these files, have every part of the answer.

        Of yes and no the files with the ground must be among them.
        """
        if self.answers and self.answers[0] and self.answers[0][0] in ("yes", "no"):
            return set(self.source.split(" + ")) <= {Path(file).name for file in files}
        found = [there(text, self.answers) for text in texts]
        return bool(found and self.answers) and all(map(any, zip(*found, strict=True)))


@dataclass(frozen=True, slots=True)
class World:
    """Both sides' documents and what is asked over them."""

    device: tuple[Path, ...]
    cloud: tuple[Path, ...]
    questions: tuple[KnownQuestion, ...]


def worlds(source: str | Path, folder: Path, seed: int) -> list[World]:
    """Read the set of that name or file and write the documents that it holds below `folder`.

    Raises DragonError for a file of another form.
    """
    if source == NOTES:
        return [_written(folder, notes(seed))]
    if source in SPLIT_QA:
        made = generate.written_worlds()
        return [_written(folder, each) for each in made if source in (SPLIT_QA[0], each["name"])]
    file = Path(source)
    try:
        text = read_text(file, LARGEST)
        loaded = tomllib.loads(text) if file.suffix == ".toml" else json.loads(text)
        if isinstance(loaded, dict) and "questions" in loaded:
            return [_named(loaded, file.parent)]
        if isinstance(loaded, dict) and "worlds" in loaded:
            return [_written(folder, each) for each in loaded["worlds"]]
        return [_written(folder, each) for each in generate.article_worlds(loaded, seed)]
    except OSError as error:
        raise DragonError(f"cannot read {file}: {error.strerror}") from None
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise DragonError(
            f"{file} is no set of questions: it needs a list of articles with paragraphs, worlds, "
            f"or device, cloud and questions ({error!r})"
        ) from None


def chosen(questions: Sequence[KnownQuestion], share: float, seed: int) -> list[KnownQuestion]:
    """Draw that share of the questions, at least one, in their order."""
    count = max(1, round(share * len(questions)))
    drawn = np.random.default_rng(seed).permutation(len(questions))[:count]
    return [questions[i] for i in sorted(drawn)]


def _named(loaded: Mapping[str, Any], base: Path) -> World:
    device, cloud = (tuple(base / each for each in loaded[side]) for side in ("device", "cloud"))
    return World(device, cloud, tuple(map(KnownQuestion.read, loaded["questions"])))


def _written(folder: Path, made: generate.World) -> World:
    """Write a world's documents, a folder a side."""
    for name in (made["name"], *made["device"], *made["cloud"]):
        if Path(name).name != name:
            raise ValueError(f"{name!r} is no name of a file")
    sides = folder / made["name"] / "device", folder / made["name"] / "cloud"
    for side in sides:
        side.mkdir(parents=True)
        for name, text in made[side.name].items():
            (side / name).write_text(text, encoding="utf-8")
    return World((sides[0],), (sides[1],), tuple(map(KnownQuestion.read, made["questions"])))
