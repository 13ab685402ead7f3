"""How answers look in a terminal: text tinted by side, sources, one line of costs."""

from rich.console import Console
from rich.text import Text

from dragonrt.chat.conversation import Reply
from dragonrt.runtime.generation import Decision

COLOURS = {"device": "cyan", "cloud": "yellow", "both": "default"}
CLEAR_SHARE = 0.75
"""From this share of a token's probability on, the token counts as one side's."""


def carrier(decision: Decision) -> str:
    """The side whose documents carried a token: "device", "cloud" or "both"."""
    if decision.device_share >= CLEAR_SHARE:
        return "device"
    return "cloud" if decision.device_share <= 1 - CLEAR_SHARE else "both"


class AnswerView:
    """Prints an answer as it comes."""

    def __init__(self, console: Console) -> None:
        self._console = console

    def piece(self, text: str, decision: Decision) -> None:
        self._console.print(Text(text, style=COLOURS[carrier(decision)]), end="", soft_wrap=True)

    def notice(self, text: str) -> None:
        self._console.print(Text(f"\n[{text}]", style="italic red"), soft_wrap=True)

    def end(self, reply: Reply) -> None:
        """The sources and the cost line under an answer."""
        console = self._console
        console.print()
        for side, source in reply.sources:
            line = Text("  ")
            line.append(f"{side:<6} ", style=COLOURS[side])
            line.append(source.name)
            line.append(f"  {source.title}  {source.relevance:.2f}", style="dim")
            console.print(line, soft_wrap=True)
        console.print(Text(f"  {cost_line(reply)}", style="dim"), soft_wrap=True)


def cost_line(reply: Reply) -> str:
    """What the answer cost, in one line."""
    numbers = reply.statistics()
    acceptance = numbers["acceptance"]
    parts = [
        f"{numbers['tokens']} tokens",
        _number(numbers["time_to_first_token_ms"], "ms to first token", 0),
        _number(numbers["ms_per_token"], "ms/token", 1),
        "accepted device "
        + _percent(acceptance["device"])
        + " cloud "
        + _percent(acceptance["cloud"]),
        _number(numbers["bytes_per_token"], "bytes/token", 0),
        f"seed {reply.answer.plan.seed}",
    ]
    if numbers["alone_from"] is not None:
        parts.append(f"alone from token {numbers['alone_from']}")
    return " | ".join(part for part in parts if part)


def _number(value: float | None, unit: str, digits: int) -> str:
    return "" if value is None else f"{value:.{digits}f} {unit}"


def _percent(share: float | None) -> str:
    return "-" if share is None else f"{100 * share:.0f} %"
