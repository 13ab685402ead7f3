"""Files of git clones that the user has made, and their text in plain characters."""

import html
import io
import re
import subprocess
import unicodedata
from pathlib import Path

_CHARACTERS = str.maketrans(
    {
        "“": '"', "”": '"', "„": '"', "″": '"', "‘": "'", "’": "'", "ʼ": "'", "′": "'",
        "–": "-", "‑": "-", "−": "-", "⸺": "—", "⸻": "—", "…": "...", "æ": "ae", "œ": "oe",
        "ﬁ": "fi", "ﬂ": "fl", "\u00a0": " ", "\u2009": " ", "\u200a": " ", "\u202f": " ",
        "\u2060": "", "\ufeff": "", "\u200b": "", "\u00ad": "",
    }
)  # fmt: skip


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
