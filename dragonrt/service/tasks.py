"""Tasks over a document as a whole, and the turns that they consist of. Pure.

A list is made of a document that the task names, or that was chosen: its chunks are read one after
another, each in a turn that reads nothing else, and their answers are joined. So is a summary, if
the model can make one. English only.
"""

import re
from collections.abc import Iterable
from dataclasses import replace
from pathlib import PurePath

from dragonrt import bundled
from dragonrt.errors import DragonError
from dragonrt.modes.question import Question
from dragonrt.traces.events import Noticed, NoticeKind

MOST = 12
"""The most chunks of a document that are read."""
READERS = (bundled.SMOLLM2, *bundled.models())
"""Models that find an answer in a text, and write none of their own."""

_PLEASE = r"\s*(?:(?:please|can you|could you|would you)\s+)*"
_MAKE = r"(?:make|write|give|create)\s+(?:me\s+)?(?:an?|the)\s+"
_LIST = re.compile(
    rf"{_PLEASE}(?:list|name all|{_MAKE}(?:\w+[\s-]+)?list)\b",
    re.I,
)
_WRITTEN = {
    "summarise": re.compile(
        rf"{_PLEASE}(?:summari[sz]e|sum\s+up|tl;?dr|{_MAKE}(?:\w+\s+)?summary)\b",
        re.I,
    ),
    "compare": re.compile(rf"{_PLEASE}(?:compare|contrast)\b", re.I),
}
_OBJECT = r"(?:summari[sz]e|sum up|of|from|in|for|on) (?:the |my |our )?"


class TaskError(DragonError):
    """The model cannot do what is asked."""


def reads_whole(prompt: str, model: str) -> bool:
    """Return whether a prompt is a task on a document as a whole, for the model of that name.

    Raises TaskError if the model cannot do it.
    """
    for verb, pattern in _WRITTEN.items():
        if pattern.match(prompt):
            if model in READERS:
                raise TaskError(
                    f"the bundled model does not {verb}; a larger one does: start both sides with "
                    f"another --model, such as {bundled.LARGER_MODEL}"
                )
            return verb == "summarise"
    return _LIST.match(prompt) is not None


def named_in(prompt: str, files: Iterable[str]) -> str:
    """Return the file that a task names, with its suffix or as its object; "" if it names none."""
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
    """Return a turn for each chunk of a document, and notices if it has more than are read.

    The other side reads nothing: the document is not there.
    """
    alone = replace(question, document=document, documents=0)
    asked = [replace(alone, chunk=place) for place in range(min(chunks, MOST))]
    more = f"{document} has {chunks} pieces, of which the first {MOST} are read"
    return asked, [Noticed(NoticeKind.BEGINNING, more)] if chunks > MOST else []
