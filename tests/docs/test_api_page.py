"""The examples of docs/api.md, run."""

import ast
import re
from pathlib import Path
from typing import Any

import pytest

import dragonrt
from dragonrt import bundled

DOCS = Path(__file__).parents[2] / "docs"
PAGE = (DOCS / "api.md").read_text("utf-8")


def code(page: str, name: str) -> str:
    (found,) = re.findall(rf"^```python {name}\n(.*?)^```$", page, re.MULTILINE | re.DOTALL)
    assert isinstance(found, str)
    return found


def example(name: str, page: str = PAGE) -> dict[str, Any]:
    names: dict[str, Any] = {"__name__": name}
    exec(compile(code(page, name), f"docs/{name}", "exec"), names)
    return names


@pytest.mark.slow
async def test_the_script_prints_what_it_was_asked(capsys: pytest.CaptureFixture[str]) -> None:
    async with dragonrt.serve_cloud(documents=bundled.documents("cloud"), port=0) as port:
        notes = str(bundled.documents("device"))
        await example("chat")["main"](notes, f"127.0.0.1:{port}")
    assert "tokens left this side" in capsys.readouterr().out


@pytest.mark.slow
async def test_the_cell_answers() -> None:
    tree = ast.parse(code(PAGE, "notebook"))
    last = tree.body.pop()
    assert isinstance(last, ast.Expr)
    names: dict[str, Any] = {}
    cell = compile(tree, "cell", "exec", flags=ast.PyCF_ALLOW_TOP_LEVEL_AWAIT)
    await eval(cell, names)
    shown = eval(compile(ast.Expression(last.value), "cell", "eval"), names)
    assert [text != "" for text, _ in shown] == [True, True]


def test_the_page_names_what_is_public() -> None:
    assert {name for name in dragonrt.PUBLIC if f"`{name}" not in PAGE} == set()
