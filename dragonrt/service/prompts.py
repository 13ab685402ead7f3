"""Analyse a question: small talk, its language, a task on a whole document, its parts.

Only English is analysed. A task on a document, such as a list, reads each chunk in its own turn.

A question is cut into parts at "and", a comma, a semicolon or the end of a sentence, if the words
before ask something and those behind begin a question. Of a bridge, such as "Who runs the firm
that insures my boat?", the relative clause is asked first: "Which firm insures my boat?"
"""

import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from pathlib import PurePath

from dragonrt import bundled
from dragonrt.backends.model import LanguageModel
from dragonrt.errors import DragonError
from dragonrt.modes.question import Question
from dragonrt.traces.events import Noticed, NoticeKind
from retrieval.questions import language_of

MOST_CHUNKS = 12
"""The most chunks of a document that are read."""
MOST_PARTS = 8
"""The most parts; the last one keeps the rest."""
LONGEST = 400
"""Characters of a question that may be cut: a longer text is more than a question."""
MOST_NAMES = 10
"""The most documents that a reply names."""
READERS = (bundled.SMOLLM2, *bundled.models())
"""Models that find an answer in a text, and write none of their own."""

_PLEASE = r"\s*(?:(?:please|can you|could you|would you)\s+)*"
_MAKE = r"(?:make|write|give|create)\s+(?:me\s+)?(?:an?|the)\s+"
_LIST = re.compile(rf"{_PLEASE}(?:list|name all|{_MAKE}(?:\w+[\s-]+)?list)\b", re.I)
_WRITTEN = {
    "summarise": re.compile(
        rf"{_PLEASE}(?:summari[sz]e|sum\s+up|tl;?dr|{_MAKE}(?:\w+\s+)?summary)\b", re.I
    ),
    "compare": re.compile(rf"{_PLEASE}(?:compare|contrast)\b", re.I),
}
_OBJECT = r"(?:summari[sz]e|sum up|of|from|in|for|on) (?:the |my |our )?"

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


_WORD = r"(?:who|whom|whose|what|which|when|where|why|how)"
_BRIDGE = re.compile(
    rf"(?P<before>.*\b{_WORD}\b.*)\bthe "
    rf"(?P<noun>(?:(?!(?:{_AUXILIARY}|{_PREPOSITION}|{_WORD}|an?|and|or)\b)[\w'’-]+ ){{1,3}}?)"
    rf"(?P<clause>(?:(?P<word>(?-i:who|that|which)) (?!{_SUBJECT}\b)"
    rf"|(?:who|that|which|where) (?={_SUBJECT}\b)|(?=(?:I|you|he|she|we|they)\b)).+)",
    re.DOTALL | re.I,
)
_NAMES = re.compile(rf"{_WORD} {_HAVE} ", re.I)
_VERB = re.compile(r" (?:be )?[\w'’-]+$")


_BACKGROUND = re.compile(r"\s*### Task:\n.*\n<chat_history>\n.*</chat_history>\s*", re.DOTALL)


def is_background(prompt: str) -> bool:
    """Return whether a prompt is a task by Open WebUI itself, such as to write a title or tags."""
    return _BACKGROUND.fullmatch(prompt) is not None


_SMALL_TALK = {
    r"(?:hello|hi|hey|good (?:morning|afternoon|evening))(?: there)?": "Hello. Ask a question.",
    r"(?:(?:ok|okay|great)[, ]+)?(?:many )?(?:thanks|thank you)(?: (?:a lot|so much|very much))?": (
        "You're welcome."
    ),
    r"(?:good ?)?bye|good night|see you(?: later| soon)?": "Goodbye.",
    r"(?:who|what) are you|what can you do": (
        "I find the answers to questions in your documents and the cloud's. I read English."
    ),
    r"(?:what|which) (?:documents|files|notes) (?:do (?:you|i|we) have|are there)"
    r"|(?:list|show)(?: me)?(?: all| my| your| the)* (?:documents|files)": "{}",
}


def small_talk(prompt: str, model: str, names: Sequence[str] = ()) -> str:
    """Return the fixed reply to small talk, such as "hello", or "" if `prompt` is anything else.

    The reply may list the user's files by `names`. If `model` is not a bundled one, returns "".
    """
    forms = _SMALL_TALK if model in READERS else ()
    said = next((each for each in forms if re.fullmatch(rf"\s*(?:{each})\W*", prompt, re.I)), "")
    few = ", ".join(names[:MOST_NAMES]) + ", …" * (len(names) > MOST_NAMES)
    return said and _SMALL_TALK[said].format(f"{len(names)} of your own{few and ': '}{few}")


