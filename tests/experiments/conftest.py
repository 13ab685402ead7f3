"""Bundled models, loaded once for all tests of experiments that need real ones."""

import pytest

from dragonrt import bundled
from dragonrt.language.model import LanguageModel
from dragonrt.training.model_pair import ModelPair


@pytest.fixture(scope="session")
def model() -> LanguageModel:
    return LanguageModel.load(bundled.models()[0])


@pytest.fixture(scope="session")
def pair(model: LanguageModel) -> ModelPair:
    return ModelPair(LanguageModel.load("dragon-draft"), model)
