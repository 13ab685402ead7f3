"""What a trace says in numbers: per answer and in total. Pure: lines in, values out."""

import json
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass, field
from statistics import median
from typing import Any

from dragonrt.errors import DragonError

_NUMBER = (int, float)
_FIELDS: dict[str, dict[str, Any]] = {
    "start": {"model": str},
    "open": {"accepted": int},
    "ready": {"load": _NUMBER, "prefill": _NUMBER},
    "decode": {"tokens": int, "seconds": _NUMBER},
    "send": {"message": str, "bytes": int},
    "receive": {"message": str, "bytes": int},
    "decide": {"cause": str, "waited": _NUMBER},
    "rollback": {"dropped": int},
    "block": {"tokens": int, "bits": int},
    "verdict": {"tokens": int, "accepted": int, "verify": _NUMBER},
    "round": {"missing": list},
    "close": {"finish": str},
}
"""The fields that the summary reads, by event; other events and other fields may come and go."""


class TraceError(DragonError):
    """A file that is not a trace; the line names the file and the line in it."""


@dataclass(slots=True)
class Costs:
    """What one answer took on one side, or the sum over several. Times are seconds.

    `waited_s` is the time before each decision, by what it waited for: the side's own draft, the
    other side's draft, or the other side's decision (target). `between_s` is the time from the
    first decision to the last, and spans `intervals` tokens. Of the `blocks` that were sent in
    `bits` bits, `verified` ones were answered, `resampled` of these with a token replaced. Workers
    took no part in a round `absences` times, each of them counted.
    """

    tokens: int = 0
    first_token_s: list[float] = field(default_factory=list)
    between_s: float = 0.0
    intervals: int = 0
    compared: dict[str, int] = field(default_factory=lambda: {"device": 0, "cloud": 0})
    accepted: dict[str, int] = field(default_factory=lambda: {"device": 0, "cloud": 0})
    waited_s: dict[str, float] = field(default_factory=dict)
    bytes_sent: int = 0
    bytes_received: int = 0
    forwards: int = 0
    forward_s: float = 0.0
    drafted: int = 0
    blocks: int = 0
    block_tokens: int = 0
    bits: int = 0
    verified: int = 0
    resampled: int = 0
    verify_s: float = 0.0
    preemptions: int = 0
    rollbacks: int = 0
    dropped: int = 0
    switches: int = 0
    divergences: int = 0
    losses: int = 0
    absences: int = 0

    def to_json(self) -> dict[str, Any]:
        """Rates and means where they can be taken, milliseconds; None where there is nothing."""
        numbers = asdict(self)
        for name in ("first_token_s", "between_s", "intervals", "compared", "accepted"):
            del numbers[name]
        waited = {cause: _ms(seconds) for cause, seconds in sorted(numbers.pop("waited_s").items())}
        forward_s, verify_s = numbers.pop("forward_s"), numbers.pop("verify_s")
        travelled = self.bytes_sent + self.bytes_received
        return {
            "tokens": numbers.pop("tokens"),
            "time_to_first_token_ms": _ms(median(self.first_token_s))
            if self.first_token_s
            else None,
            "ms_per_token": _ms(self.between_s / self.intervals) if self.intervals else None,
            "acceptance": {
                side: round(self.accepted[side] / count, 4) if count else None
                for side, count in self.compared.items()
            },
            "waited_ms": waited,
            "bytes_per_token": round(travelled / self.tokens, 1) if self.tokens else None,
            "ms_per_forward": _ms(forward_s / self.forwards) if self.forwards else None,
            "tokens_per_block": _mean(self.block_tokens, self.blocks),
            "bits_per_token": _mean(self.bits, self.tokens) if self.blocks else None,
            "resampling_rate": _mean(self.resampled, self.verified, 4),
            "ms_per_verdict": _ms(verify_s / self.verified) if self.verified else None,
            **numbers,
        }

    def add(self, other: "Costs") -> None:
        """Take the costs of another answer in."""
        for name, value in asdict(other).items():
            mine = getattr(self, name)
            if isinstance(value, dict):
                for key, part in value.items():
                    mine[key] = mine.get(key, 0) + part
            else:
                setattr(self, name, mine + value)


