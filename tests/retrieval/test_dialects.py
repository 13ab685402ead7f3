"""Tables of any text, as other programs write them, are read cell by cell."""

import csv
from collections import Counter
from io import StringIO

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from retrieval.blocks import Table
from retrieval.plain import read_csv

CELL = st.text(st.sampled_from("aB7 ,;\t|'\"\nä—."), min_size=1, max_size=12).map(str.strip)
ROWS = st.lists(st.lists(CELL, min_size=3, max_size=3), min_size=2, max_size=6)


@pytest.mark.parametrize("separator", [",", ";", "\t", "|"])
@settings(deadline=None)
@given(rows=ROWS)
def test_a_named_separator_gives_every_cell(separator: str, rows: list[list[str]]) -> None:
    out = StringIO()
    csv.writer(out, delimiter=separator, quoting=csv.QUOTE_ALL).writerows(rows)
    (table,), _ = read_csv(f"sep={separator}\n{out.getvalue()}".encode(), Counter())
    assert isinstance(table, Table)
    assert table.rows == tuple(map(tuple, rows))


@settings(deadline=None)
@given(rows=ROWS, separator=st.sampled_from(",;\t|"))
def test_quoted_cells_need_no_named_separator(rows: list[list[str]], separator: str) -> None:
    out = StringIO()
    csv.writer(out, delimiter=separator, quoting=csv.QUOTE_ALL).writerows(rows)
    (table,), _ = read_csv(out.getvalue().encode(), Counter())
    assert isinstance(table, Table)
    assert table.rows == tuple(map(tuple, rows))
