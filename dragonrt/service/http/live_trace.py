"""How an answer comes about, told while it does: a page's view of both sides and the link."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from dragonrt.node.main import Device
from dragonrt.traces.events import Disclosed, Record, TokenDecided
from dragonrt.traces.schema import to_object


@dataclass(frozen=True, slots=True)
class AnswerPiece:
    """Text that is certain, and the decision that made it so."""

    text: str
    decision: TokenDecided


class LiveTrace:
    """Events as in a trace file, each token with its text; pieces of the answer, with the part of
    their probability that the device's documents gave; and after them the link's state.

    Bytes are those of the device's connections since this began, shared by the answers under way.
    """

    def __init__(self, device: Device) -> None:
        self._device = device
        self._before = self._traffic()

    def events(self, news: Sequence[AnswerPiece | Record]) -> list[dict[str, Any]]:
        """What a client hears of the news."""
        return [*map(self._told, news), self._link()]

    def _told(self, news: AnswerPiece | Record) -> dict[str, Any]:
        if isinstance(news, AnswerPiece):
            return {"event": "piece", "text": news.text, "share": round(news.decision.share, 4)}
        record = news
        match record.event:
            case TokenDecided(token=token) | Disclosed(token=token):
                return {**to_object(record), "text": self._device.side.model.decode([token])}
            case _:
                return to_object(record)

    def _link(self) -> dict[str, Any]:
        sent, received = self._traffic()
        peers = [connector.peer for connector in self._device.connectors.values()]
        trips = [peer.round_trip_s for peer in peers if peer is not None]
        return {
            "event": "link",
            "rtt": max(trips, default=None),
            "connected": len(trips),
            "bytes_sent": sent - self._before[0],
            "bytes_received": received - self._before[1],
        }

    def _traffic(self) -> tuple[int, int]:
        each = [connector.traffic() for connector in self._device.connectors.values()]
        return sum(now.sent for now in each), sum(now.received for now in each)
