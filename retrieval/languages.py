"""Tells a question that is not in English, by the words that hold its sentences together. Pure.

It names a language only where it is sure: names, titles and quotations of another language are in
English questions, too.
"""

import re
import tomllib
import unicodedata
from collections import Counter
from pathlib import Path

_TABLES = tomllib.loads(Path(__file__).with_name("function_words.toml").read_text("utf-8"))
_WORDS = {
    name: (frozenset(each["own"].split()), frozenset(each["shared"].split()))
    for name, each in _TABLES.items()
}
_SCRIPTS = {
    **{each: each for each in ("Greek", "Cyrillic", "Arabic", "Hebrew", "Devanagari", "Bengali")},
    **{each: each for each in ("Tamil", "Thai", "Georgian", "Armenian")},
    **dict.fromkeys(("Hiragana", "Katakana"), "Japanese"),
    "Cjk": "Chinese",
    "Hangul": "Korean",
}
"""Languages of texts with most letters in a script, by Unicode's names."""
_WORD = re.compile(r"[^\W\d_]+")


def language_of(text: str) -> str | None:
    """Return the language of a question, by its name in English; None: English, or not known."""
    words = [word.casefold() for word in _WORD.findall(text)]
    scripts = Counter(
        unicodedata.name(letter, "?").partition(" ")[0].title() for word in words for letter in word
    )
    script, letters = max(scripts.items(), key=lambda each: each[1], default=("Latin", 0))
    if script in _SCRIPTS and letters > 1:
        has_kana = scripts["Hiragana"] + scripts["Katakana"] > 0
        return "Japanese" if has_kana else _SCRIPTS[script]
    there = set(words)
    english = len(there & _WORDS["English"][0])
    found = []
    for name, (own, shared) in _WORDS.items():
        sure, all_words = len(there & own), len(there & (own | shared))
        is_question = sure > english and (all_words > 1 or words[0] in own)
        is_sentence = not english and all_words > 2 and 2 * all_words >= len(there)
        if is_question or is_sentence:
            found.append((sure, all_words, name))
    return max(found)[-1] if found else None
