"""Text of any words, as other programs write it, is read character by character."""

import csv
from io import StringIO

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from retrieval.blocks import Table
from retrieval.plain import decoded, read_csv

CELL = st.text(st.sampled_from("aB7 ,;\t|'\"\nä—."), min_size=1, max_size=12).map(str.strip)
ROWS = st.lists(st.lists(CELL, min_size=3, max_size=3), min_size=2, max_size=6)
SENTENCES = {
    "cp1252": ("Der Schlüssel hängt über der Tür.", "La clé est près du café.", "810 €."),
    "cp1251": ("Ключ висит у двери.", "Квартира стоит 810 евро."),
    "koi8_r": ("Ключ висит у двери.", "Квартира стоит 810 евро."),
    "cp1253": ("Το κλειδί είναι στην πόρτα.", "Το ενοίκιο είναι 810 ευρώ."),
    "shift_jis": ("鍵はドアの横にあります。", "家賃は毎月810ユーロです。"),
    "gb18030": ("钥匙在门边。", "房租每月810欧元。"),
    "euc_kr": ("열쇠는 문 옆에 있습니다.", "월세는 810유로입니다."),
    "utf-8": ("鍵はドアの横にあります。", "Ключ висит у двери."),
    "utf-16": ("鍵はドアの横にあります。", "Ключ висит у двери."),
}


def rows_of(text: str) -> tuple[tuple[str, ...], ...]:
    (table,) = read_csv(text.encode())
    assert isinstance(table, Table)
    return table.rows


@pytest.mark.parametrize("separator", [",", ";", "\t", "|"])
@settings(deadline=None)
@given(rows=ROWS, is_named=st.booleans())
def test_quoted_cells_are_read_with_any_separator(
    separator: str, rows: list[list[str]], is_named: bool
) -> None:
    out = StringIO()
    csv.writer(out, delimiter=separator, quoting=csv.QUOTE_ALL).writerows(rows)
    named = f"sep={separator}\n" if is_named else ""
    assert rows_of(named + out.getvalue()) == tuple(map(tuple, rows))


@pytest.mark.parametrize("charset", SENTENCES)
@settings(deadline=None)
@given(data=st.data())
def test_text_in_its_declared_charset_is_kept(charset: str, data: st.DataObject) -> None:
    letters = "".join(SENTENCES[charset]) + " .\n7"
    text = SENTENCES[charset][0] + data.draw(st.text(st.sampled_from(letters)))
    assert decoded(text.encode(charset), charset) == text


@pytest.mark.parametrize("charset", SENTENCES)
@settings(deadline=None, max_examples=30, derandomize=True)  # it is guessed
@given(data=st.data())
def test_sentences_in_no_declared_charset_are_kept(charset: str, data: st.DataObject) -> None:
    text = " ".join(data.draw(st.permutations(SENTENCES[charset] * 3)))
    assert decoded(text.encode(charset)) == text
