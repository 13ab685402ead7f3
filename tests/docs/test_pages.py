"""What the pages point at exists: files, headings, commands and their options."""

import contextlib
import io
import re
import shlex
import sys
from collections.abc import Iterator
from importlib import import_module
from itertools import pairwise
from pathlib import Path

import pytest
from lemminflect import getAllLemmas

from dragonrt.cli import main
from dragonrt.cli.options import REMOVED

CHECKOUT = Path(__file__).parents[2]
PAGES = sorted(
    path
    for pattern in ("*.md", "docs/**/*.md", "profiles/*.md", "dragonrt/bundled/*/README.md")
    for path in CHECKOUT.glob(pattern)
)
WRITTEN = [
    path
    for path in (CHECKOUT / "README.md", *sorted(CHECKOUT.glob("docs/*.md")))
    if path.name not in ("method.md", "specification.md", "traces.md", "wire.md")
]
"""Pages of sentences: the others are made from the code, or are mathematics."""
MARKS = 7
"""Colons and semicolons in 100 sentences. Prose that has more of them leaves out its verbs."""
IDIOM = re.compile(r"\b(?:told|tells?|stands?|go(?:es)? on|beside|so many|is said)\b")
"""Words for which the field, or plain English, has a clearer one."""
NOUN_FOLLOWS = re.compile("an?|any|at|by|each|every|for|from|in|its|no|o[fn]|the|their|with")
"""Words behind which a word such as *forward* or *rows* is no verb."""
VERBLESS = ("A GPU.", "The tokenizer, with added and special tokens.")
"""Items of lists that name a thing."""
CODE = re.compile(r"^```.*?^```$", re.MULTILINE | re.DOTALL)


def anchor(heading: str) -> str:
    """What a heading is reached by: its words in lower case, joined by hyphens."""
    return re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-")


def options(*command: str) -> set[str]:
    """The options that the help of a command lists in full; none if there is no such command."""
    shown = io.StringIO()
    with pytest.MonkeyPatch.context() as patch, contextlib.redirect_stdout(shown):
        program, *words = command
        script = program.startswith("scripts/")
        patch.setattr(sys, "argv", [program, *words, "--help" if script else "--help-all"])
        patch.setenv("COLUMNS", "200")
        run = main
        if script:
            run = import_module(f"{program.replace('/', '.').removesuffix('.run')}.__main__").main
        with pytest.raises(SystemExit) as ended:
            run()
    if ended.value.code or f"Usage: {' '.join(command)}" not in shown.getvalue():
        return set()
    listed = re.findall(r"^│ +(?:\* +)?((?:\(?-[\w-]+\)?[ ,]+)+)", shown.getvalue(), re.MULTILINE)
    return {"--help"} | {name for names in listed for name in re.findall(r"-[\w-]+", names)}


def typed_commands(text: str) -> Iterator[str]:
    """Calls of dragonrt in blocks of shell lines and between backticks."""
    for block in re.findall(r"^```sh\n(.*?)^```$", text, re.MULTILINE | re.DOTALL):
        for line in block.splitlines():
            yield from (part for part in re.split(r"[&|]", line) if PROGRAM.match(part.strip()))
    yield from re.findall(r"`((?:dragonrt|scripts/\w+/run) [^`]+)`", CODE.sub("", text))


PROGRAM = re.compile(r"(dragonrt|scripts/\w+/run)( |$)")
GROUPS = ("scripts/bench/run", "scripts/train/run")
"""Scripts with commands of their own; others take a name or nothing."""


@pytest.fixture(scope="module")
def known() -> dict[tuple[str, ...], set[str]]:
    """The options of every command that a page has typed, and of the largest ones."""
    typed = {command(call) for page in PAGES for call in typed_commands(page.read_text("utf-8"))}
    return {each: options(*each) for each in typed | LARGEST}


def command(call: str) -> tuple[str, ...]:
    """The words of a call that name a command."""
    program, *words = words_of(call)
    words = [word for word in words[:2] if not word.startswith("-")]
    if program == "dragonrt":
        return program, *words[: 2 if words[0] in ("keys", "experiment", "model") else 1]
    return program, *words[: program in GROUPS]


LARGEST = {("dragonrt", "device"), ("dragonrt", "cloud"), ("scripts/papers/run",)}


def words_of(call: str) -> list[str]:
    return shlex.split(call.replace("…", ""), comments=True)


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

    def test_commands_and_options_exist(
        self, page: Path, known: dict[tuple[str, ...], set[str]]
    ) -> None:
        text = page.read_text("utf-8")
        for call in typed_commands(text):
            assert known[command(call)], call
            given = {word.partition("=")[0] for word in words_of(call) if word.startswith("-")}
            assert given <= known[command(call)] | {"--help", "--help-all"}, call
        everywhere = set(REMOVED).union(*known.values())
        for span in re.findall(r"`(--[^`]+)`", CODE.sub("", text)):
            given = {word for word in span.split() if word.startswith("--")}
            assert given <= everywhere, span


def test_the_readme_has_a_line_for_every_package() -> None:
    found = {path.parent.name for path in CHECKOUT.glob("dragonrt/*/__init__.py")}
    named = re.findall(r"^dragonrt/(\w+)  ", (CHECKOUT / "README.md").read_text("utf-8"), re.M)
    assert sorted(named) == sorted(found)


def prose(page: Path) -> str:
    """The text with X for code, without tables, headings and the targets of links."""
    text = re.sub("`[^`]*`", "X", CODE.sub("", page.read_text("utf-8")))
    return re.sub(r"^ *\|.*$|^#.*$|\]\([^)]*\)|<[^>]*>", "", text, flags=re.MULTILINE)


def verbless(text: str) -> list[str]:
    """The sentences without a word that can be a verb where it is; headings in a line are none."""
    text = re.sub(r"\*\*[^*]*\.\*\*|\*|^ *(?:-|\d+\.) ", "", text, flags=re.MULTILINE)
    parts = re.split(r"\n\s*\n|(?<=[.!?])\s+(?=[A-Z])", text)
    sentences = [" ".join(part.split()) for part in parts if part.rstrip().endswith(".")]
    return [each for each in sentences if each != "." and not has_verb(each)]


def has_verb(sentence: str) -> bool:
    words = re.findall(r"[a-z]+", sentence.lower())
    return any(
        "VERB" in getAllLemmas(word) and not NOUN_FOLLOWS.fullmatch(before)
        for before, word in pairwise(["", *words])
    )


@pytest.mark.parametrize("sentence", ["Its port.", "Of each forward.", "A line a claim."])
def test_a_sentence_without_a_verb_is_found(sentence: str) -> None:
    assert verbless(f"This is a sentence. {sentence} So is this.") == [sentence]


@pytest.mark.parametrize("page", WRITTEN, ids=lambda page: page.name)
class TestProse:
    def test_sentences_have_verbs(self, page: Path) -> None:
        assert set(verbless(prose(page))) <= {*VERBLESS}

    def test_sentences_are_not_chained_by_colons(self, page: Path) -> None:
        text = prose(page)
        sentences = len(re.findall(r"[.!?](?=[\s)*\"]|$)", text))
        assert len(re.findall(r"[:;]", text)) * 100 <= MARKS * max(sentences, 100 // MARKS + 1)

    def test_words_are_plain(self, page: Path) -> None:
        words = re.sub(r"`[^`]*`", "", CODE.sub("", page.read_text("utf-8")))
        assert not IDIOM.findall(words)
