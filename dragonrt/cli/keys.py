"""`dragonrt keys`: make the shared key, and copy it to the other machine."""

import sys
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Annotated

from cyclopts import App, Parameter

from dragonrt.cli.console import output, say
from dragonrt.cli.options import option
from dragonrt.errors import DragonError

DAYS = 365
MOST_DAYS = 36_500

keys = App(name="keys", help="Make the key that both sides share, and show or enter it.")

File = Annotated[Path, Parameter(help="File of the shared key.")]
KEY = Path("dragonrt.key")


@keys.command
def new(
    file: File = KEY,
    *,
    days: Annotated[int, option("How long it is good.", default=f"{DAYS}", low=1)] = DAYS,
) -> None:
    """Make a key that only its owner can read."""
    from dragonrt.link.shared_key import new_key, write_secret

    if days > MOST_DAYS:
        raise DragonError(f"--days is at most {MOST_DAYS}")
    last = (datetime.now(UTC) + timedelta(days=days)).date()
    write_secret(file, new_key(last).encode() + b"\n")
    say(f"made {file}; bring it to the other machine with `dragonrt keys show {file}`")


@keys.command
def show(file: File = KEY) -> None:
    """Show a key as a QR code and as a line to type. Keep it secret."""
    import segno

    from dragonrt.link.shared_key import read_key, renewal

    key = read_key(file)
    renew = renewal(key)
    if renew is None:
        raise DragonError(
            f"the key in {file} was not made by `dragonrt keys new`: copy the file instead"
        )
    segno.make(key.decode(), micro=False).terminal(out=sys.stdout, compact=True)
    output.print(key.decode(), markup=False, soft_wrap=True)
    say(f"on the other machine: `dragonrt keys enter`; renew it before {renew}")


@keys.command
def enter(file: File = KEY) -> None:
    """Type or paste the line of `keys show` on the other machine."""
    from dragonrt.link.shared_key import parse_key, write_secret

    if sys.stdin.isatty():
        say("The line that `dragonrt keys show` shows on the other machine:")
    write_secret(file, parse_key(sys.stdin.readline()).encode() + b"\n")
    say(f"made {file}; use it with --key-file {file}")
