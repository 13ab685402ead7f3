"""What the pages point at exists: files, headings, commands and their options."""

import re
import shlex
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import typer
from typer.core import TyperGroup

from dragonrt.cli import app

CHECKOUT = Path(__file__).parents[2]
PAGES = sorted(
    path
    for pattern in ("*.md", "docs/*.md", "profiles/*.md", "dragonrt/bundled/*/README.md")
    for path in CHECKOUT.glob(pattern)
)
CODE = re.compile(r"^```.*?^```$", re.MULTILINE | re.DOTALL)


def anchor(heading: str) -> str:
    """What a heading is reached by: its words in lower case, joined by hyphens."""
    return re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-")


def options(command: Any) -> set[str]:
    return {name for each in command.params for name in (*each.opts, *each.secondary_opts)}


def commands(group: TyperGroup, path: str) -> dict[str, set[str]]:
    """The options of every command, by what is typed for it."""
    found = {path: options(group)}
    for name, command in group.commands.items():
        typed = f"{path} {name}"
        if isinstance(command, TyperGroup):
            found |= commands(command, typed)
        else:
            found[typed] = options(command)
    return found


def typed_commands(text: str) -> Iterator[str]:
    """Calls of dragonrt in blocks of shell lines and between backticks."""
    for block in re.findall(r"^```sh\n(.*?)^```$", text, re.MULTILINE | re.DOTALL):
        for line in block.splitlines():
            yield from (part for part in re.split(r"[&|]", line) if "dragonrt" in part.split()[:1])
    yield from re.findall(r"`(dragonrt [^`]+)`", CODE.sub("", text))


@pytest.fixture(scope="module")
def known() -> dict[str, set[str]]:
    group = typer.main.get_command(app)
    assert isinstance(group, TyperGroup)
    return commands(group, "dragonrt")


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(CHECKOUT)))
class TestPage:
    def test_links_lead_somewhere(self, page: Path) -> None:
        text = CODE.sub("", page.read_text("utf-8"))
        for target in re.findall(r"\]\(([^)\s]+)\)", text):
            file, _, section = target.partition("#")
            if file.startswith("http"):
                continue
            path = page.parent / file if file else page
            assert path.exists(), target
            if section:
                headings = re.findall(r"^#+ (.*)$", CODE.sub("", path.read_text("utf-8")), re.M)
                assert section in map(anchor, headings), target

    def test_commands_and_options_exist(self, page: Path, known: dict[str, set[str]]) -> None:
        text = page.read_text("utf-8")
        for call in typed_commands(text):
            words = shlex.split(call.replace("…", ""), comments=True)
            path = "dragonrt"
            for word in words[1:]:
                if f"{path} {word}" in known:
                    path = f"{path} {word}"
            assert path != "dragonrt" or words[1:2] in (["COMMAND"], ["--config"]), call
            given = {word.partition("=")[0] for word in words if word.startswith("-")}
            assert given <= known[path] | {"--help"}, call
        everywhere = set().union(*known.values())
        for span in re.findall(r"`(--[^`]+)`", CODE.sub("", text)):
            given = {word for word in span.split() if word.startswith("--")}
            assert given <= everywhere, span
