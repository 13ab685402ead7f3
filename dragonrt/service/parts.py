"""The parts of a question, and the text that joins their answers. Pure.

A question is cut at "and", a comma, a semicolon or the end of a sentence, if what stands before
asks something and a question begins behind: a question word, a preposition with one, or an
auxiliary with its subject. It reads English. A doubtful place is not cut: a relative clause that is
asked as a question is worse than two questions in one.
"""

import re
from collections.abc import Sequence

MOST = 8
"""The most parts; the last one keeps the rest."""
LONGEST = 400
"""Characters of a question that may be cut: a longer text is more than a question."""

_HAVE = r"(?:is|are|was|were|has|have|had)(?:n't)?"
_DO = r"(?:do|does|did|can|could|will|would|shall|should|may|might|must)(?:n't|not)?"
_AUXILIARY = rf"(?:{_HAVE}|{_DO})"
_PRONOUN = r"(?:i|you|he|she|it|we|they|there|this|that|these|those|my|our|your|his|her|its|their)"
_SUBJECT = rf"(?:{_PRONOUN}|the|an?|(?-i:[A-Z])\w*)"
_PREPOSITION = (
    r"(?:about|after|against|at|before|by|during|for|from|in|into|near|of|on|over|since|through|to"
    r"|under|until|with|within)"
)
_END = r"(?:\s*(?:[?.!,;]|$)|\s+and\b)"
# A question word as it begins a question, not a clause.
_ASKING = (
    rf"(?:what(?:'s\b|\b(?!\s+{_PRONOUN}\b))|how\s+(?!{_SUBJECT}\b)\w"
    rf"|(?:when|where|why)(?:'s\b|\s+{_AUXILIARY}\b)|(?:when|where|why|how|who|which){_END}"
    rf"|{_PREPOSITION}\s+(?:(?:what|how|when|where)\b|whom{_END}|which\s+(?!{_SUBJECT}\b|{_AUXILIARY}\b)))"
)
_RELATIVE = rf"(?:who(?:m|se|'s)?\b|which\b(?!\s+{_SUBJECT}\b))"  # may begin a clause, too
_INVERTED = rf"{_AUXILIARY}\s+{_PRONOUN}\b"

_PLACE = re.compile(
    r"(?P<end>[?!]+[\"'”’)]*\s+|\.\s+(?=[A-Z]))|[,;]?\s+(?P<and>and\s+)|(?P<comma>[,;]\s+)", re.I
)
_QUOTED = re.compile(r"\"[^\"]*\"|“[^”]*”|\([^)]*\)")
_SENTENCE = re.compile(r"[.!]\s+")
_LEAD = re.compile(r"(?:(?:and|but|so|then|also)\s+)+", re.I)

_FIRST = re.compile(rf"{_ASKING}|{_RELATIVE}|{_AUXILIARY}\b|what\b", re.I)
_WITHIN = re.compile(rf"\b(?:{_ASKING}|{_RELATIVE}|what\b)", re.I)
_AFTER_COMMA = re.compile(
    rf"{_ASKING}|{_INVERTED}|who\b(?=[^,]*,?\s+and\s+(?:{_ASKING}|who\b))", re.I
)
_AFTER_AND = re.compile(rf"{_ASKING}|{_INVERTED}|{_RELATIVE}", re.I)
_AFTER_INVERTED = re.compile(rf"{_AUXILIARY}\s+{_SUBJECT}\b", re.I)
_IS_INVERTED = re.compile(rf"(?:when|where|why|how|{_AUXILIARY})\b", re.I)
_BETWEEN = re.compile(r"\bbetween\b(?!.*\band\b)", re.I)
_BARE = re.compile(rf"(?:{_PREPOSITION}\s+)?(?:(?:which|whose|how)\s+)?\w+", re.I)


