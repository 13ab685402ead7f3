"""What Prometheus reads: a fold over what happens on this side, and over answers that are over."""

from collections.abc import Iterator, Mapping
from itertools import pairwise
from typing import Any

from prometheus_client import (
    CollectorRegistry,
    Counter,
    Gauge,
    Histogram,
    ProcessCollector,
    disable_created_metrics,
    generate_latest,
)
from prometheus_client.metrics_core import Metric

from dragonrt.node.main import Device
from dragonrt.service.conversation import Reply
from dragonrt.service.http.admission import Admission
from dragonrt.service.http.bounded_http import Places
from dragonrt.service.http.side_metrics import (
    PREFIX,
    IndexNews,
    ReadWhenAsked,
    counter,
    gauge,
    side_metrics,
)
from dragonrt.traces.counts import AnswerCounts
from dragonrt.traces.events import BlockSent, Drafted, LinkProbed, MessageReceived, Record
from dragonrt.wire.messages import Draft

DRAFT = Draft.__name__.lower()
COUNTERS = {
    "answers": ("Answers that are over, by how they ended.", "finish"),
    "refused": ("Requests refused, by status.", "status"),
    "tokens": ("Target tokens.",),
    "drafted_tokens": ("Tokens that a side drafted.", "side"),
    "compared_tokens": ("Drafted tokens that a decision looked at.", "side"),
    "accepted_tokens": ("Drafted tokens that stand.", "side"),
    "waited_seconds": (
        "Before decisions: for the own draft, the other side's, or its decision.",
        "cause",
    ),
    "answer_bytes": ("Between the sides during answers.", "direction"),
    "answers_together": (
        "Answers that are over, by how much of them others took part in.",
        "others",
    ),
    "disclosed_bits": (
        "Evidence in the tokens of answers, and what they revealed where that is bounded.",
        "kind",
    ),
    "disclosed_tokens": ("Tokens that left the device, or did not.", "kind"),
}
"""The text of each counter, and its label."""
FIRST_S = (0.01, 0.025, 0.05, 0.1, 0.2, 0.3, 0.5, 0.75, 1, 2, 5, 10, 30)
BETWEEN_S = (0.001, 0.0025, 0.005, 0.01, 0.02, 0.03, 0.05, 0.1, 0.2, 0.5, 1, 5)
HISTOGRAMS = {
    "time_to_first_token_seconds": ("From the question to its first token.", FIRST_S),
    "time_between_tokens_seconds": ("From a target token to the next.", BETWEEN_S),
}


class HttpMetrics:
    """Numbers of one process; `take` is a sink for every record of its side."""

    def __init__(self) -> None:
        disable_created_metrics()  # type: ignore[no-untyped-call]  # the library has none
        registry = self._registry = CollectorRegistry()
        ProcessCollector(registry=registry)
        self._counters = {
            name: Counter(PREFIX + name, text, labels, registry=registry)
            for name, (text, *labels) in COUNTERS.items()
        }
        self._first, self._between = (
            Histogram(PREFIX + name, text, buckets=buckets, registry=registry)
            for name, (text, buckets) in HISTOGRAMS.items()
        )
        about = "To the other side, as last probed."
        self._rtt = Gauge(f"{PREFIX}round_trip_seconds", about, ["peer"], registry=registry)

    def _add(self, name: str, label: str | None = None, amount: float = 1.0) -> None:
        found = self._counters[name]
        (found if label is None else found.labels(label)).inc(amount)

    def take(self, record: Record) -> None:
        """Count the next record of this side."""
        match record.event:
            case Drafted():
                self._add("drafted_tokens", "device")
            case BlockSent(tokens=tokens):
                self._add("drafted_tokens", "device", tokens)
            case MessageReceived(message=message) if message == DRAFT:
                self._add("drafted_tokens", "cloud")
            case LinkProbed(rtt=float(rtt)):
                self._rtt.labels(record.peer or "cloud").set(rtt)
            case _:
                pass

    def over(self, reply: Reply | None) -> None:
        """Count an answer that is over; None if it failed."""
        if reply is None:
            self._add("answers", "error")
            return
        answer, ledger = reply.answer, reply.ledger()
        counts = AnswerCounts.of(answer.records)
        self._add("answers", answer.finish.value)
        self._add("tokens", None, counts.tokens)
        for seconds in counts.first_token_s:
            self._first.observe(seconds)
        for (before, _), (after, _) in pairwise(answer.decisions):
            self._between.observe(after - before)
        bits = {each: ledger.get(f"{each}_bits") or 0.0 for each in ("evidence", "revealed")}
        amounts: dict[str, Mapping[Any, float]] = {
            "compared_tokens": counts.compared,
            "accepted_tokens": counts.accepted,
            "waited_seconds": counts.waited_s,
            "disclosed_bits": bits,
            "disclosed_tokens": {each: ledger[f"tokens_{each}"] for each in ("sent", "withheld")},
            "answer_bytes": {"sent": answer.bytes_sent, "received": answer.bytes_received},
            "answers_together": {{None: "all", 0: "none"}.get(counts.alone_from, "part"): 1.0},
        }
        for name, values in amounts.items():
            for label, amount in values.items():
                self._add(name, label, max(0.0, amount))

    def refused(self, status: int) -> None:
        """Count a request that got this instead of an answer."""
        self._add("refused", str(status))

    def read_from(
        self, device: Device, admission: Admission, places: Places, news: IndexNews
    ) -> None:
        """Add to each page how these are when it is asked for."""

        def now() -> Iterator[Metric]:
            yield from _of_device(device)
            yield gauge("answers_running", "Answers under way.", admission.running)
            yield gauge("answers_waiting", "Requests that wait for their turn.", admission.waiting)
            yield gauge("http_connections", "HTTP connections that are open.", places.open)
            about = "HTTP connections for which was no place."
            yield counter("http_connections_refused", about, places.refused)
            yield from side_metrics(device.side, news)

        ReadWhenAsked(self._registry, now)

    def page(self) -> bytes:
        """Return the text that Prometheus reads. It looks at files: not on the event loop."""
        return generate_latest(self._registry)


def _of_device(device: Device) -> Iterator[Metric]:
    """Yield how the other sides are connected."""
    links = device.connectors
    peers = {name: link.peer for name, link in links.items()}
    there = {name: peer is not None for name, peer in peers.items()}
    again = {name: link.reconnections for name, link in links.items()}
    sessions = {name: len(peer.connection.sessions) if peer else 0 for name, peer in peers.items()}
    yield gauge("connected", "Whether the other side is connected.", there, "peer")
    yield counter("reconnections", "Lost connections that were made again.", again, "peer")
    yield gauge("sessions", "Sessions open with the other side.", sessions, "peer")
