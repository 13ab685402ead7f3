"""What `pyproject.toml` declares is what the packages import, and the licences are there."""

import ast
import re
import sys
import tomllib
from collections.abc import Iterable
from importlib.metadata import packages_distributions
from pathlib import Path

ROOT = Path(__file__).parents[1]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
BY_PATH = {"xllamacpp"}
"""Whose library is loaded as a file: its Python package is not imported."""


def names(requirements: Iterable[str]) -> set[str]:
    return {re.split(r"[\[<>=;]", each, maxsplit=1)[0].strip().lower() for each in requirements}


def imported() -> set[str]:
    """Return the distributions that the packages import anywhere."""
    modules = set[str]()
    for package in ("dragonrt", "retrieval"):
        for file in (ROOT / package).rglob("*.py"):
            for node in ast.walk(ast.parse(file.read_text("utf-8"))):
                if isinstance(node, ast.Import):
                    modules |= {each.name.partition(".")[0] for each in node.names}
                elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
                    modules.add(node.module.partition(".")[0])
    found = packages_distributions()
    foreign = modules - sys.stdlib_module_names - {"dragonrt", "retrieval"}
    return {found[each][0].lower().replace("_", "-") for each in foreign if each in found}


def test_imports_are_declared_and_requirements_are_imported() -> None:
    required, extras = names(PROJECT["dependencies"]), PROJECT["optional-dependencies"]
    optional = names(each for several in extras.values() for each in several)
    assert imported() <= required | optional
    assert required <= imported() | BY_PATH
    assert not required & names(extras["transformers"])


def test_each_licence_has_its_text() -> None:
    texts = [(ROOT / file).read_text("utf-8").split() for file in PROJECT["license-files"]]
    assert len(texts) == len(PROJECT["license"].split(" AND "))
    assert all(len(words) > 1000 for words in texts)