class OtherLanguageError(DragonError):
    """A question in a language that the model does not read."""


def check_language(model: LanguageModel, question: str) -> None:
    """Raise OtherLanguageError if the question is in a language that the model does not read."""
    reads = model.prompt.template.languages
    if reads and (language := language_of(question)) and language not in reads:
        raise OtherLanguageError(
            f"the question seems to be in {language}, but {model.name} reads {', '.join(reads)}: "
            f"ask in that, or use another model on both sides, such as {bundled.LARGER_MODEL}"
        )


class TaskError(DragonError):
    """A task, such as a summary, that the model cannot do."""


def reads_whole(prompt: str, model: str) -> bool:
    """Return whether a prompt is a task on a whole document: to summarise it, or to make a list.

    Raises TaskError for a summary or comparison, if the model of that name cannot write one.
    """
    for verb, pattern in _WRITTEN.items():
        if pattern.match(prompt):
            if model in READERS:
                raise TaskError(
                    f"this model finds facts in documents, and does not {verb}: ask for a fact, or "
                    f"use a larger model on both sides, such as {bundled.LARGER_MODEL}"
                )
            return verb == "summarise"
    return _LIST.match(prompt) is not None


def named_in(prompt: str, files: Iterable[str]) -> str:
    """Return the file that a prompt names, as in "summarise the report"; "" if it names none."""
    text = _plain(prompt)
    found: list[tuple[int, str]] = []
    for file in files:
        name = PurePath(file)
        whole, stem = _plain(name.name), _plain(name.stem)
        if re.search(rf"(?<!\w){re.escape(whole)}(?!\w)", text):
            found.append((len(whole), file))
        elif re.search(rf"\b{_OBJECT}{re.escape(stem)}(?!\w)", text):
            found.append((len(stem), file))
    return max(found, default=(0, ""))[1]


def _plain(text: str) -> str:
    return " ".join(re.sub(r"[_-]", " ", text.casefold()).split())


def turns(question: Question, document: str, chunks: int) -> tuple[list[Question], list[Noticed]]:
    """Return a copy of `question` for each chunk of `document`, and a notice if some are not read.

    Each copy asks about one of the first 12 of `chunks` chunks; the cloud then reads no documents.
    """
    alone = replace(question, document=document, documents=0)
    asked = [replace(alone, chunk=place) for place in range(min(chunks, MOST_CHUNKS))]
    more = f"{document} has {chunks} pieces, of which the first {MOST_CHUNKS} are read"
    return asked, [Noticed(NoticeKind.BEGINNING, more)] if chunks > MOST_CHUNKS else []


def parts_of(question: str) -> list[str]:
    """Split a question into parts that can be asked alone; a list of one if there is one part."""
    if len(question) > LONGEST:
        return [question]
    hidden = _QUOTED.sub(lambda quoted: "_" * len(quoted[0]), question)
    places: list[tuple[int, int]] = []
    for place in _PLACE.finditer(hidden):
        first = places[-1][1] if places else 0
        if 1 + len(places) < MOST_PARTS and _is_cut(hidden[first : place.start()], place, hidden):
            places.append(place.span())
    if not places:
        return [question]
    starts, ends = [0, *(end for _, end in places)], [*(start for start, _ in places), None]
    pieces = (question[start:end] for start, end in zip(starts, ends, strict=True))
    return [_question(piece) for piece in pieces]


def bridge_of(question: str) -> tuple[str, Callable[[str], str]] | None:
    """Return the question to ask first, and a function from its answer to the next question.

    For "Who runs the firm that insures my boat?" they are "Which firm insures my boat?" and a
    function to "Who runs ANSWER?". Returns None for a question without such a relative clause.
    """
    text, behind = question.strip(" \t\n?.!"), ""
    found = _BRIDGE.fullmatch(text) if len(text) <= LONGEST else None
    if found is None or _NAMES.fullmatch(found["before"]):  # "What is the pan that we lent out?"
        return None
    before, noun, clause = found["before"], found["noun"].strip(), found["clause"]
    if re.search(rf"\b{_DO}\s*$", before, re.I):  # "Where did the doctor who ... study?"
        verb = _VERB.search(clause)
        if verb is None or " " in noun:
            return None
        clause, behind = clause[: verb.start()], verb[0]
    asks = "Who" if found["word"] == "who" else f"Which {noun}"
    inner = clause.partition(" ")[2] if found["word"] else f"is it {clause}"
    return f"{asks} {inner}?", lambda answer: f"{before}{answer.rstrip('.')}{behind}?"


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
