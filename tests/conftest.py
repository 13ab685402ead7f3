"""A data directory of its own for the whole run, which all workers share; a toy as the model."""

import os
import shutil
import tempfile

import pytest

_VARIABLE = "XDG_DATA_HOME"


def pytest_configure(config: pytest.Config) -> None:
    """What an earlier version left in the user's data directory is no part of a test."""
    if not hasattr(config, "workerinput"):
        os.environ[_VARIABLE] = tempfile.mkdtemp(prefix="dragonrt-")
        os.environ["DRAGONRT_MODEL"] = "dragon-small"


def pytest_unconfigure(config: pytest.Config) -> None:
    """Remove it again, when the last worker is gone."""
    if not hasattr(config, "workerinput"):
        shutil.rmtree(os.environ[_VARIABLE], ignore_errors=True)
