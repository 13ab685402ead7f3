"""The levels of disclosure: what leaves the device beside the question (SPEC 1.10).

level     up                                    down      who decides
drafts    drafts: distributions and relevance   the same  any placement
answer    target tokens                         drafts    the device
redacted  those likely for the cloud, too       drafts    the device (see `redaction`)
"""

from enum import StrEnum
from typing import Final

from dragonrt.side import Side
from dragonrt.wire.messages import Draft, Opened, SessionMessage, Target, Working


class Disclosure(StrEnum):
    """The values of `--disclose`."""

    DRAFTS = "drafts"
    ANSWER = "answer"
    REDACTED = "redacted"


FLOOR: Final = 0.25
"""The least cosine of a document that is read if the device keeps its drafts, because text outside
of the context cannot leak (SPEC 1.11). Measured with the bundled embedder."""

ADMITTED: Final[dict[Side, tuple[type[SessionMessage], ...]]] = {
    "device": (Working, Opened, Draft),
    "cloud": (Target,),
}
"""All messages that a side accepts if the device keeps its drafts."""
