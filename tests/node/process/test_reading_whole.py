"""Between a file and the model's context no token is lost, whatever the file is full of."""

import random
import string
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from dragonrt.backends.model import LanguageModel
from dragonrt.node.process.composition import open_library, update_index
from dragonrt.node.process.library import Library
from dragonrt.node.process.side_settings import SideSettings
from dragonrt.traces.events import Noticed, NoticeKind
from retrieval.documents import load
from retrieval.reader import Reader

Kind = Callable[[random.Random], str]
WORDS = SideSettings("device").chunk_words


def drawn(rng: random.Random, letters: str, most: int) -> str:
    return "".join(rng.choices(letters, k=rng.randint(1, most)))


CONTENTS: dict[str, Kind] = {
    "numbers": lambda rng: drawn(rng, string.digits, 9),
    "words": lambda rng: rng.choice(("ferry", "Tom's", "quay,", "QX-4312-K", "departures")),
    "names": lambda rng: "_".join(drawn(rng, string.ascii_letters, 7) for _ in range(3)) + "();",
    "han": lambda rng: "".join(chr(rng.randrange(0x4E00, 0x9FFF)) for _ in range(20)),
    "coded": lambda rng: drawn(rng, string.ascii_letters + string.digits + "+/", 300),
    "cyrillic": lambda rng: "".join(chr(rng.randrange(0x430, 0x450)) for _ in range(9)),
    "wide": lambda rng: "x" + " " * rng.randint(1, 90),
}


def written(path: Path, kind: Kind, rng: random.Random, columns: int) -> Path:
    """A file of some 1,000 contents, in that shape."""
    rows = [[kind(rng) for _ in range(columns)] for _ in range(min(400, 1000 // columns))]
    lines = ["\t".join(row) for row in rows]
    if path.suffix == ".md":
        table = ["| " + " | ".join(row) + " |" for row in rows]
        lines = ["# Harbour", "", table[0], "|" + " --- |" * columns, *table[1:]]
    elif path.suffix == ".csv":
        lines = [",".join(row) for row in rows]
    elif path.suffix == ".html":
        lines = ["<h1>Harbour</h1><table>", *("<tr><td>" + "<td>".join(row) for row in rows)]
    path.write_text("\n".join(lines))
    return path


@pytest.fixture(scope="module")
def confined() -> Iterator[Reader]:
    with Reader(words=WORDS) as reader:
        yield reader


@pytest.mark.slow
@pytest.mark.parametrize("shape", ["table.md", "rows.csv", "lines.txt", "page.html"])
@pytest.mark.parametrize("kind", CONTENTS)
def test_no_token_is_lost(
    model: LanguageModel, confined: Reader, tmp_path: Path, shape: str, kind: str
) -> None:
    rng = random.Random(f"{shape} {kind}")
    path = written(tmp_path / shape, CONTENTS[kind], rng, rng.randint(1, 60))
    text = load(path).text
    _, pieces, *_ = confined.read(path, 0)
    assert pieces
    ends = [0, *(end for *_, end, _ in pieces)]
    starts = [*(start for _, _, start, _, _ in pieces), len(text)]
    assert all(not text[e:s].strip() for e, s in zip(ends, starts, strict=True))
    for piece, title, start, end, _ in pieces:
        assert piece.endswith(text[start:end])
        read = model.encode(model.prompt.document_text(title, piece))
        assert len(read) <= model.context_length // 2


def library_of(documents: Path, model: LanguageModel, words: int) -> tuple[Library, list[Noticed]]:
    side = SideSettings(
        "device",
        model="dragon-small",
        documents=(documents,),
        index=documents / ".index",
        chunk_words=words,
    )
    update_index(side)
    library, said = open_library(side, model), list[Noticed]()
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
    (tmp_path / "long.txt").write_text(
        " ".join(str(random.Random(n).randrange(10**9)) for n in range(900))
    )
    library, said = library_of(tmp_path, model, 4 * WORDS)
    library.check()
    longest = max(len(library.tokens(chunk)) for chunk in library.retriever.index.chunks())
    assert longest == model.context_length // 2
    (notice,) = said
    assert notice.kind is NoticeKind.CUT
    assert "long.txt" in notice.text
