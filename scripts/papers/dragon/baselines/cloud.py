"""The cloud's side of the baselines: it gives away documents, KV, tokens or whole sequences."""

from collections.abc import Sequence

import numpy as np
from safetensors.numpy import save

from dragonrt.errors import LinkError
from dragonrt.link.stream import Stream
from scripts.papers.dragon.baselines.exchange import (
    BaselineError,
    BaselineRequest,
    Channel,
    Drawn,
    End,
    Score,
    Scored,
    StoredKv,
    Text,
    Token,
    pack,
    unpack,
)
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
            await _answer(channel, side, await channel.receive(BaselineRequest))
    except (BaselineError, LinkError):
        pass  # the device has left, or was no baseline's device: there is nobody to tell
    finally:
        await channel.close()


async def _answer(channel: Channel, side: BaselineSide, request: BaselineRequest) -> None:
    hits = await side.find(request.question, request.documents)
    match request.what:
        case "texts":
            for hit in hits:
                await channel.send(Text(hit.chunk.title, hit.chunk.text, hit.score))
            await channel.send(End())
        case "kv":
            for hit, stored in zip(hits, await side.kv(hits), strict=True):
                await channel.send(StoredKv(save(stored.dump()), hit.score))
            await channel.send(End())
        case "answer":
            found = [RetrievedText.of(hit) for hit in hits]
            reader = await side.read_context(found, request.question, request.tokens)
            decoded = side.decode(reader, request.seed, request.temperature, request.tokens)
            async for token, _ in decoded:
                await channel.send(Token(token))
        case "scores" | "distributions":
            scores = [hit.score for hit in hits]
            reader = await side.read_rows(
                await side.kv(hits), scores, request.question, request.tokens
            )
            decoded = side.decode(reader, request.seed, request.temperature, request.tokens)
            drawn = [each async for each in decoded]
            tokens, p = zip(*drawn, strict=True)
            said = _said(request.what, tokens, p)
            await channel.send(Drawn(pack(tokens), reader.relevance, said))
            theirs = unpack((await channel.receive(Score)).tokens)
            along = await side.distributions(reader, theirs)
            await channel.send(Scored(_said(request.what, theirs, along)))
        case _:
            raise BaselineError(f"no baseline asks for {request.what!r}")


def _said(what: str, tokens: Sequence[int], p: Sequence[Probabilities]) -> bytes:
    score = np.float64(log_probability(tokens, p))
    return score.tobytes() if what == "scores" else np.concatenate(p).tobytes()
