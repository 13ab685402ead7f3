"""A cast of a terminal as an SVG: `scripts/demo | python -m scripts.site.cast OUT.svg`.

Lines appear when they did, pauses cut to a second; a picture shows the last frame where nothing
moves. The colours are those of a dark terminal.
"""

import re
import sys
import time
from collections.abc import Iterable, Sequence
from html import escape
from pathlib import Path

COLUMNS, ROWS = 100, 26
WIDTH, HEIGHT, MARGIN = 8.4, 18, 14
LONGEST_S, REST_S = 1.0, 4.0
"""A pause between two lines is at most so long, and the last frame stays so long."""


def cast(lines: Sequence[tuple[float, str]], command: str) -> str:
    """Return an SVG of a command and the lines that it printed, each with its time in seconds."""
    shown = [(0.0, f"$ {command}")]
    at, before = 0.0, 0.0
    for when, line in lines:
        at += min(when - before, LONGEST_S)
        before = when
        shown.append((at + LONGEST_S, line[:COLUMNS]))
    total = shown[-1][0] + REST_S
    up = max(len(shown) - ROWS, 0)
    # The window scrolls by a line for each line that does not fit.
    keys = [(shown[ROWS + number][0], -HEIGHT * (number + 1)) for number in range(up)]
    frames = "".join(f"{100 * t / total:.2f}%{{transform:translateY({y}px)}}" for t, y in keys)
    last = keys[-1][1] if keys else 0
    text = "".join(
        f'<text y="{HEIGHT * number}" style="animation-delay:{t:.2f}s">{escape(line)}</text>'
        for number, (t, line) in enumerate(shown)
    )
    wide, high = COLUMNS * WIDTH + 2 * MARGIN, ROWS * HEIGHT + 2 * MARGIN
    return f"""<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {wide:.0f} {high}" role="img"
 aria-label="A terminal runs {escape(command)}">
<style>
text {{font: 14px ui-monospace, Menlo, Consolas, monospace; fill: #e6e6e6; white-space: pre;
 animation: show .01s both}}
@keyframes show {{from {{opacity: 0}}}}
@keyframes up {{0%{{transform:none}}{frames}100%{{transform:translateY({last}px)}}}}
.up {{animation: up {total:.2f}s steps(1) both}}
@media (prefers-reduced-motion) {{
text, .up {{animation: none}} .up {{transform:translateY({last}px)}}}}
</style>
<rect width="100%" height="100%" rx="8" fill="#1d2125"/>
<svg x="{MARGIN}" y="{MARGIN}" width="{wide - 2 * MARGIN:.0f}" height="{ROWS * HEIGHT}">
<g class="up"><g transform="translate(0 14)">{text}</g></g></svg>
</svg>
"""


def timed(lines: Iterable[str]) -> list[tuple[float, str]]:
    """Return lines without colours, each with the seconds since the first."""
    found = []
    start = None
    for line in lines:
        start = time.monotonic() if start is None else start
        plain = re.sub(r"\x1b\[[0-9;?]*[a-zA-Z]", "", line.rstrip("\n"))
        found.append((time.monotonic() - start, plain))
    return found


if __name__ == "__main__":
    Path(sys.argv[1]).write_text(cast(timed(sys.stdin), "scripts/demo"), encoding="utf-8")
