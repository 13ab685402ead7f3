"""The pages that are made from the code are those of the code."""

from collections.abc import Callable

import pytest

# Scripts are beside the packages and are not installed.
from scripts.make_docs import DOCS, PAGES


@pytest.mark.parametrize(("name", "page"), PAGES.items(), ids=PAGES)
def test_a_page_is_up_to_date(name: str, page: Callable[[], str]) -> None:
    assert (DOCS / name).read_text("utf-8") == page(), "run: python scripts/make_docs.py"
