"""Templates with {slots}: which they have, values for them, and a sentence from both.

A slot is a generator of values.py or a list of words.txt of the same name. Numbers at the end of a
slot's name tell apart several values of one sort (`{p}`, `{p2}`).
"""

import re
from random import Random

from .blocks import word_lists
from .values import GENERATORS, word


def generate(r: Random, slot: str) -> str:
    """A value for a slot; `{num3}` is a slot of its own, `{p2}` is a second `{p}`."""
    for name in (slot, slot.rstrip("0123456789")):
        if name in GENERATORS:
            return GENERATORS[name](r)
        if name in word_lists():
            return word(r, name)
    raise KeyError(f"no generator and no word list for the slot {{{slot}}}")


def slots_of(template: str) -> set[str]:
    return set(re.findall(r"\{(\w+)\^?\}", template))


def draw(r: Random, slots: set[str]) -> dict[str, str]:
    """One value for every slot, all different where eight tries are enough."""
    values: dict[str, str] = {}
    for slot in sorted(slots):
        for _ in range(8):
            drawn = generate(r, slot)
            if drawn not in values.values():
                break
        values[slot] = drawn
    return values


def capitalized(text: str) -> str:
    return text[:1].upper() + text[1:]


def fill(template: str, values: dict[str, str]) -> str:
    """Put values into a template ({slot^} begins a sentence) and mend the articles around them."""

    def put(match: re.Match[str]) -> str:
        slot = match[1]
        text = values[slot.rstrip("^")]
        return capitalized(text) if slot.endswith("^") else text

    text = re.sub(r"\{(\w+\^?)\}", put, template)
    text = re.sub(r"\b([Tt]he|[Mm]y|[Oo]ur|[Aa]) (?:the|a|my|our) ", r"\1 ", text)
    text = re.sub(r"\ba ([aeiouAEIO])", r"an \1", text)
    text = re.sub(r"\b[Aa] ((?:my|the|our)\b)", r"\1", text)
    return re.sub(r"\b([Tt]he) the\b", r"\1", text)
