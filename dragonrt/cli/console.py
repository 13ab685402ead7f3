"""Where the command line prints: results to `output`, everything else to `messages`."""

from rich.console import Console

output = Console(highlight=False)
messages = Console(stderr=True, highlight=False)
