"""The cloud's part of one answer, from the device's Open message to the Close."""

import asyncio
from collections.abc import Coroutine
from functools import partial
from typing import Any

from msgspec import structs

from dragonrt.modes import mode_entry
from dragonrt.modes.mode import Joined
from dragonrt.modes.question import Question
from dragonrt.node.answers.citing import attribution, storable
from dragonrt.node.answers.driver import AnswerSession, Driver, opening
from dragonrt.node.answers.model_session import Prefiller, PrefillResult
from dragonrt.node.connections.admission import CloudAdmission, CloudLimits, source_of
from dragonrt.node.connections.peer import Peer
from dragonrt.traces.events import AnswerClosed
from dragonrt.wire import messages as wire
from dragonrt.wire.fields import unpack


def admission(prefiller: Prefiller, limits: CloudLimits) -> CloudAdmission:
    """Return a cloud's admission control: `prefiller` reads admitted questions, within `limits`."""
    return CloudAdmission(partial(server_session, prefiller), prefiller.timeouts, limits)


def server_session(
    prefiller: Prefiller, peer: Peer, message: wire.Open, turns: asyncio.Semaphore
) -> tuple[AnswerSession, Coroutine[Any, Any, None]]:
    """Return the session that a device opens by `message`, and the coroutine that answers in it.

    `turns` limits how many questions of that device are read at a time. Raises DragonError for a
    question or settings that this cloud cannot answer.
    """
    entry = mode_entry(message.mode)
    question = unpack(Question, message.question)
    settings = unpack(entry.settings, message.settings)
    question.check_vocabulary(prefiller.vocabulary)
    resources = entry.prepare(prefiller, {}, settings)
    mode = entry.cloud(question, settings, resources)
    driver = Driver(mode, peer.recorder, prefiller.timeouts)
    session = driver.add("device")
    peer.pacing.shape(settings.pads, settings.constant_rate)
    session.attach(peer, message.session)
    driver.feed(Joined("device", message.session))
    # All devices may have the same key and certificate, and behind a balancer the same address.
    client = source_of(peer.name.rpartition(":")[0]), peer.name

    async def prepare() -> PrefillResult:
        async with turns:
            return await prefiller.prepare(question, verifies=settings.verifies, client=client)

    async def work() -> None:
        """Prepare, report it, and take part until the device concludes or closes the session."""
        driver.record(opening(entry, question, settings, len(question.accepted)))
        working = wire.Working(message.session)
        try:
            read = await driver.prepare(prepare(), lambda: session.send(working))
            if read is None:
                return  # the session is closed: free the model for other answers
            load_us, prefill_us = int(read.load_s * 1e6), int(read.prefill_s * 1e6)
            tokens, passages = read.prompt_tokens, read.passages_hash
            session.send(wire.Opened(message.session, tokens, load_us, prefill_us, passages))
            driver.begin(read)
            await driver.wait_over()
            await session.wait_closed()
            if session.concluded is not None and prefiller.share_sources:
                text = read.decode(mode.decided), question.prompt
                found = attribution(read.passages, mode.evidence, *text)
                differing = storable(await read.other_values(mode.decided))
                session.send_sources(structs.replace(found, differing=differing))
        finally:
            session.send_sources(None)
            await driver.settle()
            driver.record(AnswerClosed(driver.finish.value if driver.finish else "error"))

    return session, work()
