"""The pages that are made from the code are those of the code."""

from collections.abc import Callable

import pytest

# Scripts are beside the packages and are not installed.
from scripts.bench import pages as results
from scripts.make_docs import DOCS, PAGES


@pytest.mark.parametrize(("name", "page"), PAGES.items(), ids=PAGES)
def test_a_page_is_up_to_date(name: str, page: Callable[[], str]) -> None:
    assert (DOCS / name).read_text("utf-8") == page(), "run: python scripts/make_docs.py"


def test_pages_of_results_are_those_of_what_is_kept() -> None:
    made = results.pages()
    for name, page in made.items():
        text = (results.RESULTS / name).read_text("utf-8")
        assert text == page, f"{name}: run: python scripts/make_docs.py"
    assert {path.name for path in results.RESULTS.glob("*.md")} == set(made)
    named = {
        f"{name}{suffix}"
        for name, run in results.kept().items()
        for suffix in ("", *(f"-{n + 1}" for n in range(1, run["tables"])))
    }
    assert {path.stem for path in results.RESULTS.glob("*.csv")} == named
