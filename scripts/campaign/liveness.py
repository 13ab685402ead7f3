"""How soon an answer must end after the last fault: the bound of liveness.

After the last fault, an answer may first have to notice the fault, and then to be decided:

- A connection that died silently is given up after `silence_s`, at the next probe. A dial that
  begins on a dead or stalled connection ends after `handshake_s`. A lost connection is dialled
  again after its back-off, which has doubled with each dial that failed.
- A model that never returns is given up after `answer_s`. This counts only in that case: a side
  that waits for so long without a fault has missed an input that came.
- Both sides then prepare, a cloud few questions of a device at a time, and decide at least one
  token for every turn of the mode (below).
- A complete answer waits `rejoin_s` at most for the other side's Close.

Delays of models and preparations are at most twice their mean, messages travel at most the latency
plus its jitter, behind whatever else is queued on the link.
"""

from math import ceil

from dragonrt.modes.settings import Settings
from dragonrt.node.connections.admission import READ_AT_ONCE
from dragonrt.testing.faults import HalfOpen, Schedule, Stall
from dragonrt.wire.encoding import PACED
from scripts.campaign.scenario import FOR_EVER_S, VOCABULARIES, Request, Scenario
from tests.oracles.pace import pace

MESSAGE_BYTES = 256
"""No message of an answer over the smallest vocabulary is longer, nor, on average, are probes."""
VALUE_BYTES = 4
"""What each token more may add to a distribution."""
SLOWEST = 2.0
"""The most that a delay is of its mean."""


def bound_s(scenario: Scenario, request: Request) -> float:
    """Return in how many virtual seconds after its start and all faults an answer must end."""
    links, stall = scenario.schedules[request.device], scenario.stall
    recovery_s = max(_recovery_s(scenario, link) for link in links)
    if stall is not None and stall.length_s == FOR_EVER_S:
        recovery_s += scenario.timeouts.answer_s
    queues = ceil(len(_beside(scenario, request)) / READ_AT_ONCE)
    preparation_s = SLOWEST * max(
        max(link.device_prepare_s, queues * link.cloud_prepare_s) for link in links
    )
    turn_s = max(_turn_s(scenario, request.settings, link) for link in links)
    turn_s += _held_s(scenario, request)
    decided_s = preparation_s + (request.question.max_tokens + 2) * turn_s
    return recovery_s + decided_s + scenario.timeouts.rejoin_s


def may_seem_mute(scenario: Scenario, request: Request) -> bool:
    """Return whether drafts on a slow link may delay a cloud's first message beyond `mute_s`."""
    messages = sum(pace(each.settings).messages for each in _beside(scenario, request))
    links = scenario.schedules[request.device]
    return max(_trip_s(scenario, link, messages) for link in links) > scenario.timeouts.mute_s


def longest_absence_s(scenario: Scenario) -> float:
    """Return the longest time that a cloud may be away or idle if all faults follow each other."""
    return max(
        _absence_s(scenario, link) + _recovery_s(scenario, link)
        for links in scenario.schedules
        for link in links
    )


def _absence_s(scenario: Scenario, link: Schedule) -> float:
    timeouts, stall = scenario.timeouts, scenario.stall
    stalled_s = sum(fault.length_s for fault in link.faults if isinstance(fault, Stall))
    dialling_s = sum(
        min(timeouts.longest_back_off_s, timeouts.back_off_s * 2.0**failed)
        for failed in range(1, len(link.faults))
    )
    return stalled_s + dialling_s + (stall.length_s if stall is not None else 0.0)


def _recovery_s(scenario: Scenario, link: Schedule) -> float:
    """Until a connection is there again."""
    timeouts, faults = scenario.timeouts, len(link.faults)
    if scenario.killed_s is not None:
        faults += 1
    if faults == 0:
        return 0.0
    silent = any(isinstance(fault, HalfOpen | Stall) for fault in link.faults)
    noticed_s = timeouts.silence_s + timeouts.probe_s + timeouts.handshake_s if silent else 0.0
    back_off_s = min(timeouts.longest_back_off_s, timeouts.back_off_s * 2.0**faults)
    return noticed_s + back_off_s + 4 * _trip_s(scenario, link, 1)


def _turn_s(scenario: Scenario, settings: Settings, link: Schedule) -> float:
    """The longest that one decision takes: forwards of both sides, and messages to and fro."""
    one = pace(settings)
    forward_s = SLOWEST * max(link.device_decode_s, link.cloud_decode_s)
    messages = one.messages * len(scenario.requests)
    return one.forwards * forward_s + 2 * _trip_s(scenario, link, messages)


def _held_s(scenario: Scenario, request: Request) -> float:
    """The longest that the messages of one decision wait for the ticks of their connection.

    What does not fit into the next frame waits for those behind it. The cadence may be another
    answer's.
    """
    beside = _beside(scenario, request)
    messages = sum(pace(each.settings).messages for each in beside)
    tick_s = max(each.settings.constant_rate[0] for each in beside)
    frames = 2 + messages * _message_bits(scenario) // (8 * PACED)
    return 2 * tick_s * frames


def _beside(scenario: Scenario, request: Request) -> list[Request]:
    """The answers of one device."""
    return [each for each in scenario.requests if each.device == request.device]


def _message_bits(scenario: Scenario) -> int:
    """The longest message of an answer."""
    more = max(0, scenario.vocabulary - VOCABULARIES[0])
    held = max(pace(each.settings).distributions for each in scenario.requests)
    return 8 * (MESSAGE_BYTES + VALUE_BYTES * more * held)


def _trip_s(scenario: Scenario, link: Schedule, messages: int) -> float:
    """The longest that a message is under way behind so many others."""
    bits = messages * _message_bits(scenario)
    return link.latency_s + link.jitter_s + (bits / link.bandwidth if link.bandwidth else 0.0)
