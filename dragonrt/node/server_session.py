"""The cloud's part of an answer: one session that a device opens, until it closes it."""

import asyncio
import contextlib
from collections.abc import Callable, Coroutine, Iterable
from typing import Any

from dragonrt.modes.mode import Joined
from dragonrt.modes.question import Question
from dragonrt.modes.registry import Resources, mode_entry
from dragonrt.modes.replay import machine
from dragonrt.node.answer import AnswerSession, Driver, opening
from dragonrt.node.citing import attribution
from dragonrt.node.peer import Peer
from dragonrt.node.preparing import PrefillResult, Preparer
from dragonrt.traces.events import AnswerClosed, AnswerOpened
from dragonrt.wire import messages as wire
from dragonrt.wire.values import unpack


def answering(
    preparer: Preparer, peer: Peer, message: wire.Open, turns: asyncio.Semaphore | None = None
) -> tuple[AnswerSession, Coroutine[Any, Any, None]]:
    """The session that a device opens, and the work on it; DragonError refuses it.

    `turns` are those of the device to have questions read.
    """
    entry = mode_entry(message.mode)
    question = unpack(Question, message.question)
    settings = unpack(entry.settings, message.settings)
    question.check_vocabulary(preparer.vocabulary)
    resources = Resources(
        vocabulary=preparer.vocabulary, timeouts=preparer.timeouts, profile=preparer.profile
    )
    mode = machine(entry, "cloud", question, settings, resources, peer.recorder)
    driver = Driver(preparer, mode, lambda record: None)
    driver.recorder = peer.recorder
    session = driver.sessions["device"] = AnswerSession(driver, "device", None)
    peer.pacing.shape(settings)
    session.attach(peer, message.session)
    driver.feed(Joined("device", message.session))
    opened = opening(entry, question, settings, len(question.accepted))
    verifies, turn = driver.mode.verifies, turns or contextlib.nullcontext()

    async def prepare() -> PrefillResult:
        async with turn:
            return await preparer.prepare(question, verifies=verifies)

    return session, _answer(preparer, driver, session, prepare, opened, question.prompt)


async def _answer(
    preparer: Preparer,
    driver: Driver,
    session: AnswerSession,
    prepare: Callable[[], Coroutine[Any, Any, PrefillResult]],
    opened: AnswerOpened,
    asked: str,
) -> None:
    """Prepare, say so, and take part until the device concludes or closes the session."""
    driver.record(opened)
    preparing = asyncio.ensure_future(prepare())
    over = asyncio.ensure_future(driver.wait_over())
    try:
        while not await _any_done((preparing, over), preparer.timeouts.probe_s):
            session.send(wire.Working(session.number))
        if not preparing.done():
            return  # nobody waits for the answer: leave the model to others
        prepared = await preparing
        session.send(
            wire.Opened(
                session=session.number,
                prompt_tokens=prepared.prompt_tokens,
                load_us=int(prepared.load_s * 1e6),
                prefill_us=int(prepared.prefill_s * 1e6),
                evidence=prepared.evidence,
            )
        )
        if preparer.share_sources:
            session.attribute = lambda: attribution(
                prepared.passages, driver.mode.moved, prepared.decode(driver.mode.decided), asked
            )
        driver.begin(prepared, preparer.vocabulary)
        await over
        await session.wait_closed()
    finally:
        for task in (preparing, over):
            task.cancel()
        await asyncio.gather(preparing, over, return_exceptions=True)
        await driver.settle()
        driver.record(AnswerClosed(driver.finish.value if driver.finish else "error"))


async def _any_done(futures: Iterable["asyncio.Future[Any]"], timeout_s: float) -> bool:
    """Whether one of them is done in that time."""
    first = asyncio.FIRST_COMPLETED
    done, _ = await asyncio.wait(futures, timeout=timeout_s, return_when=first)
    return bool(done)
