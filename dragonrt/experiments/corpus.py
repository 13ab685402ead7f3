"""A text to be predicted and texts to retrieve from, out of one file or one directory."""

from dataclasses import dataclass
from pathlib import Path

from dragonrt import bundled
from dragonrt.errors import DragonError
from retrieval import DocumentError
from retrieval.documents import SUFFIXES, load

EVALUATED = 5
"""Where nothing is set apart for evaluation, one part in so many is."""


@dataclass(frozen=True, slots=True)
class Corpus:
    """`evaluated` is predicted with the help of what is found in `retrieved`."""

    name: str
    evaluated: str
    retrieved: tuple[str, ...]


def found_corpus() -> Path:
    """WikiText-2 in data/ here or in a directory beside this one; else the sample articles."""
    for directory in (Path("data"), *sorted(Path("..").glob("*/data"))):
        if (directory / "wikitext-2").is_dir():
            return directory / "wikitext-2"
    return bundled.documents("cloud")


def read_corpus(path: Path) -> Corpus:
    """A file: its last fifth is evaluated. A directory: its file named test.*, or each fifth file.

    Raises DragonError if there is nothing to read.
    """
    if path.is_file():
        text = _read(path)
        cut = len(text) - len(text) // EVALUATED
        return Corpus(path.name, text[cut:], (text[:cut],))
    files = sorted(
        file for file in path.rglob("*") if file.is_file() and file.suffix.lower() in SUFFIXES
    )
    if len(files) < 2:
        raise DragonError(f"{path} is neither a text file nor a directory of at least two")
    apart = [file for file in files if file.stem == "test"][:1]
    evaluated = apart or files[EVALUATED - 1 :: EVALUATED] or files[-1:]
    name = "the sample articles" if path == bundled.documents("cloud") else path.name
    return Corpus(
        name,
        "\n\n".join(_read(file) for file in evaluated),
        tuple(_read(file) for file in files if file not in evaluated),
    )


def _read(path: Path) -> str:
    try:
        return load(path).text
    except DocumentError as error:
        raise DragonError(f"{path} {error}") from None
