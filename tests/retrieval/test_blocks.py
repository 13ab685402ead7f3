from retrieval.blocks import Block, Document, Heading, Page, Paragraph, Table, laid_out, one_line
from retrieval.chunking import pieces


def lines(*rows: tuple[str, ...]) -> list[str]:
    return laid_out([Table(rows)])[0].split("\n")


def test_chunks_have_the_headings_above_them_as_title() -> None:
    blocks: list[Block] = [
        Paragraph("Intro."),
        Heading("Museum"),
        Paragraph("Of glass."),
        *(Heading("Hours", 2), Heading("Winter", 3), Paragraph("Closed.")),
        *(Heading("Prices", 2), Paragraph("Nine.")),
    ]
    document = Document(blocks, "Museum")
    found = list(pieces(document))
    assert [(text, title) for text, title, *_ in found] == [
        ("Intro.", "Museum"),
        ("Museum\n\nOf glass.", "Museum"),
        ("Hours\n\nWinter\n\nClosed.", "Museum › Hours › Winter"),
        ("Prices\n\nNine.", "Museum › Prices"),
    ]
    assert [document.text[start:end] for _, _, start, end, _ in found] == [
        each[0] for each in found
    ]
    assert next(pieces(Document(blocks[1:], "The glass museum")))[1] == "The glass museum › Museum"


def test_pages_are_counted_from_one() -> None:
    blocks: list[Block] = [Page(), Paragraph("First."), Page(), Page(), Heading("Third")]
    blocks.append(Paragraph("End."))
    assert [page for *_, page in pieces(Document(blocks, "Title"))] == [1, 3]
    assert [page for *_, page in pieces(Document([Paragraph("None.")], "Title"))] == [0]


def test_a_row_repeats_the_header_and_shows_empty_cells() -> None:
    rows = ("Boat", "Hour", "Day"), ("Canoe", "12", ""), ("", "", ""), ("Kayak", "", "55", "")
    assert lines(*rows) == ["Boat: Canoe; Hour: 12; Day: -", "Boat: Kayak; Hour: -; Day: 55"]


def test_two_columns_are_names_and_values() -> None:
    assert lines(("Adults", "12"), ("Dogs:", "")) == ["Adults: 12", "Dogs: -"]


def test_a_title_within_a_table_is_a_line() -> None:
    rows = ("Readings", "", ""), ("Meter", "June", "July"), ("gas", "1", "2"), ("Read by Ines",)
    assert lines(*rows) == ["Readings", "Meter: gas; June: 1; July: 2", "Read by Ines"]
    assert lines(("a", "b", "c")) == ["a; b; c"]


def test_a_long_row_is_lines_that_begin_with_its_name() -> None:
    heads, cells = tuple(f"Column {n}" for n in range(30)), tuple(f"value {n}" for n in range(30))
    found = lines(heads, cells)
    assert len(found) > 3
    assert all(line.startswith("Column 0: value 0; ") for line in found)
    assert sum(line.count("value 17") for line in found) == 1


def test_a_chunk_of_a_table_ends_at_a_row() -> None:
    rows = [(f"Quay {n}", f"QX-{n}. Old", f"{n}:15") for n in range(40)]
    document = Document([Table((("Station", "Code", "Opens"), *rows))], "Quays")
    found = [text for text, *_ in pieces(document, 30)]
    assert len(found) > 5
    assert all(text.startswith("Station: Quay ") for text in found)
    assert "\n".join(found) == document.text


def test_no_text_forges_structure() -> None:
    text = "\ufdd0" + "1Fake \ufdd1\ufdd3\n# Head\n| a | b |"
    document = Document([Paragraph(text)], "True")
    assert [title for _, title, *_ in pieces(document)] == ["True"]
    assert "\ufdd0" not in document.text


def test_a_title_is_one_short_line() -> None:
    assert one_line(" The  glass\nmuseum\x1b[0m ") == "The glass museum"
    assert one_line("word " * 40).endswith("word…")
