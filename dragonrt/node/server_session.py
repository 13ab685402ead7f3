"""The cloud's part of an answer: one session that a device opens, until it closes it."""

import asyncio
import contextlib
from collections.abc import Coroutine
from typing import Any

from dragonrt.modes.mode import Joined
from dragonrt.modes.question import Question
from dragonrt.modes.registry import Resources, mode_entry
from dragonrt.modes.replay import machine
from dragonrt.node.answer import AnswerSession, Driver, opening
from dragonrt.node.backend_session import Prefiller, PrefillResult
from dragonrt.node.citing import attribution
from dragonrt.node.peer import Peer
from dragonrt.traces.events import AnswerClosed
from dragonrt.wire import messages as wire
from dragonrt.wire.values import unpack


def answering(
    prefiller: Prefiller, peer: Peer, message: wire.Open, turns: asyncio.Semaphore | None = None
) -> tuple[AnswerSession, Coroutine[Any, Any, None]]:
    """Make the session that a device opens, and the work on it. DragonError refuses it.

    `turns` are those of the device to have questions read.
    """
    entry = mode_entry(message.mode)
    question = unpack(Question, message.question)
    settings = unpack(entry.settings, message.settings)
    question.check_vocabulary(prefiller.vocabulary)
    resources = Resources(
        vocabulary=prefiller.vocabulary, timeouts=prefiller.timeouts, profile=prefiller.profile
    )
    mode = machine(entry, "cloud", question, settings, resources, peer.recorder)
    driver = Driver(mode, peer.recorder, prefiller.timeouts)
    session = driver.sessions["device"] = AnswerSession(driver, "device", None)
    peer.pacing.shape(settings)
    session.attach(peer, message.session)
    driver.feed(Joined("device", message.session))

    async def prepare() -> PrefillResult:
        async with turns or contextlib.nullcontext():
            return await prefiller.prepare(question, verifies=mode.verifies)

    async def work() -> None:
        """Prepare, report it, and take part until the device concludes or closes the session."""
        driver.record(opening(entry, question, settings, len(question.accepted)))
        working = wire.Working(message.session)
        try:
            read = await driver.prepare(prepare(), lambda: session.send(working))
            if read is None:
                return  # nobody waits for the answer: leave the model to others
            load_us, prefill_us = int(read.load_s * 1e6), int(read.prefill_s * 1e6)
            session.send(
                wire.Opened(message.session, read.prompt_tokens, load_us, prefill_us, read.evidence)
            )
            if prefiller.share_sources:
                session.attribute = lambda: attribution(
                    read.passages, mode.moved, read.decode(mode.decided), question.prompt
                )
            driver.begin(read)
            await driver.wait_over()
            await session.wait_closed()
        finally:
            await driver.settle()
            driver.record(AnswerClosed(driver.finish.value if driver.finish else "error"))

    return session, work()
