"""A data directory for each worker, a toy as the model; commands run in this process."""

import os
import shutil
import sys
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from dragonrt import cli
from dragonrt.backends.llama_cpp.model_file import models_directory

if TYPE_CHECKING:
    from dragonrt.backends.model import LanguageModel
    from scripts.lab.model_pair import ModelPair

_VARIABLE = "XDG_DATA_HOME"


def pytest_configure(config: pytest.Config) -> None:
    """What an earlier version left in the user's data directory is no part of a test."""
    if not hasattr(config, "workerinput"):
        os.environ[_VARIABLE] = tempfile.mkdtemp(prefix="dragonrt-")
        os.environ["DRAGONRT_MODEL"] = "dragon-small"
    else:  # workers that shared an index of the samples would wait for each other
        _use(Path(os.environ[_VARIABLE], config.workerinput["workerid"]), os.environ.__setitem__)


def _use(data: Path, set_variable: Callable[[str, str], None]) -> None:
    """Change to another data directory, which has the same files of bundled models."""
    made = models_directory()  # they take half a minute
    made.mkdir(parents=True, exist_ok=True)
    set_variable(_VARIABLE, str(data))
    models_directory().parent.mkdir(parents=True)
    models_directory().symlink_to(made)


def pytest_unconfigure(config: pytest.Config) -> None:
    """Remove it again, when the last worker is gone."""
    if not hasattr(config, "workerinput"):
        shutil.rmtree(os.environ[_VARIABLE], ignore_errors=True)


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
def own_data(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Have a data directory that holds nothing but the files of bundled models."""
    _use(tmp_path / "data", monkeypatch.setenv)


@pytest.fixture
def run(
    own_data: None,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    tmp_path: Path,
) -> Run:
    """Call `dragonrt`, or a script of that room, with these arguments in an empty directory."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "80")
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))

    def call(*arguments: str, script: str = "") -> Outcome:
        monkeypatch.setattr(sys, "argv", ["dragonrt", *arguments])
        main = import_module(f"scripts.{script}.__main__").main if script else cli.main
        with pytest.raises(SystemExit) as ended:
            main()
        captured = capsys.readouterr()
        code = ended.value.code
        return Outcome(code if isinstance(code, int) else 0, captured.out, captured.err)

    return call


@pytest.fixture(scope="session")
def model() -> "LanguageModel":
    from dragonrt.backends.model import LanguageModel

    return LanguageModel.load("dragon-small", "cpu")


@pytest.fixture(scope="session")
def draft_model() -> "LanguageModel":
    from dragonrt.backends.model import LanguageModel

    return LanguageModel.load("dragon-draft", "cpu")


@pytest.fixture(scope="session")
def pair(model: "LanguageModel", draft_model: "LanguageModel") -> "ModelPair":
    from scripts.lab.model_pair import ModelPair

    return ModelPair(draft_model, model)
