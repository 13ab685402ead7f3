"""Find in a question the words to search for, the earlier turns it needs, and its language.

"And when is it?" names no subject without the turn before it. A question that names its subject is
searched alone; otherwise documents of the last subject would be found, too.
"""

import calendar
import re
import tomllib
import unicodedata
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

from .chunking import space_cjk

_FUNCTION_WORDS = frozenset(
    re.findall(
        r"\w+",
        "a about all am an and any are as at be been but by can could did do does for from get "
        "got had has have having he her hers him his how i if in into is it its me might mine "
        "much many my no not of on or our ours out shall she should so some somewhere s t than "
        "that the their theirs them then there these they this those to too us was we were what "
        "when where whether which who whom whose why will with would you your yours ",
    )
)
_CONTINUING = re.compile(r"\s*(and|but|or|so|then|also|(what|how) about)\b", re.IGNORECASE)
_REFERRING = re.compile(
    r"\b(it|its|he|him|his|she|her|hers|they|them|their|theirs|this|these|those)\b", re.IGNORECASE
)
_OWN = re.compile(r"(?<=[\w,] )[A-Z]\w+ I\b|\b(I|[Mm]e|[Mm]y|[Mm]ine|[Ww]e|us|[Oo]urs?)\b")
_TABLES = tomllib.loads(Path(__file__).with_name("function_words.toml").read_text("utf-8"))
_BY_LANGUAGE = {
    name: {kind: frozenset(words.split()) for kind, words in each.items()}
    for name, each in _TABLES.items()
}
_ENGLISH = _FUNCTION_WORDS | _BY_LANGUAGE.pop("English")["own"]
_SCRIPTS = {
    **{each: each for each in ("Greek", "Cyrillic", "Arabic", "Hebrew", "Devanagari", "Bengali")},
    **{each: each for each in ("Tamil", "Thai", "Georgian", "Armenian")},
    **dict.fromkeys(("Hiragana", "Katakana"), "Japanese"),
    "Cjk": "Chinese",
    "Hangul": "Korean",
}
"""Languages of texts with most letters in a script, by Unicode's names."""
_LETTERS = re.compile(r"[^\W\d_]+")
_DAY = r"(\d{4}-\d\d-\d\d(?:[T ]\d\d:\d\d(?::\d\d)?)?)"
_DATED = re.compile(rf"(?im)^(?:date|created|updated|modified|lastmod)[ \t]*:[ \t\"']*{_DAY}")
_MONTH = re.compile(r"\d{4}-(0[1-9]|1[0-2])(?:-(\d\d))?(?!\d)")
_TAGS = re.compile(r"(?im)^(?:tags?|keywords)[ \t]*:(.*(?:\n[ \t]*- .*)*)")
_MOST_ABOUT = 1000  # characters of a file's search words, which each of its chunks has


def words_of(question: str) -> dict[str, int]:
    """Return the words of a question to search for, with weights: 2 for names and numbers, else 1.

    Names count more since a chunk about another place answers another question. Function words are
    omitted (in a small corpus "my" may be rarer than "ferry") unless the question has no others.
    """
    words: dict[str, int] = {}
    for number, word in enumerate(re.findall(r"\w+", space_cjk(question))):
        weight = 2 if word[0].isdigit() or (number and word[0].isupper()) else 1
        words[word.lower()] = max(weight, words.get(word.lower(), 0))
    return {w: weight for w, weight in words.items() if w not in _FUNCTION_WORDS} or words


def is_about_asker(question: str) -> bool:
    """Return whether a question has "I", "my" or so: a device's documents then gain relevance."""
    return any(match[1] for match in _OWN.finditer(question))


def missing_share(question: str, text: str) -> float:
    """Return the share (0 to 1) of a question's names and numbers that a document's text lacks."""
    named = {word for word, weight in words_of(question).items() if weight > 1}
    return len(named.difference(re.findall(r"\w+", space_cjk(text.lower())))) / max(1, len(named))


def date_and_words(name: str, front: str) -> tuple[str, str]:
    """Return a file's ISO date ("" if none) and search words, from its `name` and `front` matter.

    A search finds the file's chunks by these words, too: its name with folders, each tag after "#",
    dates such as "31 January" for 2026-01-31, and the front matter.
    """
    words = [name]
    for tags in _TAGS.findall(front):
        words += [
            f"#{tag.lower()}" for tag in re.findall(r"[^\s,\[\]\"'#]*\w[^\s,\[\]\"'#]*", tags)
        ]
    for month, day in _MONTH.findall(f"{name}\n{front}"):
        words.append(f"{day.lstrip('0')} {calendar.month_name[int(month)]}")
    dates = [each.replace(" ", "T") for each in _DATED.findall(front)]
    return max(dates, default=""), " ".join([*words, front])[:_MOST_ABOUT]


def in_context(question: str, earlier: Sequence[tuple[str, str]]) -> str:
    """Return the text to search for: the question, after as many `earlier` turns as it needs.

    Turns, oldest first, are (question, answer), "" for no answer. A question needs the turn before
    if it begins as a sequel ("and", "what about"), refers to something ("it", "she") or has only
    function words; that turn's question may need one, too. With turns the question comes twice.
    """
    first, texts = question, [question]
    for before, answer in reversed(earlier):
        if not _follows(first):
            break
        first, texts = before, [before, answer, *texts]
    if len(texts) > 1:  # twice: or the document of the turn before would be nearest again
        texts.append(question)
    return " ".join(filter(None, texts))


def _follows(question: str) -> bool:
    return bool(
        _CONTINUING.match(question) or _REFERRING.search(question) or len(words_of(question)) < 2
    )


def language_of(text: str) -> str | None:
    """Return the language of a question by its English name; None for English or if unsure."""
    words = [word.casefold() for word in _LETTERS.findall(text)]
    scripts = Counter(
        unicodedata.name(letter, "?").partition(" ")[0].title() for word in words for letter in word
    )
    script, letters = max(scripts.items(), key=lambda each: each[1], default=("Latin", 0))
    if script in _SCRIPTS and letters > 1:
        has_kana = scripts["Hiragana"] + scripts["Katakana"] > 0
        return "Japanese" if has_kana else _SCRIPTS[script]
    first, second = [*words, "", ""][:2]
    there, found = set(words), []
    for name, kinds in _BY_LANGUAGE.items():
        own, opens = kinds["own"], kinds["opens"]
        all_words = own | opens | kinds["shared"]
        english, sure, many = (len(there & each) for each in (_ENGLISH - all_words, own, all_words))
        is_question = sure > english and (many > 1 or first in own)
        begins = first in opens or (first in all_words and second in opens)
        is_sentence = not english and begins and many > 1 and 2 * many >= len(there)
        if is_question or is_sentence:
            found.append((sure, many, name))
    return max(found)[-1] if found else None
