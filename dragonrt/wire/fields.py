"""The types of messages' fields, each with its bounds, which are checked on received bytes.

Settings travel as pairs (name, value), so that each is declared only once (see `setting`).
"""

import struct
from typing import Annotated, Any, Final, TypeAlias, TypeVar

from msgspec import Meta, Struct
from msgspec.structs import force_setattr

from dragonrt.errors import DragonError
from dragonrt.settings import FINITE, assemble, entries, flat
from dragonrt.side import Side
from dragonrt.wire.reasons import MessageError, Reason

NONCE_BYTES = 16
PROOF_BYTES = 32
MAX_NAME = 128
MAX_MODEL_NAME = 512
MAX_CONVERSATION = 1024 * 1024
MAX_TURNS = 64
MAX_TOKENS = 65536
MAX_STEP = 2 * MAX_TOKENS  # a side may draft beyond the last token, within this limit
MAX_TOKEN = 2**31 - 1
MAX_STOP_TOKENS = 256
MAX_DOCUMENTS = 256
MAX_MISSING = 64
MAX_CODE = 256
MAX_RUN_AHEAD = 4096
MAX_PAYLOAD = 2 * 1024 * 1024
MAX_BLOCK = 256
MAX_RESOLUTION = 2**20
MAX_UPLOAD = 3 * 1024 * 1024
MAX_PADDING = 1024 * 1024
MAX_32 = 2**32 - 1
MAX_TIME_US = 2**63 - 1
MAX_LINE = 1024
MOST_VALUES = 64
LONGEST_VALUE = 256 * 1024  # bytes: as many as the accepted tokens of the longest answer take
# Controls, spaces but " ", what is invisible or turns the direction, surrogates, private use.
_PRINTABLE: Final = (
    r"\A[^\x00-\x1f\x7f-\xa0\xad\u061c\u1680\u180e\u2000-\u200f\u2028-\u202f\u205f-\u206f"
    r"\u3000\ud800-\uf8ff\ufeff\ufff0-\ufffb\U000e0000-\U0010ffff]+\Z"
)


class Fields(Struct, frozen=True, array_like=True, forbid_unknown_fields=True):
    """Base of messages and their parts: typed fields, sent as an array of their values."""

    def clean(self, *names: str) -> None:
        """Blank unprintable characters in the named text fields, and cut the texts to 1024 bytes.

        Messages call this for texts that people read, so that no peer can control a terminal.
        """
        for name in names:
            force_setattr(self, name, _one_line(getattr(self, name)))


def _one_line(line: str) -> str:
    if not line.isprintable():
        line = "".join(c if c.isprintable() else " " for c in line)
    if len(line) * 4 > MAX_LINE:
        line = line.encode()[:MAX_LINE].decode(errors="ignore")
    return line


def printable(limit: int) -> Meta:
    """Return msgspec's constraint for a field's text: 1 to `limit` printable characters."""
    words = f"1 to {limit} printable characters"
    return Meta(max_length=limit, pattern=_PRINTABLE, description=words)


U32: TypeAlias = Annotated[int, Meta(ge=0, le=MAX_32)]
Time: TypeAlias = Annotated[int, Meta(ge=0, le=MAX_TIME_US)]
Step: TypeAlias = Annotated[int, Meta(ge=0, le=MAX_STEP)]
Token: TypeAlias = Annotated[int, Meta(ge=0, le=MAX_TOKEN)]
Finite: TypeAlias = Annotated[float, Meta(ge=-FINITE, le=FINITE, description="a finite number")]
Name: TypeAlias = Annotated[str, printable(MAX_NAME)]
Line: TypeAlias = Annotated[str, Meta(description="text")]
Payload: TypeAlias = Annotated[bytes, Meta(max_length=MAX_PAYLOAD)]
Role: TypeAlias = Annotated[Side, Meta(description="'device' or 'cloud'")]
Why: TypeAlias = Annotated[Reason, Meta(description="text")]
Packed: TypeAlias = Annotated[
    tuple[tuple[Annotated[str, Meta(max_length=64)], Any], ...],
    Meta(
        max_length=MOST_VALUES,
        description=f"a tuple of at most {MOST_VALUES} entries, each a name of at most 64 "
        "characters with a value, which its setting bounds",
    ),
]
TOKENS: Final = tuple[int, ...]
"""The type of fields whose value travels as four bytes a token."""
T = TypeVar("T")
Value = bool | int | float | str | bytes | tuple[Any, ...] | None
Values = tuple[tuple[str, Value], ...]


def pack(instance: Any) -> Values:
    """Return those (name, value) pairs of a settings object that an Open message carries."""
    values, packed = flat(instance), list[tuple[str, Value]]()
    for entry in entries(type(instance)):
        value = values[entry.name]
        if entry.type == TOKENS:
            # Four bytes a token, not an array: decoding then never allocates more than it is sent.
            value = struct.pack(f"<{len(value)}I", *value)
        if entry.about.travels:
            packed.append((entry.name, value))
    return tuple(packed)


def unpack(cls: type[T], values: Values) -> T:
    """Return a settings object of class `cls` from pairs of `pack`; MessageError for bad pairs."""
    known = {entry.name: entry for entry in entries(cls) if entry.about.travels}
    given: dict[str, Any] = {}
    for name, value in values:
        if name not in known or name in given:
            raise MessageError(
                Reason.UNSUPPORTED,
                f"the setting {name!r} is unknown here, or came twice: install the same dragonrt "
                "on both sides",
            )
        given[name] = value
        if known[name].type == TOKENS:
            if type(value) is not bytes or len(value) % 4 or len(value) > LONGEST_VALUE:
                raise MessageError(Reason.MALFORMED, f"{name} must be four bytes a token")
            given[name] = struct.unpack(f"<{len(value) // 4}I", value)
    try:
        return assemble(cls, given)
    except MessageError:
        raise
    except DragonError as error:
        raise MessageError(Reason.UNSUPPORTED, str(error)) from None
