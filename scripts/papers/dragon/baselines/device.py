"""The device's side of the baselines of SPEC 1.6, each from the question to its last token.

DRDG/TW, output aggregation token by token, is not here: it is an ordinary answer with the
aggregator "sync".
"""

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import astuple, dataclass, field

import numpy as np
from safetensors.numpy import load

from dragonrt.backends.prefix_cache import PrefixCache
from scripts.papers.dragon.baselines.cloud import Channel, pack, unpack
from scripts.papers.dragon.baselines.reading import Asked, BaselineSide, log_probability, scored

NOTICE = (
    "baselines: DRCG/Text and DRCG/KV send the cloud's documents and their KV to the device, over "
    "loopback and for this experiment only; dragonrt itself never does"
)

Show = Callable[[int], None]


@dataclass(slots=True)
class Timed:
    """An answer: its tokens, when each was there (the loop's clock), and bytes both ways."""

    asked_s: float
    tokens: list[int] = field(default_factory=list)
    times_s: list[float] = field(default_factory=list)
    wire_bytes: int = 0


@dataclass(frozen=True, slots=True)
class BaselineDevice:
    """A device with a channel to a baselines' cloud, both past their greetings."""

    side: BaselineSide
    channel: Channel

    async def ask(self, baseline: str, asked: Asked) -> Timed:
        """Answer by the baseline of that name, one of `BASELINES`."""
        clock, before = asyncio.get_running_loop().time, self.channel.wire_bytes
        answer = Timed(clock())

        def show(token: int) -> None:
            answer.tokens.append(token)
            answer.times_s.append(clock())

        await BASELINES[baseline](self, asked, show)
        answer.wire_bytes = self.channel.wire_bytes - before
        return answer

    async def _request(self, what: str, asked: Asked) -> None:
        await self.channel.send("BaselineRequest", what, *astuple(asked))

    async def crcg_device(self, asked: Asked, show: Show) -> None:
        """Answer on the device alone, its own documents in the context."""
        found = await self.side.texts(asked)
        await self._decode(await self.side.read_context(found, asked), asked, show)

    async def crcg_cloud(self, asked: Asked, show: Show) -> None:
        """Answer on the cloud alone, its own documents in the context."""
        await self._request("answer", asked)
        for _ in range(asked.tokens):
            show((await self.channel.receive("Token"))[1])

    async def drcg_text(self, asked: Asked, show: Show) -> None:
        """Fetch the cloud's texts and answer on the device with all documents in the context."""
        await self._request("texts", asked)
        fetched = await self.channel.receive_until_end("Text")
        found = [
            *await self.side.texts(asked),
            *((title, text, score) for title, text, score in fetched),
        ]
        await self._decode(await self.side.read_context(found, asked), asked, show)

    async def drcg_kv(self, asked: Asked, show: Show) -> None:
        """Fetch the cloud's stored KV and answer on the device, a row per document of both sides.

        KV of separate documents cannot be put one behind another without computing it anew, so the
        outputs are aggregated; nothing but the question is prefilled.
        """
        await self._request("kv", asked)
        hits = await self.side.find(asked)
        stored, scores = await self.side.kv(hits), [hit.score for hit in hits]
        for data, score in await self.channel.receive_until_end("StoredKv"):
            stored.append(self.side.model.backend.load(load(data)))
            scores.append(score)
        await self._decode(await self.side.read_rows(stored, scores, asked), asked, show)

    async def drdg_sw(self, asked: Asked, show: Show) -> None:
        """Draw a whole sequence y on both sides; the likelier one is the answer.

        That is by η_l p_l(y) + η_r p_r(y), REPLUG's weights. The cloud sends the distributions of
        all tokens in one transmission (DRAGON section 7.2), of its own sequence and then of the
        device's. No token is there before the last one is.
        """
        await self._sequence("distributions", asked, show)

    async def drdg_sw_scores(self, asked: Asked, show: Show) -> None:
        """Give the same answer; the cloud sends log-probabilities of sequences instead (ours)."""
        await self._sequence("scores", asked, show)

    async def _sequence(self, what: str, asked: Asked, show: Show) -> None:
        side, channel = self.side, self.channel
        await self._request(what, asked)
        hits = await side.find(asked)
        reader = await side.read_rows(await side.kv(hits), [hit.score for hit in hits], asked)
        own, p = zip(*[each async for each in side.decode(reader, asked)], strict=True)
        await channel.send("Score", pack(own))
        _, packed, relevance, along = await channel.receive("Drawn")
        theirs = unpack(packed)
        theirs_here = log_probability(theirs, await side.distributions(reader, theirs))
        _, along_own = await channel.receive("Scored")
        h = reader.relevance, relevance
        own_there = scored(along_own, own)
        theirs_there = scored(along, theirs)
        own_score = np.logaddexp(h[0] + log_probability(own, p), h[1] + own_there)
        theirs_score = np.logaddexp(h[0] + theirs_here, h[1] + theirs_there)
        for token in own if own_score >= theirs_score else theirs:
            show(token)

    async def _decode(self, reader: PrefixCache, asked: Asked, show: Show) -> None:
        async for token, _ in self.side.decode(reader, asked):
            show(token)


BASELINES: dict[str, Callable[[BaselineDevice, Asked, Show], Awaitable[None]]] = {
    "CRCG/device": BaselineDevice.crcg_device,
    "CRCG/cloud": BaselineDevice.crcg_cloud,
    "DRCG/Text": BaselineDevice.drcg_text,
    "DRCG/KV": BaselineDevice.drcg_kv,
    "DRDG/SW": BaselineDevice.drdg_sw,
    "DRDG/SW, scores": BaselineDevice.drdg_sw_scores,
}
