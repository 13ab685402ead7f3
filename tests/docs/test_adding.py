"""The examples of docs/adding.md, run."""

import importlib.util
import re
import sys
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from dragonrt.distributions import Codec, codec
from dragonrt.testing import backend_contract

CHECKOUT = Path(__file__).parents[2]
PAGE = (CHECKOUT / "docs" / "adding.md").read_text("utf-8")


def loaded(name: str, file: Path) -> ModuleType:
    """A module of its own from a file, known to `sys.modules` as dataclasses want it."""
    spec = importlib.util.spec_from_file_location(name, file)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    spec.loader.exec_module(module)
    return module


def example(name: str, directory: Path) -> ModuleType:
    """The module that the page shows in its block of that name."""
    (code,) = re.findall(rf"^```python {name}\n(.*?)^```$", PAGE, re.MULTILINE | re.DOTALL)
    file = directory / f"page_{name}.py"
    file.write_text(code)
    return loaded(file.stem, file)


contract: Any = loaded("codec_contract", CHECKOUT / "tests" / "distributions" / "test_codec.py")
POWERS = "pow2:16"


@pytest.fixture(scope="module", autouse=True)
def powers(tmp_path_factory: pytest.TempPathFactory) -> Any:
    """The class of the page's codec; this module's copy of the contract knows its name."""
    page: Any = example("codec", tmp_path_factory.mktemp("page"))

    def known(name: str, vocabulary: int) -> Codec:
        if name.startswith("pow2:"):
            made: Codec = page.PowersOfTwo(name, vocabulary, int(name.partition(":")[2]))
            return made
        return codec(name, vocabulary)

    contract.codec = known
    contract.NAMES.append(POWERS)
    return page.PowersOfTwo


class TestTheCodec(contract.TestContract):  # type: ignore[misc]  # a module loaded by its path
    """The contract of every codec, over the page's."""

    @pytest.fixture
    def each(self, powers: Any) -> Codec:
        made: Codec = powers(POWERS, contract.VOCABULARY, 16)
        return made


@pytest.mark.parametrize("check", backend_contract.CHECKS)
def test_the_backend_keeps_the_contract(
    check: Callable[[backend_contract.Subject], None], tmp_path: Path
) -> None:
    page: Any = example("backend", tmp_path)
    check(backend_contract.Subject(page.MeanBackend()))
