"""One session of one connection: a plan as a message, messages to a generation and back."""

from collections.abc import Callable, Sequence

from dragonrt.runtime.draft import Draft
from dragonrt.runtime.generation import Generation, GenerationError
from dragonrt.runtime.outcome import Turn
from dragonrt.runtime.peer import Peer
from dragonrt.runtime.plan import Plan, placement_of
from dragonrt.runtime.scheduler import Placement
from dragonrt.runtime.trace import Trace
from dragonrt.sampling.samplers import Sampler
from dragonrt.side import Side
from dragonrt.wire import messages as wire
from dragonrt.wire.errors import Reason


def open_message(
    plan: Plan, question: str, history: Sequence[Turn], accepted: Sequence[int], number: int
) -> wire.Open:
    """The Open that carries a plan to the other side."""
    return wire.Open(
        session=number,
        prompt=question,
        history=tuple(history),
        seed=plan.seed,
        temperature=plan.sampler.temperature,
        top_k=plan.sampler.top_k,
        top_p=plan.sampler.top_p,
        min_p=plan.sampler.min_p,
        max_tokens=plan.max_tokens,
        stop_tokens=plan.stop_tokens,
        rule=plan.rule,
        aggregator=plan.placement.value,
        codec=plan.codec,
        run_ahead=plan.run_ahead,
        documents=plan.documents,
        relevance_temperature=plan.relevance_temperature,
        reweight_every=plan.reweight_every,
        follow=plan.follow,
        accepted=tuple(accepted),
    )


def plan_of(message: wire.Open) -> Plan:
    """The plan in an Open; DragonError for names this side does not know."""
    plan = Plan(
        seed=message.seed,
        sampler=Sampler(message.temperature, message.top_k, message.top_p, message.min_p),
        rule=message.rule,
        placement=placement_of(message.aggregator),
        codec=message.codec,
        max_tokens=message.max_tokens,
        stop_tokens=message.stop_tokens,
        run_ahead=message.run_ahead,
        documents=message.documents,
        relevance_temperature=message.relevance_temperature,
        reweight_every=message.reweight_every,
        follow=message.follow,
    )
    plan.check()
    return plan


def trace_open(trace: Trace, session: int, plan: Plan, accepted: int) -> None:
    """A generation begins, with `accepted` tokens decided in a session before."""
    trace.event(
        session,
        "open",
        accepted=accepted,
        seed=plan.seed,
        temperature=plan.sampler.temperature,
        top_k=plan.sampler.top_k,
        top_p=plan.sampler.top_p,
        min_p=plan.sampler.min_p,
        rule=plan.rule,
        aggregator=plan.placement.value,
        codec=plan.codec,
        run_ahead=plan.run_ahead,
        follow=plan.follow,
    )


def finish_of(generation: Generation | None) -> str:
    """Why a generation ended, or "error" if it did not come to an end."""
    return generation.finish.value if generation is not None and generation.finish else "error"


class DragonSession:
    """One session of one connection: its messages to a generation, and a generation's messages out.

    Drafts that come before the generation is ready wait in a bounded inbox.
    """

    def __init__(
        self,
        peer: Peer,
        plan: Plan,
        *,
        lost: Callable[[str], None],
        diverged: Callable[[], None],
    ) -> None:
        self.number = 0
        self.sources: tuple[wire.Source, ...] = ()
        self._peer = peer
        self._plan = plan
        self._lost = lost
        self._generation: Generation | None = None
        self._inbox: list[wire.Draft] = []
        self._diverged = diverged

    # What the peer calls.

    def receive(self, message: wire.SessionMessage) -> None:
        match message:
            case wire.Draft():
                self._receive_draft(message)
            case wire.Target():
                if self._generation is None:
                    raise GenerationError("a target token came before any draft was made")
                self._generation.receive_target(
                    message.step, message.prefix_hash, message.token, message.aggregator
                )
            case wire.Opened():
                self.sources = message.sources
            case _:
                raise GenerationError(f"a {type(message).__name__} has no place in an answer")

    @property
    def schedules(self) -> bool:
        return self._plan.placement is Placement.GREEDY

    def lost(self, reason: str) -> None:
        self._lost(reason)

    def _receive_draft(self, message: wire.Draft) -> None:
        if self._generation is None:
            if len(self._inbox) >= 2 * self._plan.window:
                raise GenerationError("more drafts came than were agreed on")
            self._inbox.append(message)
            return
        draft = Draft(
            step=message.step,
            prefix_hash=message.prefix_hash,
            token=message.token,
            payload=message.payload,
            relevance=message.relevance,
            decode_s=message.decode_us / 1e6,
        )
        decided = message.step - message.ahead
        self._generation.receive_draft(draft, decided, message.decided_hash)

    def attach(self, generation: Generation) -> None:
        """Let a generation work over this session, beginning with what has come already."""
        self._generation = generation
        generation.session = self.number
        generation.connect(self)
        inbox, self._inbox = self._inbox, []
        for message in inbox:
            self._receive_draft(message)

    # What the generation calls.

    def send_draft(self, draft: Draft, decided: int, decided_hash: int) -> None:
        self._peer.send(
            wire.Draft(
                session=self.number,
                step=draft.step,
                prefix_hash=draft.prefix_hash,
                token=draft.token,
                relevance=draft.relevance,
                decode_us=int(draft.decode_s * 1e6),
                ahead=draft.step - decided,
                decided_hash=decided_hash,
                payload=draft.payload,
            )
        )

    def send_target(self, step: int, prefix_hash: int, token: int, aggregator: Side) -> None:
        self._peer.send(wire.Target(self.number, step, prefix_hash, token, aggregator))

    def diverged(self) -> None:
        self._diverged()

    async def drain(self) -> None:
        await self._peer.drain()

    def round_trip_s(self, size: int = 0) -> float:
        return self._peer.round_trip_s(size)

    def close(self, reason: Reason, text: str = "") -> None:
        """End the session on this connection."""
        self._peer.close(self.number, reason, text)
