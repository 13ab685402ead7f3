"""A bundled model, loaded once for all tests of experiments that need a real one."""

import pytest

from dragonrt import bundled
from dragonrt.language.model import LanguageModel


@pytest.fixture(scope="session")
def model() -> LanguageModel:
    return LanguageModel.load(bundled.models()[0])
