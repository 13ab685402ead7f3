import pytest
from hypothesis import given
from hypothesis import strategies as st

from dragonrt.backends.model import LanguageModel
from retrieval import RetrievalError
from retrieval.chunking import chunk

TEXTS = st.text(alphabet=st.sampled_from('ab .!\n\té漢。"x'), max_size=400)


@given(TEXTS, st.integers(1, 20))
def test_chunks_cover_all_words_in_order_and_none_is_too_long(text: str, words: int) -> None:
    spans = chunk(text, words)
    ends = [0, *(end for _, end in spans)]
    starts = [*(start for start, _ in spans), len(text)]
    assert all(not text[e:s].strip() for e, s in zip(ends, starts, strict=True))
    assert all(start < end for start, end in spans)
    for start, end in spans:
        piece = text[start:end]
        assert piece == piece.strip()
        assert len(chunk(piece, words)) == 1
        assert len(piece.split()) <= words


def test_a_chunk_ends_at_a_sentence() -> None:
    text = "One two three. Four five six seven eight nine. Ten eleven twelve."
    assert [text[start:end] for start, end in chunk(text, 10)] == [
        "One two three. Four five six seven eight nine.",
        "Ten eleven twelve.",
    ]


def test_a_paragraph_is_a_better_end_than_a_later_sentence() -> None:
    text = "One two three four five six.\n\nSeven. Eight nine ten eleven twelve."
    assert text[: chunk(text, 10)[0][1]] == "One two three four five six."


def test_a_short_first_sentence_does_not_end_a_chunk() -> None:
    text = "One two. " + " ".join("abcdefghijkl")
    assert text[: chunk(text, 10)[0][1]].split()[-1] == "h"


def test_text_without_spaces_is_cut_too() -> None:
    assert len(chunk("漢" * 130, 64)) == 3
    assert len(chunk("x" * 250, 64)) == 1
    assert len(chunk("x" * 1000, 64)) == 4


@pytest.mark.parametrize(
    "text",
    [
        "Паром отправляется в девять часов утра. " * 20,
        "aGVsbG8gd29ybGQgdGhpcyBpcyBhIHRlc3Qgb2Yg " * 60,
        "\n".join(f"QX-{number}-K\t{number * 3.75:.2f}" for number in range(1000, 1200)),
    ],
)
def test_what_takes_many_tokens_is_cut_into_shorter_chunks(model: LanguageModel, text: str) -> None:
    lengths = [len(model.encode(text[a:b])) for a, b in chunk(text, 64)]
    assert len(text.split()) / len(lengths) < 60
    assert max(lengths) < 512


@pytest.mark.parametrize("words", [0, -1])
def test_impossible_sizes_are_refused(words: int) -> None:
    with pytest.raises(RetrievalError):
        chunk("text", words)


@given(TEXTS, st.integers(1, 12), st.data())
def test_any_rows_leave_all_words_in_order(text: str, words: int, data: st.DataObject) -> None:
    rows = data.draw(st.sets(st.integers(0, len(text)), max_size=6))
    spans = chunk(text, words, rows)
    ends = [0, *(end for _, end in spans)]
    begins = [*(start for start, _ in spans), len(text)]
    assert all(not text[e:s].strip() for e, s in zip(ends, begins, strict=True))
    assert all(len(chunk(text[start:end], words)) == 1 for start, end in spans)


def test_a_row_is_a_better_end_than_a_later_sentence() -> None:
    text = "a b c d e f\ng. h i j k l m"
    assert text[: chunk(text, 8, {text.index("g.")})[0][1]] == "a b c d e f"
