"""The kinds of notices, one word each: programs and tests match these, never the text."""

from enum import StrEnum


class NoticeKind(StrEnum):
    """The subject of a notice."""

    ALONE = "alone"  # this side goes on alone
    WAITING = "waiting"  # the answer waits for another side
    PARTED = "parted"  # the cloud, which is away, receives no more of this answer
    ABSENT = "absent"  # a worker takes no part
    LATE = "late"  # a worker takes no part because it missed the deadline
    BACK = "back"  # a worker takes part again
    DISAGREEMENT = "disagreement"  # documents hold another value than the answer
    BEGINNING = "beginning"  # only the beginning of a document is read
    LOST = "lost"  # a connection is lost
    CONNECTED = "connected"  # a connection is there, or there again
    REFUSED = "refused"  # another side refuses this side
    UNREACHED = "unreached"  # another side cannot be reached yet
    CUT = "cut"  # a document has pieces that are longer than the model reads
    STORE = "store"  # computed KV is not stored
