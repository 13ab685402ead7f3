"""Values of slots, by the grammar of text/values.txt, and sentences from templates with {slots}.

A slot is a value of values.txt or a list of words.txt. Numbers at the end of its name tell apart
several values of one sort (`{p}`, `{p2}`).
"""

import re
from collections.abc import Callable, Iterable, Mapping
from functools import cache
from pathlib import Path
from random import Random
from types import MappingProxyType

_TEXT = Path(__file__).parent / "text"
_LETTERS = "ABCDEFGHJKLMNPRSTUVWXYZ"
_CHARACTERS = {"#": _LETTERS + "23456789", "@": _LETTERS, "%": "0123456789"}


def read_lines(name: str) -> list[str]:
    """Return the lines of a text file but for comments."""
    lines = _TEXT.joinpath(name).read_text(encoding="utf-8").splitlines()
    return [line for line in lines if line and not line.startswith("# ")]


def read_blocks(name: str) -> dict[str, list[str]]:
    """Return the lines of every block `== name` of a text file, in the order of the file."""
    blocks: dict[str, list[str]] = {}
    for line in read_lines(name):
        if line.startswith("== "):
            current = blocks.setdefault(line[3:], [])
        else:
            current.append(line)
    return blocks


@cache
def word_lists() -> dict[str, list[str]]:
    """Return the lists of words.txt by name."""
    return {name: " ".join(lines).split(" | ") for name, lines in read_blocks("words.txt").items()}


@cache
def word_set(name: str) -> frozenset[str]:
    """Return a word list as a set."""
    return frozenset(word_lists()[name])


def word(r: Random, name: str) -> str:
    """Draw an entry of a word list."""
    return r.choice(word_lists()[name])


def _ordinal(text: str) -> str:
    n = int(text)
    ending = "th" if 10 <= n % 100 <= 20 else {1: "st", 2: "nd", 3: "rd"}.get(n % 10, "th")
    return f"{n}{ending}"


_FILTERS: dict[str, Callable[[str], str]] = {
    "lower": str.lower,
    "capitalize": str.capitalize,
    "ordinal": _ordinal,
    "short": lambda text: text[:3],
    "comma": lambda text: text and "," + text,
    "word": lambda text: text.split()[-1].lower(),
    "bare": lambda text: text.rstrip("."),
}


def generate(r: Random, slot: str) -> str:
    """Draw a value for a slot; `{num3}` is a slot of its own, `{p2}` is a second `{p}`."""
    for name in (slot, slot.rstrip("0123456789")):
        if name in _rules():
            return _value(r, _rules()[name])
        if name in word_lists():
            return word(r, name)
    raise KeyError(f"no rule and no word list for the slot {{{slot}}}")


def form(r: Random, template: str, values: Mapping[str, str] = MappingProxyType({})) -> str:
    """Draw the text of a template of the grammar; `values` are its variables."""
    split = enumerate(_split(template, "{}"))
    return "".join(_drawn(r, part, values) if number % 2 else part for number, part in split)


@cache
def _rules() -> dict[str, list[str]]:
    return read_blocks("values.txt")


def _value(r: Random, lines: list[str]) -> str:
    values: dict[str, str] = {}
    while match := re.match(r"(\w+) = (.*)", lines[0]):
        values[match[1]], lines = form(r, match[2], values), lines[1:]
    if re.match(r"0\.\d+ ", lines[0]):
        x, shares = r.random(), [line.split(" ", 1) for line in lines]
        return form(r, next(text for share, text in shares if x < float(share)), values)
    return form(r, r.choice(lines), values)


@cache
def _split(text: str, marks: str) -> list[str]:
    """Split at top-level marks: at `{` and `}` themselves, or at a mark outside of braces."""
    parts, depth = [""], 0
    for character in text:
        before, depth = depth, depth + {"{": 1, "}": -1}.get(character, 0)
        outermost = {before, depth} == {0, 1} if marks == "{}" else not depth
        if character in marks and outermost:
            parts.append("")
        else:
            parts[-1] += character
    return parts


def _drawn(r: Random, part: str, values: Mapping[str, str]) -> str:
    if match := re.match(r"(0\.\d+)\?", part):
        yes, no = _split(part[match.end() :], ":")
        return form(r, yes if r.random() < float(match[1]) else no, values)
    if len(forms := _split(part, "|")) > 1:
        return form(r, r.choice(forms), values)
    match = re.fullmatch(r"(.+?)(?:!(\w+))?(?::([\w,]+))?", part)
    assert match is not None, part
    text = _atom(r, match[1], values)
    if match[2]:
        return _FILTERS[match[2]](text)
    return format(int(text), match[3]) if match[3] else text


def _atom(r: Random, name: str, values: Mapping[str, str]) -> str:
    if match := re.fullmatch(r"(\d+)-(\d+)(?:\*(\d+))?", name):
        low, high, times = (int(group or 1) for group in match.groups())
        return str(r.randint(low, high) * times)
    if match := re.fullmatch(r"([#@%])(\d)(?:-(\d))?", name):
        count = r.randint(int(match[2]), int(match[3] or match[2]))
        return "".join(r.choices(_CHARACTERS[match[1]], k=count))
    return values[name] if name in values else generate(r, name)


def phrased(r: Random, template: str) -> str:
    """Choose among the alternatives of a template: [one|another]; the innermost come first."""

    def choose(match: re.Match[str]) -> str:
        forms: list[str] = match[1].split("|")
        return r.choice(forms)

    while (text := re.sub(r"\[([^\[\]]*)\]", choose, template)) != template:
        template = text
    return template


def slots_of(template: str) -> set[str]:
    """Return the slots of a template."""
    return set(re.findall(r"\{(\w+)\^?\}", template))


def draw(
    r: Random,
    slots: Iterable[str],
    generator: Callable[[Random, str], str] = generate,
    given: Mapping[str, str] = MappingProxyType({}),
) -> dict[str, str]:
    """Draw a value for every slot that is not given, all different where eight tries are enough."""
    values = dict(given)
    for slot in sorted(set(slots) - given.keys()):
        for _ in range(8):
            drawn = generator(r, slot)
            if drawn not in values.values():
                break
        values[slot] = drawn
    return values


def capitalized(text: str) -> str:
    """Return the text with a capital letter first."""
    return text[:1].upper() + text[1:]


def fill(template: str, values: Mapping[str, str]) -> str:
    """Put values into a template ({slot^} begins a sentence) and mend the articles around them."""

    def put(match: re.Match[str]) -> str:
        text = values[match[1].rstrip("^")]
        return capitalized(text) if match[1].endswith("^") else text

    text = re.sub(r"\{(\w+\^?)\}", put, template)
    text = re.sub(r"\b([Tt]he|[Mm]y|[Oo]ur|[Aa]) (?:the|a|my|our) ", r"\1 ", text)
    text = re.sub(r"\ba ([aeiouAEIO])", r"an \1", text)
    text = re.sub(r"\b[Aa] ((?:my|the|our)\b)", r"\1", text)
    return re.sub(r"\b([Tt]he) the\b", r"\1", text)
