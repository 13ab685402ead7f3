"""The device's side of the baselines of SPEC 1.6, each from the question to its last token.

DRDG/TW, output aggregation token by token, is not here: it is an ordinary answer with the
aggregator "sync".
"""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field

import numpy as np
from safetensors import SafetensorError
from safetensors.numpy import load

from dragonrt.backends.reader import Reader
from dragonrt.backends.torch_.document import DocumentKV
from scripts.papers.dragon.baselines.exchange import BaselineError, Channel, pack, unpack
from scripts.papers.dragon.baselines.reading import BaselineSide, RetrievedText, log_probability

NOTICE = (
    "baselines: DRCG/Text and DRCG/KV send the cloud's documents and their KV to the device, over "
    "loopback and for this experiment only; dragonrt itself never does"
)


@dataclass(frozen=True, slots=True)
class Asked:
    """One question and how it is to be answered: exactly `tokens` tokens."""

    question: str
    documents: int
    seed: int
    temperature: float
    tokens: int

    def request(self, what: str) -> tuple[str, str, int, int, float, int]:
        """Return the fields of a request to the cloud for `what`."""
        temperature = float(self.temperature)
        return what, self.question, self.documents, self.seed, temperature, self.tokens


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
        channel, clock = self.channel, asyncio.get_running_loop().time
        before = channel.bytes_sent + channel.bytes_received
        answer = Timed(clock())

        def show(token: int) -> None:
            answer.tokens.append(token)
            answer.times_s.append(clock())

        await BASELINES[baseline](self, asked, show)
        answer.wire_bytes = channel.bytes_sent + channel.bytes_received - before
        return answer

    async def crcg_device(self, asked: Asked, show: Callable[[int], None]) -> None:
        """The device alone, its own documents in the context."""
        await self._decode(await self._read([], asked), asked, show)

    async def crcg_cloud(self, asked: Asked, show: Callable[[int], None]) -> None:
        """The cloud alone, its own documents in the context; the device shows its tokens."""
        await self.channel.send("BaselineRequest", *asked.request("answer"))
        for _ in range(asked.tokens):
            show(*await self.channel.receive("Token"))

    async def drcg_text(self, asked: Asked, show: Callable[[int], None]) -> None:
        """The device alone, with both sides' documents in the context: it fetches the texts."""
        await self.channel.send("BaselineRequest", *asked.request("texts"))
        texts = await self.channel.receive_until_end("Text")
        fetched = [RetrievedText(*each) for each in texts]
        await self._decode(await self._read(fetched, asked), asked, show)

    async def drcg_kv(self, asked: Asked, show: Callable[[int], None]) -> None:
        """The device alone, with a row per document of both sides: it fetches the stored KV.

        KV of separate documents cannot be put one behind another without computing it anew, so the
        outputs are aggregated; nothing but the question is prefilled.
        """
        await self.channel.send("BaselineRequest", *asked.request("kv"))
        hits = await self.side.find(asked.question, asked.documents)
        stored, scores = await self.side.kv(hits), [hit.score for hit in hits]
        for data, score in await self.channel.receive_until_end("StoredKv"):
            stored.append(_document(data))
            scores.append(score)
        reader = await self.side.read_rows(stored, scores, asked.question, asked.tokens)
        await self._decode(reader, asked, show)

    async def drdg_sw(self, asked: Asked, show: Callable[[int], None]) -> None:
        """Both sides draw a whole sequence each; the likelier one of the mixture is the answer.

        The cloud sends the distributions of all tokens in one transmission (DRAGON section 7.2),
        of its own sequence and then of the device's. No token is there before the last one is.
        """
        await self._sequence("distributions", asked, show)

    async def drdg_sw_scores(self, asked: Asked, show: Callable[[int], None]) -> None:
        """The same answer where the cloud sends what a sequence comes to instead (ours)."""
        await self._sequence("scores", asked, show)

    async def _sequence(self, what: str, asked: Asked, show: Callable[[int], None]) -> None:
        """Of both sequences y the likelier one: η_l p_l(y) + η_r p_r(y), REPLUG's weights."""
        side, channel = self.side, self.channel
        await channel.send("BaselineRequest", *asked.request(what))
        hits = await side.find(asked.question, asked.documents)
        scores = [hit.score for hit in hits]
        reader = await side.read_rows(await side.kv(hits), scores, asked.question, asked.tokens)
        decoded = side.decode(reader, asked.seed, asked.temperature, asked.tokens)
        own, p = zip(*[each async for each in decoded], strict=True)
        await channel.send("Score", pack(own))
        tokens, relevance, along = await channel.receive("Drawn")
        theirs = unpack(tokens)
        theirs_here = log_probability(theirs, await side.distributions(reader, theirs))
        own_there = _log_probability(what, (await channel.receive("Scored"))[0], own)
        h = reader.relevance, relevance
        own_score = np.logaddexp(h[0] + log_probability(own, p), h[1] + own_there)
        theirs_there = _log_probability(what, along, theirs)
        theirs_score = np.logaddexp(h[0] + theirs_here, h[1] + theirs_there)
        for token in own if own_score >= theirs_score else theirs:
            show(token)

    async def _read(self, fetched: list[RetrievedText], asked: Asked) -> Reader:
        """Own and fetched documents and the question, in one context."""
        own = await self.side.find(asked.question, asked.documents)
        found = [*(RetrievedText.of(hit) for hit in own), *fetched]
        return await self.side.read_context(found, asked.question, asked.tokens)

    async def _decode(self, reader: Reader, asked: Asked, show: Callable[[int], None]) -> None:
        decoded = self.side.decode(reader, asked.seed, asked.temperature, asked.tokens)
        async for token, _ in decoded:
            show(token)


BASELINES: dict[str, Callable[[BaselineDevice, Asked, Callable[[int], None]], Awaitable[None]]] = {
    "CRCG/device": BaselineDevice.crcg_device,
    "CRCG/cloud": BaselineDevice.crcg_cloud,
    "DRCG/Text": BaselineDevice.drcg_text,
    "DRCG/KV": BaselineDevice.drcg_kv,
    "DRDG/SW": BaselineDevice.drdg_sw,
    "DRDG/SW, scores": BaselineDevice.drdg_sw_scores,
}


def _document(data: bytes) -> DocumentKV:
    try:
        return DocumentKV.from_arrays(load(data))
    except SafetensorError as error:
        raise BaselineError(f"the KV that came cannot be read: {error}") from None


def _log_probability(what: str, said: bytes, tokens: Sequence[int]) -> float:
    """Of these tokens, from what the cloud says along them. Raises BaselineError."""
    try:
        if what == "scores":
            return float(np.frombuffer(said, np.float64).item())
        p = np.frombuffer(said, np.float32).reshape(len(tokens), -1)
        return log_probability(tokens, list(p))
    except (ValueError, IndexError):
        raise BaselineError("the distributions that came are not those of the sequence") from None
