"""The types of messages' fields, each with its bounds: `schema` checks them where bytes come in."""

from typing import Annotated, Any, Final, TypeAlias

from msgspec import Meta, Struct
from msgspec.structs import force_setattr

from dragonrt.schema import FINITE, natural
from dragonrt.side import Side
from dragonrt.wire import limits
from dragonrt.wire.reasons import Reason
from dragonrt.wire.values import MOST_VALUES

MAX_LINE = 1024
# Controls, spaces but " ", what is invisible or turns the direction, surrogates, private use.
_PRINTABLE: Final = (
    r"\A[^\x00-\x1f\x7f-\xa0\xad\u061c\u1680\u180e\u2000-\u200f\u2028-\u202f\u205f-\u206f"
    r"\u3000\ud800-\uf8ff\ufeff\ufff0-\ufffb\U000e0000-\U0010ffff]+\Z"
)


class Fields(Struct, frozen=True, array_like=True, forbid_unknown_fields=True):
    """Typed fields, on the wire the array of their values."""

    def clean(self, *names: str) -> None:
        """Make each of these texts for people one printable line of at most MAX_LINE bytes.

        They are cleaned, not refused: so reporting an error cannot fail, and the other side cannot
        control a terminal.
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
    """Return the bounds of a short identifier: printable, not empty."""
    words = f"1 to {limit} printable characters"
    return Meta(max_length=limit, pattern=_PRINTABLE, description=words)


U32: TypeAlias = Annotated[int, Meta(ge=0, le=limits.MAX_32)]
Hash: TypeAlias = Annotated[int, natural()]
Time: TypeAlias = Annotated[int, Meta(ge=0, le=limits.MAX_TIME_US)]
Step: TypeAlias = Annotated[int, Meta(ge=0, le=limits.MAX_STEP)]
Token: TypeAlias = Annotated[int, Meta(ge=0, le=limits.MAX_TOKEN)]
Finite: TypeAlias = Annotated[float, Meta(ge=-FINITE, le=FINITE, description="a finite number")]
Name: TypeAlias = Annotated[str, printable(limits.MAX_NAME)]
Line: TypeAlias = Annotated[str, Meta(description="text")]
Payload: TypeAlias = Annotated[bytes, Meta(max_length=limits.MAX_PAYLOAD)]
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
