"""The key that two sides share: a line that can be scanned, or typed on the other machine.

A line is eight groups of four letters and digits (Crockford's base 32: no i, l, o or u). It has 128
random bits, the month by which to renew it, and 20 check bits. A key file may also hold another
secret of at least 16 bytes, for example from `openssl rand -hex 32`.
"""

import hashlib
import re
import secrets
from datetime import date
from pathlib import Path
from typing import Final

from dragonrt.errors import LinkError
from retrieval.files import create, read_bytes

FEWEST_BYTES, MOST_BYTES = 16, 4096
KEY_BITS, MONTH_BITS, CHECK_BITS = 128, 12, 20

_ALPHABET: Final = "0123456789abcdefghjkmnpqrstvwxyz"
_DIGITS: Final = str.maketrans(_ALPHABET, "0123456789abcdefghijklmnopqrstuv")
_TYPED: Final = str.maketrans("oil", "011")
_GROUPS, _GROUP = 8, 4
_LINE: Final = re.compile(rf"[0-9a-z]{{{_GROUP}}}(?:-[0-9a-z]{{{_GROUP}}}){{{_GROUPS - 1}}}")
_FIRST_YEAR = 2026


def new_key(renew: date) -> str:
    """Return a random key as a line of text, to be renewed by the month of `renew`."""
    month = 12 * (renew.year - _FIRST_YEAR) + renew.month - 1
    if not 0 <= month < 2**MONTH_BITS:
        raise LinkError(f"a key cannot be renewed by {renew}: choose fewer days")
    return _spell(secrets.randbits(KEY_BITS) << MONTH_BITS | month)


def parse_key(typed: str) -> str:
    """Return a typed key with the case and dashes of `new_key`. Raises LinkError if mistyped."""
    text = "".join(re.findall(r"[0-9a-z]", typed.lower())).translate(_TYPED)
    line = "-".join(text[start : start + _GROUP] for start in range(0, len(text), _GROUP))
    if not _LINE.fullmatch(line) or set(text) - set(_ALPHABET) or _spell(_content(line)) != line:
        raise LinkError(
            "that is no key, or it was mistyped: a key is eight groups of four letters and "
            "digits, as `dragonrt keys show` shows them"
        )
    return line


def renewal(key: bytes) -> date | None:
    """Return the day by which a key must be renewed; None if `new_key` did not make it."""
    line = key.decode("ascii", errors="replace")
    if not _LINE.fullmatch(line):
        return None
    years, month = divmod(_content(line) & (2**MONTH_BITS - 1), 12)
    return date(_FIRST_YEAR + years, month + 1, 1)


def read_key(path: Path) -> bytes:
    """Read the shared key from a file. Raises LinkError if it has none or one that is too short."""
    advice = "make a key with `dragonrt keys new`, or name its file"
    try:
        key = read_bytes(path).strip()
    except OSError as error:
        raise LinkError(f"cannot read the key file {path}: {error.strerror}; {advice}") from None
    if kind := _other(key):
        raise LinkError(f"{path} holds {kind}, no key: {advice}")
    if len(key) < FEWEST_BYTES:
        raise LinkError(f"the key in {path} is shorter than {FEWEST_BYTES} bytes: {advice}")
    if _LINE.fullmatch(key.decode("ascii", errors="replace").lower()):
        return parse_key(key.decode()).encode()
    return key


def _other(content: bytes) -> str:
    """Name what a file contains instead of a key."""
    if content.startswith(b"-----BEGIN "):
        return "a certificate or its key"
    try:
        text = content.decode()
    except UnicodeDecodeError:
        return f"{len(content)} bytes" if len(content) > MOST_BYTES else ""
    return "text of several words" if len(text.split()) > 1 or len(content) > MOST_BYTES else ""


def write_secret(path: Path, content: bytes) -> None:
    """Create a file only its owner can read. Raises LinkError if it exists or writing fails."""
    try:
        with create(path, new=True) as file:
            file.write(content)
    except FileExistsError:
        raise LinkError(f"{path} exists and is left as it is: choose another file") from None
    except OSError as error:
        raise LinkError(f"cannot write {path}: {error.strerror}") from None


def _spell(content: int) -> str:
    digest = hashlib.sha256(b"dragonrt key " + content.to_bytes(18, "big")).digest()
    number = content << CHECK_BITS | int.from_bytes(digest[:4], "big") >> 32 - CHECK_BITS
    places = range(_GROUPS * _GROUP - 1, -1, -1)
    text = "".join(_ALPHABET[number >> 5 * place & 31] for place in places)
    return "-".join(text[start : start + _GROUP] for start in range(0, len(text), _GROUP))


def _content(line: str) -> int:
    """Return key and month, without the check bits."""
    return int(line.replace("-", "").translate(_DIGITS), 32) >> CHECK_BITS