@dataclass(slots=True)
class Answer:
    """One answer, or the part of it made on one connection, as one side saw it.

    `peer` is the device's address in a cloud's trace. `resumed` answers had tokens before; in
    `approximate` ones a drafted token stands without the cloud's verdict, too.
    """

    session: int
    peer: str | None
    opened_s: float
    resumed: bool = False
    approximate: bool = False
    finish: str | None = None
    load_s: float = 0.0
    prefill_s: float = 0.0
    costs: Costs = field(default_factory=Costs)
    last_s: float | None = None

    def to_json(self) -> dict[str, Any]:
        where = {} if self.peer is None else {"peer": self.peer}
        return {
            "session": self.session,
            **where,
            "finish": self.finish,
            "resumed": self.resumed,
            "load_ms": _ms(self.load_s),
            "prefill_ms": _ms(self.prefill_s),
            **self.costs.to_json(),
        }


@dataclass(slots=True)
class Summary:
    """One side's trace. Probes are the samples of the round trip (s) and bandwidth (bit/s).

    `idle_sent` and `idle_received` are bytes that belong to no answer: handshakes and probes.
    """

    side: str
    model: str
    answers: list[Answer] = field(default_factory=list)
    rtts_s: list[float] = field(default_factory=list)
    bandwidths: list[float] = field(default_factory=list)
    idle_sent: int = 0
    idle_received: int = 0

    @property
    def total(self) -> Costs:
        total = Costs()
        for answer in self.answers:
            total.add(answer.costs)
        return total

    def to_json(self) -> dict[str, Any]:
        """The object that `dragonrt trace --json` prints for a file."""
        return {
            "side": self.side,
            "model": self.model,
            "answers": [answer.to_json() for answer in self.answers],
            "total": self.total.to_json(),
            "other_bytes": {"sent": self.idle_sent, "received": self.idle_received},
            "probes": {
                "samples": len(self.rtts_s),
                "rtt_ms": _ms(median(self.rtts_s)) if self.rtts_s else None,
                "rtt_ms_range": [_ms(min(self.rtts_s)), _ms(max(self.rtts_s))]
                if self.rtts_s
                else None,
                "bandwidth_bits": round(median(self.bandwidths)) if self.bandwidths else None,
            },
        }


def read_events(lines: Iterable[str], name: str) -> list[dict[str, Any]]:
    """The events of a trace; a last line that was cut off, as by a kill, is left out.

    Raises TraceError, naming `name` and the line, for anything else that is not an event.
    """
    kept = list(lines)
    events = []
    for number, line in enumerate(kept, start=1):
        try:
            event = json.loads(line)
        except ValueError:
            if number == len(kept) and number > 1 and not line.endswith("\n"):
                break
            raise TraceError(f"{name} line {number} is not JSON: is this a trace?") from None
        missing = _missing_field(event)
        if missing is not None:
            raise TraceError(f"{name} line {number} is not a trace event: {missing}")
        events.append(event)
    if not events:
        raise TraceError(f"{name} is empty: is this a trace?")
    return events


def _missing_field(event: Any) -> str | None:
    if not isinstance(event, dict):
        return "it is not an object"
    common: dict[str, Any] = {"t": _NUMBER, "side": str, "session": int, "event": str}
    own = _FIELDS.get(event.get("event", ""), {}) if isinstance(event.get("event"), str) else {}
    for key, kind in (common | own).items():
        if not isinstance(event.get(key), kind) or isinstance(event[key], bool):
            return f"{key} is missing or of the wrong kind"
    if event["side"] not in ("device", "cloud"):
        return "side is neither device nor cloud"
    return None


