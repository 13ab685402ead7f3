"""One concept, one name: no module and no public class is called as another one is."""

import ast
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parents[1]
PACKAGES = ("dragonrt", "retrieval")
ALIKE = {"__init__", "__main__"}


def modules() -> Iterator[Path]:
    for package in PACKAGES:
        yield from sorted((ROOT / package).rglob("*.py"))


def twice(places: dict[str, list[str]]) -> dict[str, list[str]]:
    return {name: where for name, where in places.items() if len(where) > 1}


def test_no_module_is_called_as_another_is() -> None:
    places: dict[str, list[str]] = defaultdict(list)
    for path in modules():
        if path.stem not in ALIKE:
            places[path.stem].append(str(path.relative_to(ROOT)))
    assert len(places) > 100
    assert twice(places) == {}


def test_no_public_class_is_called_as_another_is() -> None:
    places: dict[str, list[str]] = defaultdict(list)
    for path in modules():
        for node in ast.parse(path.read_text(encoding="utf-8")).body:
            if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
                places[node.name].append(str(path.relative_to(ROOT)))
    assert len(places) > 200
    assert twice(places) == {}
