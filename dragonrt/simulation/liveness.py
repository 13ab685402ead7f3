"""How soon an answer must end once nothing goes wrong any more: the bound of liveness.

After the last fault is over, an answer may first have to find that out, and then to be decided:

- A connection that died without a word is given up after `silence_s`, at the next probe. A dial
  that begins on a dead or stalled connection ends after `handshake_s`. A lost connection is dialled
  again after its back-off, which has doubled with each dial that failed.
- A model that stands still for ever is given up after `answer_s`. Only then does that count: who
  waits for so long although all is well has missed something that came.
- Both sides then prepare, a cloud few questions of a device at a time, and decide at least one token
  for every turn of the mode (below).

Delays of models and preparations are at most twice their mean, messages travel at most the latency
plus its jitter, behind whatever else is queued on the link.
"""

from math import ceil

from dragonrt.control.branching import MOST
from dragonrt.distributions import codec
from dragonrt.modes.settings import (
    DragonSettings,
    FederatedSettings,
    Settings,
    SpeculativeSettings,
    SprinterSettings,
)
from dragonrt.runtime.gatekeeper import READ_AT_ONCE
from dragonrt.simulation.faults import HalfOpen, Stall
from dragonrt.simulation.scenario import FOR_EVER_S, VOCABULARY, Request, Scenario
from dragonrt.simulation.schedule import Schedule
from dragonrt.wire.cells import PACED

MESSAGE_BITS = 8 * 256
"""No message of a simulated answer is longer, nor, on average, are probes beside them."""
SLOWEST = 2.0
"""The most that a delay is of its mean."""


def bound_s(scenario: Scenario, request: Request) -> float:
    """The virtual seconds in which an answer ends, counted from the last fault and its start."""
    links, stall = scenario.schedules[request.device], scenario.stall
    recovery_s = max(_recovery_s(scenario, link) for link in links)
    if stall is not None and stall.length_s == FOR_EVER_S:
        recovery_s += scenario.patience.answer_s
    questions = sum(each.device == request.device for each in scenario.requests)
    queues = ceil(questions / READ_AT_ONCE)
    preparation_s = SLOWEST * max(
        max(link.device_prepare_s, queues * link.cloud_prepare_s) for link in links
    )
    answers = len(scenario.requests)
    turn_s = max(_turn_s(request.settings, link, answers) for link in links)
    turn_s += _held_s(scenario, request)
    return recovery_s + preparation_s + (request.question.max_tokens + 2) * turn_s


def may_seem_mute(scenario: Scenario, request: Request) -> bool:
    """Whether drafts of answers on one slow link may keep a cloud's first word back too long."""
    beside = [each.settings for each in scenario.requests if each.device == request.device]
    drafts = sum(_drafts(each) for each in beside if isinstance(each, DragonSettings))
    links = scenario.schedules[request.device]
    return max(_trip_s(link, drafts) for link in links) > scenario.patience.mute_s


def longest_absence_s(scenario: Scenario) -> float:
    """The longest that a cloud may be away, or do nothing, by all that goes wrong in a row."""
    return max(
        _absence_s(scenario, link) + _recovery_s(scenario, link)
        for links in scenario.schedules
        for link in links
    )


def _absence_s(scenario: Scenario, link: Schedule) -> float:
    patience, stall = scenario.patience, scenario.stall
    stalled_s = sum(fault.length_s for fault in link.faults if isinstance(fault, Stall))
    dialling_s = sum(
        min(patience.longest_back_off_s, patience.back_off_s * 2.0**failed)
        for failed in range(1, len(link.faults))
    )
    return stalled_s + dialling_s + (stall.length_s if stall is not None else 0.0)


def _recovery_s(scenario: Scenario, link: Schedule) -> float:
    """Until a connection is there again."""
    patience, faults = scenario.patience, len(link.faults)
    if scenario.killed_s is not None:
        faults += 1
    if faults == 0:
        return 0.0
    silent = any(isinstance(fault, HalfOpen | Stall) for fault in link.faults)
    noticed_s = patience.silence_s + patience.probe_s + patience.handshake_s if silent else 0.0
    back_off_s = min(patience.longest_back_off_s, patience.back_off_s * 2.0**faults)
    return noticed_s + back_off_s + 4 * _trip_s(link, 1)


def _turn_s(settings: Settings, link: Schedule, answers: int) -> float:
    """The longest that one decision takes: forwards of both sides, and messages to and fro."""
    trips = _trips(settings)
    forward_s = SLOWEST * max(link.device_decode_s, link.cloud_decode_s)
    match settings:
        case DragonSettings():
            # A forward on a dead line, and one on the decided text; then a Draft and a Target.
            # A race may lack entries on both sides, and those of one may wait for the other's.
            forwards, messages = 2, _drafts(settings)
        case SpeculativeSettings():
            # What is under way is drafted anew behind a refusal, and verified.
            forwards, messages = 2 + settings.length, 2 * settings.outstanding
        case FederatedSettings():
            # A block, and its verification behind one that came too late.
            forwards, messages = 3 + settings.block_tokens, 4
        case SprinterSettings():
            forwards, messages = 3, 2
    return forwards * forward_s + trips * _trip_s(link, messages * answers)


def _drafts(settings: DragonSettings) -> int:
    """The drafts that both sides may send until one decision is told."""
    branches = MOST if settings.most_branches is None else settings.most_branches
    return 2 * settings.run_ahead * (1 + branches)


def _trips(settings: Settings) -> int:
    """The messages one after another that one decision may need."""
    whole = not isinstance(settings, DragonSettings) or codec(settings.codec, VOCABULARY).complete
    return 2 if whole else 6


def _held_s(scenario: Scenario, request: Request) -> float:
    """The longest that the messages of one decision wait for the ticks of their connection.

    What does not fit into the next cell waits for those behind it. The cadence may be another
    answer's.
    """
    beside = [
        each.settings
        for each in scenario.requests
        if each.device == request.device and isinstance(each.settings, DragonSettings)
    ]
    if not beside:
        return 0.0
    bits = sum(_drafts(settings) for settings in beside) * MESSAGE_BITS
    tick_s = max(settings.cadence_s for settings in beside)
    return _trips(request.settings) * tick_s * (2 + bits // (8 * PACED))


def _trip_s(link: Schedule, messages: int) -> float:
    """The longest that a message is under way behind so many others."""
    queued_s = messages * MESSAGE_BITS / link.bandwidth if link.bandwidth is not None else 0.0
    return link.latency_s + link.jitter_s + queued_s