def summarize(events: Sequence[dict[str, Any]]) -> Summary:
    """The summary of events as `read_events` returns them."""
    summary = Summary(events[0]["side"], str(events[0].get("model", "unknown")))
    current: dict[tuple[str | None, int], Answer] = {}
    opened: set[tuple[tuple[str | None, int], str]] = set()
    for event in events:
        key = _key(event)
        kind = event["event"]
        if kind == "probe":
            _take_probe(summary, event)
        elif kind in ("send", "receive") and event["session"] == 0:
            name = "idle_sent" if kind == "send" else "idle_received"
            setattr(summary, name, getattr(summary, name) + event["bytes"])
        elif kind == "open" or (_opens(event) and not _is_part(event)):
            # The event and the message that opens come in either order: one of a kind per answer.
            if key not in current or (key, kind) in opened:
                opened -= {(key, "open"), (key, "send"), (key, "receive")}
                current[key] = Answer(event["session"], event.get("peer"), event["t"])
                summary.answers.append(current[key])
            opened.add((key, kind))
            _take(current[key], event)
        elif key in current:
            _take(current[key], event)
    return summary


def _is_part(event: dict[str, Any]) -> bool:
    """Whether it is of one worker's session in a coordinator's answer, which has no session."""
    return event["side"] == "device" and event.get("peer") is not None


def _key(event: dict[str, Any]) -> tuple[str | None, int]:
    """(peer, session) of the answer that the event belongs to."""
    return (None, 0) if _is_part(event) else (event.get("peer"), event["session"])


def _opens(event: dict[str, Any]) -> bool:
    return event.get("message") in ("open", "openblocks")


def _take_probe(summary: Summary, event: dict[str, Any]) -> None:
    for name, samples in (("rtt", summary.rtts_s), ("bandwidth", summary.bandwidths)):
        if isinstance(event.get(name), _NUMBER):
            samples.append(event[name])


def _take(answer: Answer, event: dict[str, Any]) -> None:
    costs = answer.costs
    match event["event"]:
        case "open":
            answer.resumed = event["accepted"] > 0
            answer.approximate = event.get("approximate") is True
        case "ready":
            answer.load_s, answer.prefill_s = event["load"], event["prefill"]
        case "decode":
            costs.forwards += 1
            costs.drafted += event["tokens"]
            costs.forward_s += event["seconds"]
        case "send":
            costs.bytes_sent += event["bytes"]
        case "receive":
            costs.bytes_received += event["bytes"]
        case "decide":
            _take_decision(answer, event)
        case "block":
            costs.blocks += 1
            costs.block_tokens += event["tokens"]
            costs.bits += event["bits"]
        case "verdict":
            _take_verdict(costs, event)
        case "rollback":
            costs.rollbacks += 1
            costs.dropped += event["dropped"]
        case "preempt":
            costs.preemptions += 1
        case "switch":
            costs.switches += 1
        case "diverge":
            costs.divergences += 1
        case "alone":
            costs.losses += 1
        case "round":
            costs.absences += len(event["missing"])
        case "close":
            answer.finish = event["finish"]


def _take_decision(answer: Answer, event: dict[str, Any]) -> None:
    costs = answer.costs
    costs.tokens += 1
    if answer.last_s is not None:
        costs.between_s += event["t"] - answer.last_s
        costs.intervals += 1
    elif not answer.resumed:
        costs.first_token_s.append(event["t"] - answer.opened_s)
    answer.last_s = event["t"]
    cause = event["cause"]
    costs.waited_s[cause] = costs.waited_s.get(cause, 0.0) + event["waited"]
    if isinstance(event.get("device"), bool) and isinstance(event.get("cloud"), bool):
        for side in ("device", "cloud"):
            costs.compared[side] += 1
            costs.accepted[side] += event[side]
    elif answer.approximate and cause == "own":
        costs.compared["device"] += 1
        costs.accepted["device"] += 1


def _take_verdict(costs: Costs, event: dict[str, Any]) -> None:
    """Drafts behind a refused one do not count as compared: they were for another text."""
    accepted = event["accepted"]
    refused = accepted < event["tokens"]
    costs.verified += 1
    costs.resampled += refused
    costs.verify_s += event["verify"]
    costs.accepted["device"] += accepted
    costs.compared["device"] += accepted + refused


def _mean(total: float, count: int, digits: int = 1) -> float | None:
    return round(total / count, digits) if count else None


def _ms(seconds: float) -> float:
    return round(1000 * seconds, 3)
