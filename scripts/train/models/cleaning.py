"""Files of git clones that the user has made, and their markup as plain paragraphs of prose."""

import html
import io
import re
import subprocess
import unicodedata
from pathlib import Path

from .values import pattern

_CHARACTERS = str.maketrans(
    {
        "“": '"', "”": '"', "„": '"', "″": '"', "‘": "'", "’": "'", "ʼ": "'", "′": "'",
        "–": "-", "‑": "-", "−": "-", "⸺": "—", "⸻": "—", "…": "...", "æ": "ae", "œ": "oe",
        "ﬁ": "fi", "ﬂ": "fl", "\u00a0": " ", "\u2009": " ", "\u200a": " ", "\u202f": " ",
        "\u2060": "", "\ufeff": "", "\u200b": "", "\u00ad": "",
    }
)  # fmt: skip
_NO_PROSE = " ~NOPROSE~ "


def files(clone: Path) -> list[str]:
    """Return all paths of a clone's HEAD; it may have no work tree."""
    return _git(clone, "ls-tree", "-r", "--name-only", "HEAD").decode().splitlines()


def read(clone: Path, paths: list[str]) -> list[bytes]:
    """Return the contents of files of a clone's HEAD; an absent one gives b""."""
    asked = "".join(f"HEAD:{path}\n" for path in paths).encode()
    answers = io.BytesIO(_git(clone, "cat-file", "--batch", given=asked))
    contents = []
    for _ in paths:
        header = answers.readline().split()
        if len(header) < 3 or header[1] != b"blob":
            contents.append(b"")
            continue
        contents.append(answers.read(int(header[2])))
        answers.read(1)
    return contents


def _git(clone: Path, *command: str, given: bytes | None = None) -> bytes:
    git = clone / ".git" if (clone / ".git").is_dir() else clone
    call = ["git", "--git-dir", str(git), *command]
    return subprocess.run(call, input=given, capture_output=True, check=True).stdout


def clean(text: str) -> str:
    """Return one line of text without entities, in plain characters."""
    text = unicodedata.normalize("NFC", html.unescape(text)).translate(_CHARACTERS)
    return re.sub(r"\s+", " ", text).strip()


def paragraphs(markup: str, tag: str, least: int) -> list[str]:
    """Return the texts of these elements that are prose."""
    found = re.findall(rf"<{tag}[^>]*>(.*?)</{tag}>", markup, flags=re.DOTALL)
    return [text for text in map(_without_tags, found) if is_prose(text, least)]


def _without_tags(markup: str) -> str:
    """Return the text of an element; what is no prose leaves a mark that `is_prose` rejects."""
    markup = pattern("note reference").sub("", pattern("no prose").sub(_NO_PROSE, markup))
    return clean(re.sub(r"<[^>]+>", "", re.sub(r"<br ?/?>", " ", markup)))


def is_prose(paragraph: str, least: int = 40) -> bool:
    """Return whether a paragraph is `least` characters long and almost all letters."""
    if len(paragraph) < least or _NO_PROSE.strip() in paragraph or "http" in paragraph:
        return False
    letters = sum(c.isalpha() or c in " ,.'" for c in paragraph)
    latin = all(ord(c) < 0x250 or c == "—" for c in paragraph)
    return latin and letters > 0.85 * len(paragraph)


def is_article(article: list[str]) -> bool:
    """Return whether there is enough text for an article."""
    return sum(map(len, article)) > 400
