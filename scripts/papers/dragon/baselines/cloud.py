"""The cloud's side of the baselines: it gives away documents, KV, tokens or whole sequences."""

from collections.abc import Sequence

import numpy as np
from safetensors.numpy import save

from dragonrt.errors import LinkError
from dragonrt.link.stream import Stream
from scripts.papers.dragon.baselines.device import Asked
from scripts.papers.dragon.baselines.exchange import BaselineError, Channel, pack, unpack
from scripts.papers.dragon.baselines.reading import (
    BaselineSide,
    Probabilities,
    RetrievedText,
    log_probability,
)


async def serve_baselines(stream: Stream, side: BaselineSide) -> None:
    """Answer one device's requests, one after another, until it hangs up."""
    channel = Channel(stream)
    try:
        await channel.greet(side.model.document_fingerprint)
        while True:
            what, *asked = await channel.receive("BaselineRequest")
            await _answer(channel, side, what, Asked(*asked))
    except (BaselineError, LinkError):
        pass  # the device has left, or was no baseline's device: there is nobody to tell
    finally:
        await channel.close()


async def _answer(channel: Channel, side: BaselineSide, what: str, request: Asked) -> None:
    hits = await side.find(request.question, request.documents)
    match what:
        case "texts":
            for hit in hits:
                await channel.send("Text", hit.chunk.title, hit.chunk.text, hit.score)
            await channel.send("End")
        case "kv":
            for hit, stored in zip(hits, await side.kv(hits), strict=True):
                await channel.send("StoredKv", save(stored.dump()), hit.score)
            await channel.send("End")
        case "answer":
            found = [RetrievedText.of(hit) for hit in hits]
            reader = await side.read_context(found, request.question, request.tokens)
            decoded = side.decode(reader, request.seed, request.temperature, request.tokens)
            async for token, _ in decoded:
                await channel.send("Token", token)
        case "scores" | "distributions":
            scores = [hit.score for hit in hits]
            reader = await side.read_rows(
                await side.kv(hits), scores, request.question, request.tokens
            )
            decoded = side.decode(reader, request.seed, request.temperature, request.tokens)
            drawn = [each async for each in decoded]
            tokens, p = zip(*drawn, strict=True)
            said = _said(what, tokens, p)
            await channel.send("Drawn", pack(tokens), reader.relevance, said)
            theirs = unpack(*await channel.receive("Score"))
            along = await side.distributions(reader, theirs)
            await channel.send("Scored", _said(what, theirs, along))
        case _:
            raise BaselineError(f"no baseline asks for {what!r}")


def _said(what: str, tokens: Sequence[int], p: Sequence[Probabilities]) -> bytes:
    score = np.float64(log_probability(tokens, p))
    return score.tobytes() if what == "scores" else np.concatenate(p).tobytes()
