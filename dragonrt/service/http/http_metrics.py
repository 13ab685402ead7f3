"""What Prometheus reads: a fold over what happens on this side, and over answers that are over."""

from collections.abc import Iterator
from itertools import pairwise

from prometheus_client import (
    CollectorRegistry,
    Counter,
    Gauge,
    Histogram,
    ProcessCollector,
    disable_created_metrics,
    generate_latest,
)

from dragonrt.runtime.main import Device
from dragonrt.service.conversation import Reply
from dragonrt.service.http.admission import Admission
from dragonrt.traces.counts import AnswerCounts
from dragonrt.traces.events import BlockSent, Drafted, LinkProbed, MessageReceived, Record
from dragonrt.wire.messages import Draft

DRAFT = Draft.__name__.lower()
FIRST_S = (0.01, 0.025, 0.05, 0.1, 0.2, 0.3, 0.5, 0.75, 1, 2, 5, 10, 30)
BETWEEN_S = (0.001, 0.0025, 0.005, 0.01, 0.02, 0.03, 0.05, 0.1, 0.2, 0.5, 1, 5)


class HttpMetrics:
    """Numbers of one process; `take` is a sink for every record of its side."""

    def __init__(self) -> None:
        disable_created_metrics()  # type: ignore[no-untyped-call]  # the library has none
        registry = self._registry = CollectorRegistry()
        ProcessCollector(registry=registry)

        def counter(name: str, text: str, *labels: str) -> Counter:
            return Counter(f"dragonrt_{name}", text, labels, registry=registry)

        def histogram(name: str, text: str, buckets: tuple[float, ...]) -> Histogram:
            return Histogram(f"dragonrt_{name}", text, buckets=buckets, registry=registry)

        def gauge(name: str, text: str, *labels: str) -> Gauge:
            return Gauge(f"dragonrt_{name}", text, labels, registry=registry)

        self._answers = counter("answers", "Answers that are over, by how they ended.", "finish")
        self._refused = counter("refused", "Requests refused, by status.", "status")
        self._tokens = counter("tokens", "Target tokens.")
        self._first = histogram(
            "time_to_first_token_seconds", "From the question to its first token.", FIRST_S
        )
        self._between = histogram(
            "time_between_tokens_seconds", "From a target token to the next.", BETWEEN_S
        )
        self._drafted = counter("drafted_tokens", "Tokens that a side drafted.", "side")
        self._compared = counter(
            "compared_tokens", "Drafted tokens that a decision looked at.", "side"
        )
        self._accepted = counter("accepted_tokens", "Drafted tokens that stand.", "side")
        self._waited = counter(
            "waited_seconds",
            "Before decisions: for the own draft, the other side's, or its decision.",
            "cause",
        )
        self._bytes = counter("answer_bytes", "Between the sides during answers.", "direction")
        self._rtt = gauge("round_trip_seconds", "To the other side, as last probed.", "peer")
        self._connected = gauge("connected", "Whether the other side is connected.", "peer")
        self._running = gauge("answers_running", "Answers under way.")
        self._waiting = gauge("answers_waiting", "Requests that wait for their turn.")
        self._sessions = gauge("sessions", "Sessions open with the other side.", "peer")
        self._watcher = gauge("watcher_alive", "Whether changes of the documents are noticed.")
        self._restarts = counter("watcher_restarts", "Times the watcher was started again.")
        self._restarted = 0

    def take(self, record: Record) -> None:
        """The next record of this side."""
        match record.event:
            case Drafted():
                self._drafted.labels("device").inc()
            case BlockSent(tokens=tokens):
                self._drafted.labels("device").inc(tokens)
            case MessageReceived(message=message) if message == DRAFT:
                self._drafted.labels("cloud").inc()
            case LinkProbed(rtt=float(rtt)):
                self._rtt.labels(record.peer or "cloud").set(rtt)
            case _:
                pass

    def over(self, reply: Reply | None) -> None:
        """An answer is over; None if it failed."""
        if reply is None:
            self._answers.labels("error").inc()
            return
        told, times = AnswerCounts.of(reply.answer.records), self._times(reply)
        counts = told.counts
        self._answers.labels(reply.answer.finish.value).inc()
        self._tokens.inc(counts.tokens)
        for seconds in counts.first_token_s:
            self._first.observe(seconds)
        for before, after in pairwise(times):
            self._between.observe(after - before)
        for side in counts.compared:
            self._compared.labels(side).inc(counts.compared[side])
            self._accepted.labels(side).inc(counts.accepted[side])
        for cause, seconds in counts.waited_s.items():
            self._waited.labels(cause).inc(seconds)
        self._bytes.labels("sent").inc(reply.answer.bytes_sent)
        self._bytes.labels("received").inc(reply.answer.bytes_received)

    def refused(self, status: int) -> None:
        """A request got this instead of an answer."""
        self._refused.labels(str(status)).inc()

    def page(self, device: Device, admission: Admission) -> bytes:
        """The text that Prometheus reads."""
        self._running.set(admission.running)
        self._waiting.set(admission.waiting)
        for name, connector in device.connectors.items():
            peer = connector.peer
            self._connected.labels(name).set(peer is not None)
            self._sessions.labels(name).set(len(peer.connection.sessions) if peer else 0)
        if (following := device.side.following) is not None:
            self._watcher.set(not following.stopped)
            self._restarts.inc(following.restarts - self._restarted)
            self._restarted = following.restarts
        return generate_latest(self._registry)

    @staticmethod
    def _times(reply: Reply) -> Iterator[float]:
        return (t for t, _ in reply.answer.decisions)
