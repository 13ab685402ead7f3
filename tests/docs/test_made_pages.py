"""The pages that are made from the code say what the code says now."""

from collections.abc import Callable
from dataclasses import dataclass

import pytest

from dragonrt.wire.fields import check_integer, check_tuple

# Scripts are beside the packages and are not installed.
from scripts.make_docs import DOCS, PAGES, limits


@pytest.mark.parametrize(("name", "page"), PAGES.items(), ids=PAGES)
def test_a_page_is_up_to_date(name: str, page: Callable[[], str]) -> None:
    assert (DOCS / name).read_text("utf-8") == page(), "run: python scripts/make_docs.py"


@dataclass(frozen=True)
class Sample:
    late: int
    tokens: tuple[int, ...]
    early: int
    free: int = 0

    def __post_init__(self) -> None:
        check_integer("early", self.early, 1, 2**32 - 1)
        check_integer("late", self.late, 0, self.early)
        check_tuple("tokens", self.tokens, 3)
        for token in self.tokens:
            check_integer("a token", token, 5, 9)


def test_limits_are_what_a_message_refuses() -> None:
    @dataclass(frozen=True)
    class Checked(Sample):
        def __post_init__(self) -> None:
            super().__post_init__()
            check_integer("free", self.free, 0, 1)

    assert limits(Checked) == {
        "early": "an integer from 1 to 2^32 - 1",
        "late": "an integer from 0 to 2^32 - 1",
        "tokens": "a tuple of at most 3 entries; a token must be an integer from 5 to 9",
        "free": "an integer from 0 to 1",
    }


def test_a_field_that_is_not_checked_is_found() -> None:
    with pytest.raises(ValueError, match="Sample takes anything for free"):
        limits(Sample)
