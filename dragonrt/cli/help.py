"""How help looks: what a person needs daily on one screen, all of it for who asks."""

from typing import TYPE_CHECKING

from cyclopts.help import DefaultFormatter, HelpPanel

from dragonrt.cli.options import DAILY

if TYPE_CHECKING:
    from rich.console import Console, ConsoleOptions

EVERYTHING = "--help-all"


class Help(DefaultFormatter):
    """The panels that people need daily, or `everything`."""

    def __init__(self, *, everything: bool) -> None:
        super().__init__()
        self._everything = everything

    def __call__(self, console: "Console", options: "ConsoleOptions", panel: HelpPanel) -> None:
        if self._everything or panel.title in ("Commands", "Arguments", DAILY):
            super().__call__(console, options, panel)
