"""Programs beside the package: what they share imports none of them, and figures no others."""

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

SCRIPTS = Path(__file__).parents[2] / "scripts"
LAYERS = {"lab": set[str](), "papers": {"lab"}, "bench": {"lab"}, "train": {"lab", "bench"}}
"""What each may import beside itself."""
TRAINS = SCRIPTS / "papers" / "sprinter" / "roc.py"
"""The figure that is of trainings."""


def imported(file: Path) -> Iterator[str]:
    """Yield the folders of scripts that a module imports from."""
    for node in ast.walk(ast.parse(file.read_text("utf-8"))):
        if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("scripts."):
            yield str(node.module).split(".")[1]


@pytest.mark.parametrize("layer", LAYERS)
def test_imports_point_down(layer: str) -> None:
    files = [file for file in (SCRIPTS / layer).rglob("*.py") if file != TRAINS]
    assert files
    for file in files:
        assert set(imported(file)) - {layer} <= LAYERS[layer], file
