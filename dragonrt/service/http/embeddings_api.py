"""`POST /v1/embeddings`: vectors of the embedder that this device's documents are indexed with."""

import asyncio
from base64 import b64encode
from functools import partial
from pathlib import PurePath
from typing import Any

from starlette.responses import JSONResponse

from dragonrt.node.local_side import LocalSide
from dragonrt.service.http.api_errors import invalid, unsupported
from dragonrt.service.http.request_body import TEXT, WITHOUT_EFFECT, RequestBody, warning
from retrieval import Embedder
from retrieval.embedding import DEFAULT

BUNDLED = "all-MiniLM-L6-v2"
"""The name of the default embedder in other programs."""
MOST_TEXTS = 2048
"""Of one request, as in OpenAI's API."""
AT_ONCE = 16
"""Texts after which a question's retrieval may go first."""


def embedder_name(embedder: Embedder) -> str:
    """Return the embedder's name for clients: no path of this machine."""
    return BUNDLED if embedder.name == DEFAULT else PurePath(embedder.name).name


async def embeddings(
    body: RequestBody, name: str, embedder: Embedder, side: LocalSide
) -> JSONResponse:
    """Return a vector for each text, as documents are embedded. Raises ApiError for no texts.

    Tokens are counted as the side's language model reads them. Only the beginning of a text that is
    too long for the embedder counts.
    """
    texts = body.take("input")
    texts = [texts] if isinstance(texts, str) else texts
    if (
        not isinstance(texts, list)
        or not 1 <= len(texts) <= MOST_TEXTS
        or not all(isinstance(text, str) and text for text in texts)
    ):
        raise invalid("input", f"a text or up to {MOST_TEXTS}, none of them empty")
    form = body.take("encoding_format", TEXT, "float")
    if form not in ("float", "base64"):
        raise invalid("encoding_format", "float or base64")
    dimensions = body.take("dimensions")
    body.allow(WITHOUT_EFFECT)
    found: list[dict[str, Any]] = []
    for first in range(0, len(texts), AT_ONCE):
        part = texts[first : first + AT_ONCE]
        for vector in await side.librarian.run(partial(embedder.encode, part)):
            if dimensions not in (None, vector.size):
                raise unsupported("dimensions", f"this embedder has {vector.size}", str(dimensions))
            packed = b64encode(vector.astype("<f4").tobytes()).decode()
            values = packed if form == "base64" else vector.tolist()
            found.append({"object": "embedding", "index": len(found), "embedding": values})
    encode = side.model.encode
    tokens = await asyncio.to_thread(lambda: sum(len(encode(text)) for text in texts))
    usage = {"prompt_tokens": tokens, "total_tokens": tokens}
    return JSONResponse(
        {"object": "list", "model": name, "data": found, "usage": usage},
        headers=warning(body.ignored),
    )
