from retrieval.layout import PAGE, Document, heading, laid_out, one_line, page, table


def test_sections_stand_under_their_headings() -> None:
    document = laid_out(
        "Intro."
        + heading("Museum")
        + "Of glass."
        + heading("Hours", 2)
        + heading("Winter", 3)
        + "Closed."
        + heading("Prices", 2)
        + "Nine."
    )
    text = document.text
    assert document.title == "Museum"
    assert document.sections == (
        (text.index("Museum"), ("Museum",)),
        (text.index("Hours"), ("Museum", "Hours", "Winter")),
        (text.index("Prices"), ("Museum", "Prices")),
    )
    assert document.name(0) == "Museum"
    assert document.name(text.index("Closed")) == "Museum › Hours › Winter"
    assert document.name(len(text)) == "Museum › Prices"


def test_a_title_of_its_own_goes_before_the_headings() -> None:
    document = laid_out(heading("Hours") + "Nine.", "The  glass\nmuseum")
    assert document.title == "The glass museum"
    assert document.name(0) == "The glass museum › Hours"


def test_pages_are_counted_from_one() -> None:
    document = laid_out(page("First.") + page("") + page("Third."))
    text = document.text
    assert [document.page(text.index(word)) for word in ("First", "Third")] == [1, 3]
    assert laid_out("No pages.").page(3) == 0


def test_a_table_within_a_table_belongs_to_it() -> None:
    inner = table([["a", None, "b"], ["", ""]]).strip()
    document = laid_out("Before." + table([["x"], [inner]]) + "After.")
    ((start, end),) = document.tables
    assert document.text[start:end] == "x\na\t\tb"


def test_marks_that_do_not_match_do_no_harm() -> None:
    assert laid_out("\ufdd2a\ufdd1b\ufdd0c") == Document("ab\ufdd0c", "ab\ufdd0c")


def test_a_mark_is_no_part_of_a_title() -> None:
    assert one_line(f"{PAGE}Title") == "Title"
