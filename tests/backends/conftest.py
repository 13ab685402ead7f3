"""Directories of tiny models."""

from collections.abc import Callable
from functools import cache
from pathlib import Path

import pytest

from tests.tiny_models import saved, tiny


@pytest.fixture(scope="session")
def directory(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Path]:
    """The directory of a model of a family; not to be changed."""
    return cache(lambda family: saved(tiny(family), tmp_path_factory.mktemp("models") / family))
