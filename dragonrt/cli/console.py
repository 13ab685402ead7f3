"""Where the command line prints: results to `output`, everything else to `messages`."""

from rich.console import Console

output = Console(highlight=False)
messages = Console(stderr=True, highlight=False)


def say(line: str, style: str | None = None) -> None:
    """A line of its own on stderr, whatever is in it."""
    messages.print(line, style=style, markup=False, soft_wrap=True)
