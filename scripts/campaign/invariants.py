"""What must hold of an answer in every mode, checked by the traces of both sides."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from math import isclose

from dragonrt.errors import DragonError
from dragonrt.modes.dragon.settings import DragonSettings
from dragonrt.modes.mode import Finish
from dragonrt.modes.prefix import TokenPrefix, start_hash
from dragonrt.modes.settings import Settings
from dragonrt.node.answers.client_session import Answer
from dragonrt.traces import events
from dragonrt.traces.events import NoticeKind
from dragonrt.wire.reasons import Reason
from scripts.campaign.liveness import may_seem_mute
from scripts.campaign.scenario import MARKER_TOKENS, Request, Scenario
from tests.oracles import oracle
from tests.oracles.asked import Attendance
from tests.oracles.brute_force import softmax
from tests.oracles.dragon import read_by_cloud, redacted_oracle
from tests.oracles.pace import pace

BREACHES = frozenset(
    {
        Reason.INTERNAL,
        Reason.MALFORMED,
        Reason.OUT_OF_ORDER,
        Reason.PROTOCOL,
        Reason.TOO_LARGE,
        Reason.UNSUPPORTED,
    }
)
"""Reasons for which a session or connection ends if a side has broken the protocol."""
EXPECTED = frozenset({NoticeKind.BACK, NoticeKind.LATE})
"""Notices of answers that nothing disturbed: deadlines are as short as a seed draws them."""


class ViolationError(DragonError):
    """An invariant does not hold; the text says which one."""


@dataclass(slots=True)
class Taking:
    """The events of one side in one session of an answer, or of the device in all sessions.

    `changes` has the steps at which the device became alone (True) or joined again, `given` the
    tokens that the cloud decided by itself, `heard` the types of messages that came. A device that
    decides alone since it found the cloud steering (`parted`) is not counted as alone.
    """

    settings: Settings
    accepted: int
    decided: list[int] = field(default_factory=list)
    changes: list[tuple[int, bool]] = field(default_factory=list)
    verdicts: dict[int, tuple[int, int]] = field(default_factory=dict)
    given: dict[int, int] = field(default_factory=dict)
    rounds: list[events.RoundDecided] = field(default_factory=list)
    heard: set[str] = field(default_factory=set)
    withheld: list[bool] = field(default_factory=list)
    parted: bool = False

    def take(self, event: events.Event) -> None:
        """Add an event. Raises ViolationError if the event itself breaks an invariant."""
        reached = self.accepted + len(self.decided)
        match event:
            case events.TokenDecided():
                if event.step != reached:
                    raise ViolationError(f"step {event.step} was decided where {reached} was next")
                self.decided.append(event.token)
                self.withheld.append(event.withheld)
            case events.ForwardDone() | events.Drafted():  # what is looked up may be let go of
                bound = reached + pace(self.settings).ahead
                if event.step >= bound:
                    raise ViolationError(f"step {event.step} was drafted beyond the bound {bound}")
            case events.Noticed():
                self.parted |= event.reason is Reason.STEERED
            case events.WentAlone() | events.Rejoined() if not self.parted:
                self.changes.append((event.step, isinstance(event, events.WentAlone)))
            case events.BlockJudged():
                self.verdicts[event.round] = event.accepted, event.token
            case events.TargetDecoded():
                self.given[event.step] = event.token
            case events.RoundDecided():
                self.rounds.append(event)
            case events.MessageReceived():
                self.heard.add(event.message)
            case events.TextsDiverged():
                raise ViolationError(
                    f"the two sides decided different texts before step {event.step}"
                )

    def course(self, members: Mapping[str, float]) -> Attendance:
        """Return who took part in each step; steps not decided have those of the last step."""
        alone_at = dict(self.changes)
        is_alone: list[bool] = []
        for step in range(self.accepted + len(self.decided) + 1):
            is_alone.append(alone_at.get(step, is_alone[-1] if is_alone else False))
        weights: dict[int, Mapping[str, float]] = {}
        for each in self.rounds:
            weights |= dict.fromkeys(range(each.step, each.step + each.decided), each.weights)
        reached = len(is_alone) - 1
        last = self.rounds[-1].weights if self.rounds else members
        return Attendance(
            lambda step: is_alone[min(step, reached)],
            lambda step: weights[step] if step < reached else weights.get(step, last),
        )


def check(
    scenario: Scenario,
    request: Request,
    answer: Answer,
    device: Taking,
    sessions: Sequence[Taking],
    clouds: Sequence[Taking],
    *,
    given_up: bool,
    honest: bool = True,
    quiet: bool = True,
) -> None:
    """Raise ViolationError unless an answer's text, messages, end and notices are as they must be.

    `device` has the device's events of the whole answer, `sessions` those of each session, `clouds`
    those of the clouds. If `given_up`, the answer may be incomplete. If not `honest`, notices may
    complain of a side. If `quiet`, only the scenario's own faults may disturb the answer.
    """
    if device.decided != answer.tokens:
        raise ViolationError("the device shows another text than it decided")
    _check_text(scenario, request, device)
    for taking in clouds:
        _check_cloud(scenario, request, device, sessions, taking)
        more = taking.heard - {"open", "target", "conclude", "close"}
        if honest and request.settings.keeps_drafts and more:  # SPEC 1.10
            raise ViolationError(f"the cloud was sent more than it may know: {sorted(more)}")
    _check_rounds(scenario, request, device)
    _check_end(request, answer, given_up=given_up)
    for notice in answer.notices if honest else ():
        if notice.reason in BREACHES:
            raise ViolationError(f"a side broke the protocol: {notice.text}")
        mute = notice.reason is Reason.MUTE and may_seem_mute(scenario, request)
        steered = notice.reason is Reason.STEERED
        disturbed = scenario.faulty or not quiet or given_up
        if not (disturbed or notice.kind in EXPECTED or mute or steered):
            raise ViolationError(f"the answer was disturbed without need: {notice.text}")


def _right(
    scenario: Scenario, request: Request, accepted: Sequence[int], course: Attendance
) -> list[int]:
    question = request.question.resumed(tuple(accepted))
    resources, texts = scenario.resources(request), scenario.texts(request, "device")
    return oracle(question, request.settings, scenario.models(request), course, resources, texts)


def _marker(settings: Settings) -> tuple[int, ...]:
    """What a cloud reads for a run of withheld tokens; at level `answer` these are the last."""
    return MARKER_TOKENS if settings.redacts else ()


def _check_text(scenario: Scenario, request: Request, device: Taking) -> None:
    """Every token of the device follows from the tokens before it and from who took part.

    It withholds the tokens that it must, and no others.
    """
    course, settings = device.course(scenario.clouds), request.settings
    if not settings.keeps_drafts:
        _compare("device", device.decided, _right(scenario, request, (), course))
        return
    assert isinstance(settings, DragonSettings)
    models, marker = scenario.models(request), _marker(settings)
    decisions = redacted_oracle(request.question, settings, models, marker, course)
    _compare("device", device.decided, [token for token, _ in decisions])
    if device.withheld != [withheld for _, withheld in decisions][: len(device.withheld)]:
        raise ViolationError("the device withheld other tokens than the definition says")


def _is_complete(request: Request, tokens: Sequence[int]) -> bool:
    question = request.question
    stopped = bool(tokens) and tokens[-1] in question.stop_tokens
    return stopped or len(tokens) == question.max_tokens


def _compare(side: str, decided: Sequence[int], right: Sequence[int], first: int = 0) -> None:
    for step, token in enumerate(decided, start=first):
        expected = right[step] if step < len(right) else None
        if token != expected:
            raise ViolationError(
                f"the {side} decided {token} at step {step} where the oracle gives {expected}"
            )


def _check_cloud(
    scenario: Scenario, request: Request, device: Taking, sessions: Sequence[Taking], cloud: Taking
) -> None:
    """Its tokens are right, and its verdicts are those that the device took."""
    if request.settings.keeps_drafts:
        decisions = list(zip(device.decided, device.withheld, strict=True))
        read = read_by_cloud(decisions, _marker(request.settings))
        text = [*read[: cloud.accepted], *cloud.decided]
        if text != read[: len(text)]:
            raise ViolationError(f"the cloud reads {text} where it may read {read}")
        return
    accepted = device.decided[: cloud.accepted]
    text = [*accepted, *cloud.decided]
    if text != device.decided[: len(text)] or any(alone for _, alone in device.changes):
        _compare("cloud", text, _right(scenario, request, accepted, Attendance()))
    if cloud.given:
        right = _right(scenario, request, accepted, Attendance())
        for step, token in cloud.given.items():
            _compare("cloud", [token], right, step)
    if cloud.verdicts and not any(
        session.accepted == cloud.accepted
        and all(cloud.verdicts.get(number, given) == given for number, given in taken.items())
        for session, taken in ((session, session.verdicts) for session in sessions)
    ):
        raise ViolationError("the device took other verdicts than the cloud gave")


def _check_rounds(scenario: Scenario, request: Request, device: Taking) -> None:
    """Every round has the weights of those who took part, and all of them where that is wanted."""
    members, models, settings = scenario.clouds, scenario.models(request), request.settings
    hashes = TokenPrefix(start_hash(request.question.seed), device.decided).hashes
    for each in device.rounds:
        if each.weights.keys() | set(each.missing) != members.keys():
            raise ViolationError(f"round {each.round} forgot a worker")
        if each.missing and settings.needs_all:
            raise ViolationError(f"round {each.round} was decided without {each.missing}")
        names = [name for name in members if name in each.weights]
        if not settings.weighing_option:
            total = sum(members[name] for name in names)
            right = [members[name] / total for name in names]
        else:
            place = each.step, hashes[each.step]
            right = softmax([models[name].predict(*place).relevance for name in names])
        if not all(
            isclose(each.weights[name], weight) for name, weight in zip(names, right, strict=True)
        ):
            raise ViolationError(f"round {each.round} has other weights than its workers")


def _check_end(request: Request, answer: Answer, *, given_up: bool) -> None:
    """An answer that nobody gave up ends with a stop token or at its full length."""
    question, tokens = request.question, answer.tokens
    complete = _is_complete(request, tokens)
    if not complete and not given_up:
        raise ViolationError(f"the answer ended with {len(tokens)} of {question.max_tokens} tokens")
    if len(tokens) > question.max_tokens or any(
        token in question.stop_tokens for token in tokens[:-1]
    ):
        raise ViolationError("the answer goes on behind its end")
    if answer.finish is not Finish.CANCELLED and not complete and not given_up:
        raise ViolationError(f"an incomplete answer says it ended by {answer.finish.value}")