def parts_of(question: str) -> list[str]:
    """Return the parts of a question, each a question of its own; itself if it has one only."""
    if len(question) > LONGEST:
        return [question]
    hidden = _QUOTED.sub(lambda quoted: "_" * len(quoted[0]), question)
    places: list[tuple[int, int]] = []
    for place in _PLACE.finditer(hidden):
        first = places[-1][1] if places else 0
        if 1 + len(places) < MOST and _is_cut(hidden[first : place.start()], place, hidden):
            places.append(place.span())
    if not places:
        return [question]
    starts, ends = [0, *(end for _, end in places)], [*(start for start, _ in places), None]
    pieces = (question[start:end] for start, end in zip(starts, ends, strict=True))
    return [_question(piece) for piece in pieces]


def _is_cut(before: str, place: re.Match[str], text: str) -> bool:
    behind = text[place.end() :]
    sentences = _SENTENCE.split(before.strip())
    asks = any(_FIRST.match(_unled(each)) for each in sentences)
    if place["end"]:
        following = _SENTENCE.split(behind.partition("?")[0])
        return asks and any(_FIRST.match(_unled(each)) for each in following)
    if text.startswith(before) and _BARE.fullmatch(before):  # "When and where is it?"
        return False
    if place["comma"]:
        return asks and _AFTER_COMMA.match(_unled(behind)) is not None
    if not (asks or _WITHIN.search(before)) or _BETWEEN.search(before):
        return False
    behind = _unled(behind)
    if _IS_INVERTED.match(sentences[-1]) and _AFTER_INVERTED.match(behind):
        return True
    if _AFTER_AND.match(behind) is None:
        return False
    # "who lost and who died": the second clause is as relative as the first.
    word = behind[:3].lower()
    return word not in ("who", "whi") or word not in sentences[-1][3:].lower()


def _unled(text: str) -> str:
    lead = _LEAD.match(text)
    return text[lead.end() :] if lead else text


def _question(piece: str) -> str:
    text = _unled(piece.strip(" \t\n,;?.!"))
    return f"{text[:1].upper()}{text[1:]}?"


class JoinedText:
    """Joins the answers of several parts while they are generated; a single answer stays as it is.

    A refusal waits for the answer of another part, and then names its own: "who bred them: I don't
    know." That of a part without words is left out. If all parts are refused, the text is one
    refusal. `text` is what is shown so far; `places` are the characters of it where the parts'
    answers begin.
    """

    def __init__(self, parts: Sequence[str], refusal: str) -> None:
        self.text = ""
        self.places = [0] * len(parts)
        self._parts, self._refusal = parts, refusal.strip().casefold()
        self._number, self._said, self._shown = 0, "", 0
        self._refused: dict[int, str] = {}

    def push(self, text: str) -> tuple[str, str]:
        """Return a lead and words to show, after more text of the part under way."""
        self._said += text
        several = len(self._parts) > 1
        if several and not self._shown and self._may_refuse():
            return "", ""
        before = len(self.text)
        if not self._shown:
            self._release()
            self._begin(self._number)
        lead = self.text[before:]
        # White space at its end waits for the next word: a separator may come.
        words = (self._said.rstrip() if several else self._said)[self._shown :]
        self._shown += len(words)
        self.text += words
        return lead, words

    def next(self) -> None:
        """Go on to the next part."""
        if not self._shown and self._said.strip():
            self._refused[self._number] = self._said.strip()
        self._number, self._said, self._shown = self._number + 1, "", 0

    def end(self) -> str:
        """Return the refusals to show behind the last part."""
        before = len(self.text)
        if not self.text and self._refused:
            self.text = self._refused.popitem()[1]
        else:
            self._release()
        return self.text[before:]

    def _may_refuse(self) -> bool:
        said, refusal = self._said.casefold().strip(), self._refusal
        return refusal.startswith(said) or (refusal != "" and said.startswith(refusal))

    def _release(self) -> None:
        for number, said in self._refused.items():
            if self._parts[number]:
                self._begin(number, f"{self._parts[number].rstrip('?')}: ")
                self.text += said
        self._refused = {}

    def _begin(self, number: int, label: str = "") -> None:
        """Append what stands before a part's answer."""
        if self.text and self.text[-1] not in ".!?\u2026":
            self.text += "; "
            label = label[:1].lower() + label[1:] if label[1:2].islower() else label
        elif self.text:
            self.text += " "
        self.text += label
        self.places[number] = len(self.text)
