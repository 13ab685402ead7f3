"""Between a file and the model's context no token is lost, whatever the file is full of."""

import random
import string
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from dragonrt.backends.model import LanguageModel
from dragonrt.node.library import Library
from dragonrt.node.process import open_library, update_index
from dragonrt.node.side_settings import SideSettings
from retrieval.documents import load
from retrieval.reader import Reader

Kind = Callable[[random.Random], str]
WORDS = SideSettings("device").chunk_words


@pytest.fixture(scope="module")
def model() -> LanguageModel:
    return LanguageModel.load("dragon-small", "cpu")


def number(rng: random.Random) -> str:
    return str(rng.randrange(10 ** rng.randint(1, 9)))


def word(rng: random.Random) -> str:
    return rng.choice(("ferry", "museum", "Tom's", "quay,", "north", "QX-4312-K", "departures"))


def name(rng: random.Random) -> str:
    return "_".join("".join(rng.choices(string.ascii_letters, k=7)) for _ in range(3)) + "();"


def han(rng: random.Random) -> str:
    return "".join(chr(rng.randrange(0x4E00, 0x9FFF)) for _ in range(rng.randint(1, 60)))


def coded(rng: random.Random) -> str:
    return "".join(rng.choices(string.ascii_letters + string.digits + "+/", k=rng.randint(1, 300)))


def cyrillic(rng: random.Random) -> str:
    return "".join(chr(rng.randrange(0x430, 0x450)) for _ in range(rng.randint(1, 12)))


def wide(rng: random.Random) -> str:
    return "x" + " " * rng.randint(1, 90)


CONTENTS = st.sampled_from([number, word, name, han, coded, cyrillic, wide])
SHAPES = st.sampled_from(["table.md", "rows.csv", "line.txt", "lines.txt", "page.html", "code.md"])


def written(folder: Path, shape: str, kind: Kind, rng: random.Random, columns: int) -> Path:
    """A file of some 3,000 contents, in that shape."""

    def cell() -> str:
        return kind(rng)

    rows = [[cell() for _ in range(columns)] for _ in range(min(400, 3000 // columns))]
    lines = ["\t".join(row) for row in rows]
    if shape == "table.md":
        between = ["|" + " --- |" * columns]
        table = ["| " + " | ".join(row) + " |" for row in rows]
        lines = ["# A table of the harbour", "", table[0], *between, *table[1:]]
    elif shape == "rows.csv":
        lines = [",".join(row) for row in rows]
    elif shape == "line.txt":
        lines = [" ".join(lines)]
    elif shape == "page.html":
        lines = ["<h1>Harbour</h1><table>", *("<tr><td>" + "<td>".join(row) for row in rows)]
    elif shape == "code.md":
        lines = ["# Code", "```", *("    " * rng.randint(0, 9) + line for line in lines), "```"]
    path = folder / shape
    path.write_text("\n".join(lines))
    return path


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("whole")


@pytest.fixture(scope="module")
def confined() -> Iterator[Reader]:
    with Reader(words=WORDS) as reader:
        yield reader


@pytest.mark.slow
@settings(max_examples=60, deadline=None, suppress_health_check=list(HealthCheck))
@given(SHAPES, CONTENTS, st.integers(0, 2**32), st.integers(1, 60))
def test_no_token_is_lost(
    model: LanguageModel,
    confined: Reader,
    folder: Path,
    shape: str,
    kind: Kind,
    seed: int,
    columns: int,
) -> None:
    path = written(folder, shape, kind, random.Random(seed), columns)
    text = load(path).text
    _, pieces = confined.read(path, 0)
    assert pieces
    ends = [0, *(end for *_, end, _ in pieces)]
    starts = [*(start for _, _, start, _, _ in pieces), len(text)]
    assert all(not text[e:s].strip() for e, s in zip(ends, starts, strict=True))
    for piece, title, start, end, _ in pieces:
        assert piece.endswith(text[start:end])
        read = model.encode(model.prompt.document_text(title, piece))
        assert len(read) <= model.context_length // 2


def library_of(documents: Path, model: LanguageModel, words: int) -> tuple[Library, list[str]]:
    side = SideSettings(
        "device",
        model="dragon-small",
        documents=(documents,),
        index=documents / ".index",
        chunk_words=words,
    )
    update_index(side)
    library, said = open_library(side, model), list[str]()
    assert library is not None
    library.on_notice = said.append
    return library, said


def test_a_table_of_26_rows_is_read_whole(tmp_path: Path, model: LanguageModel) -> None:
    numbers = range(1000, 1026)
    rows = [f"| QX-{n}-K | {n * 3.75:.2f} | {n % 12 + 1}:45 | pier {n} |" for n in numbers]
    head = "| code | price | departs | from |\n|---|---|---|---|\n"
    (tmp_path / "table.md").write_text("# Prices\n\n" + head + "\n".join(rows))
    library, said = library_of(tmp_path, model, WORDS)
    chunks = list(library.retriever.index.chunks())
    read = [model.decode(library.tokens(chunk)) for chunk in chunks]
    assert len(read) > 1
    for n in numbers:
        (within,) = [text for text in read if f"QX-{n}-K" in text]
        assert f"{n * 3.75:.2f}" in within
        assert "departs" in within, "its header stands over every part"
    library.check()
    assert said == []


def test_what_does_not_fit_is_said_by_the_name_of_the_file(
    tmp_path: Path, model: LanguageModel
) -> None:
    (tmp_path / "short.md").write_text("# Ferry\n\nIt leaves at nine.")
    (tmp_path / "long.txt").write_text(" ".join(number(random.Random(n)) for n in range(900)))
    library, said = library_of(tmp_path, model, 4 * WORDS)
    library.check()
    (line,) = said
    assert "long.txt" in line
