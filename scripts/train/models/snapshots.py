"""Reads files out of git repositories that the user has cloned (with or without a work tree)."""

import io
import subprocess
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True, slots=True)
class Snapshots:
    """Clones in one directory, each named `owner+repository`."""

    directory: Path

    def names(self, owner: str) -> list[str]:
        """The clones of one owner."""
        return sorted(path.name for path in self.directory.glob(f"{owner}+*"))

    def files(self, name: str) -> list[str]:
        """All paths of a clone's HEAD."""
        return self._git(name, "ls-tree", "-r", "--name-only", "HEAD").decode().splitlines()

    def read(self, name: str, paths: list[str]) -> list[bytes]:
        """The contents of many files through one git process; an absent file gives b""."""
        asked = "".join(f"HEAD:{path}\n" for path in paths).encode()
        answers = io.BytesIO(self._git(name, "cat-file", "--batch", given=asked))
        contents = []
        for _ in paths:
            header = answers.readline().split()
            if len(header) < 3 or header[1] != b"blob":
                contents.append(b"")
                continue
            contents.append(answers.read(int(header[2])))
            answers.read(1)
        return contents

    def _git(self, name: str, *command: str, given: bytes | None = None) -> bytes:
        clone = self.directory / name
        git = clone / ".git" if (clone / ".git").is_dir() else clone
        call = ["git", "--git-dir", str(git), *command]
        return subprocess.run(call, input=given, capture_output=True, check=True).stdout
