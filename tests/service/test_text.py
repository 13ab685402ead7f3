"""Tokens to text: any split gives the same text, and nothing of a stop string is ever shown."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dragonrt.service.text import TextStream

LETTERS = st.text(alphabet="ab€🐉é ", max_size=30)


def decode_bytes(tokens: list[int]) -> str:
    """A tokenizer whose tokens are bytes: every character beyond ASCII comes in several."""
    return bytes(tokens).decode("utf-8", errors="replace")


def stream(text: str, stops: tuple[str, ...] = ()) -> tuple[list[str], TextStream]:
    """What is shown, token by token and at the end."""
    streamed = TextStream(decode_bytes, stops)
    pieces = []
    for token in text.encode():
        pieces.append(streamed.push(token))
        if streamed.stopped:
            break
    pieces.append(streamed.finish())
    return pieces, streamed


def cut(text: str, stops: tuple[str, ...]) -> str:
    """The text before the stop string that is complete first."""
    ends = [(text.index(stop) + len(stop), text.index(stop)) for stop in stops if stop in text]
    return text[: min(ends)[1]] if ends else text


@given(LETTERS, st.lists(st.text(alphabet="ab€🐉", min_size=1, max_size=4), max_size=3))
def test_the_pieces_make_the_text_up_to_the_first_stop_string(text: str, stops: list[str]) -> None:
    pieces, streamed = stream(text, tuple(stops))
    assert "".join(pieces) == cut(text, tuple(stops))
    assert streamed.stopped == any(stop in text for stop in stops)


@given(LETTERS)
def test_half_a_character_is_never_shown(text: str) -> None:
    pieces, _ = stream(text)
    assert all("\ufffd" not in piece for piece in pieces)
    assert "".join(pieces) == text


@given(
    st.lists(st.text(alphabet="ab€", min_size=1, max_size=5), max_size=8),
    st.lists(st.text(alphabet="ab€", min_size=1, max_size=4), max_size=3),
)
def test_tokens_of_any_length_give_what_characters_give(words: list[str], stops: list[str]) -> None:
    streamed = TextStream(lambda tokens: "".join(words[token] for token in tokens), stops)
    shown = "".join(streamed.push(token) for token in range(len(words)) if not streamed.stopped)
    assert shown + streamed.finish() == cut("".join(words), tuple(stops))


def test_what_may_become_a_stop_string_is_held_back() -> None:
    streamed = TextStream(decode_bytes, ("\nQ:",))
    assert [streamed.push(token) for token in b"a\nQ"] == ["a", "", ""]
    assert streamed.push(ord("x")) == "\nQx", "it did not become one"
    assert [streamed.push(token) for token in b"\nQ:"] == ["", "", ""]
    assert streamed.stopped
    assert streamed.finish() == ""


@pytest.mark.parametrize("word", [["▁a", "▁b"], ["▁", "▁b"]])
def test_spaces_come_out_as_in_the_whole_text(word: list[str]) -> None:
    def decode(tokens: list[int]) -> str:
        """As sentencepiece does: the space before the first word of a text is dropped."""
        return "".join(word[token] for token in tokens).replace("▁", " ").removeprefix(" ")

    streamed = TextStream(decode)
    shown = "".join(streamed.push(token) for token in (0, 1, 0, 1)) + streamed.finish()
    assert shown == decode([0, 1, 0, 1])
