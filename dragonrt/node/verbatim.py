"""Numbers and codes that an answer copies: whether each stands in a text as it is. Pure.

A small model cuts what it copies: "plum-39" of plum-otter-39, "PM-48213" of PM-48213-K. So a code
is compared as a whole token. A token is a run of letters and digits; these connect two parts of it:

    - / _ + & # @     between letters and digits
    . : ,             between digits; the comma where it groups three
    .                 in e-mail addresses

A token is a code if it has a digit, is an e-mail address, or is of capitals with a hyphen. Codes
are compared letter by letter; numbers without their grouping (1,250 is 1250), ordinals as numbers,
and a number with its unit as the number (75mg is 75 mg).
"""

import re
from collections.abc import Iterable
from dataclasses import dataclass

_WORD = r"[^\W_]+"
_EMAIL = rf"{_WORD}(?:[._%+-]{_WORD}){{0,5}}@{_WORD}(?:[.-]{_WORD}){{1,5}}"
_TOKEN = rf"{_WORD}(?:(?:[-/_+&#@]|(?<=\d)[.:’'](?=\d)|(?<=\d),(?=\d{{3}}(?!\d))){_WORD})*"
_TOKENS = re.compile(f"{_EMAIL}|{_TOKEN}")
_NUMBERED = re.compile(r"^[^\S\n]*\d+[.)](?=\s)", re.MULTILINE)
_GROUPED = re.compile(r"\d{1,3}(?:[,’']\d{3})+(?:\.\d+)?")
_ORDINAL = re.compile(r"(\d+)(?:st|nd|rd|th)")
_UNITS = "[mckµ]?m|[mk]?g|[mcd]?l|m?s|min|h|am|pm|[kM]?W|kWh|V|A|[kMGT]B|bar|psi|km/h|C|F"
_QUANTITY = re.compile(rf"(\d+(?:[.,:]\d+)*)(?:{_UNITS})")
_HYPHENED_CAPITALS = re.compile(r"[A-Z]+(?:-[A-Z]+)+")


@dataclass(frozen=True, slots=True)
class Code:
    """A number or code, and its place in the text: characters `start` to `end`."""

    text: str
    start: int
    end: int


def codes(text: str) -> list[Code]:
    """Return the numbers and codes of a text in their order; the numbers of a list are none."""
    if len(_NUMBERED.findall(text)) > 1:
        text = _NUMBERED.sub(lambda number: " " * len(number[0]), text)
    found = _TOKENS.finditer(text)
    return [Code(each[0], each.start(), each.end()) for each in found if _is_code(each[0])]


def missing(text: str, known: Iterable[str]) -> list[Code]:
    """Return the codes of a text that stand in none of the known texts."""
    found = codes(text)
    if not found:
        return []
    standing = {_plain(token) for each in known for token in _TOKENS.findall(each)}
    return [code for code in found if _plain(code.text) not in standing]


def _is_code(token: str) -> bool:
    digit = any(character.isdigit() for character in token)
    return digit or "@" in token or _HYPHENED_CAPITALS.fullmatch(token) is not None


def _plain(token: str) -> str:
    """Return what a token is compared as."""
    for form in (_ORDINAL, _QUANTITY):
        if number := form.fullmatch(token):
            token = number[1]
    return re.sub("[,’']", "", token) if _GROUPED.fullmatch(token) else token
