"""Running the command line in this process: what it printed, and how it ended."""

import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pytest

from dragonrt.cli import main


@dataclass(frozen=True, slots=True)
class Outcome:
    """How a call ended."""

    code: int
    output: str
    errors: str

    @property
    def line(self) -> str:
        """The one line a mistake is answered with."""
        assert self.errors.count("\n") == 1, self.errors
        assert self.errors.startswith("dragonrt: ")
        return self.errors.removeprefix("dragonrt: ").rstrip("\n")


Run = Callable[..., Outcome]


@pytest.fixture
def run(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path) -> Run:
    """Call `dragonrt` with these arguments, in an empty directory of its own."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "80")
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "data"))

    def call(*arguments: str) -> Outcome:
        monkeypatch.setattr(sys, "argv", ["dragonrt", *arguments])
        with pytest.raises(SystemExit) as ended:
            main()
        captured = capsys.readouterr()
        code = ended.value.code
        return Outcome(code if isinstance(code, int) else 0, captured.out, captured.err)

    return call
