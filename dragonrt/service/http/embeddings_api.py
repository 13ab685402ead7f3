"""`POST /v1/embeddings`: vectors of the embedder that this device's documents are indexed with."""

import asyncio
from base64 import b64encode
from functools import partial
from pathlib import PurePath
from typing import Any

from starlette.responses import JSONResponse

from dragonrt.node.local_side import LocalSide
from dragonrt.service.http.api_errors import unsupported
from dragonrt.service.http.request_body import EMBEDDINGS, Json, many, read, warning
from retrieval import Embedder
from retrieval.embedding import DEFAULT

BUNDLED = "all-MiniLM-L6-v2"
"""The name of the default embedder in other programs."""
AT_ONCE = 16
"""Texts after which a question's retrieval may go first."""


def embedder_name(embedder: Embedder) -> str:
    """Return the embedder's name for clients: no path of this machine."""
    return BUNDLED if embedder.name == DEFAULT else PurePath(embedder.name).name


async def embeddings(body: Json, name: str, embedder: Embedder, side: LocalSide) -> JSONResponse:
    """Return a vector for each text, as documents are embedded. Raises ApiError for no texts.

    Tokens are counted as the side's language model reads them. Only the beginning of a text that is
    too long for the embedder counts.
    """
    fields, ignored = read(body, EMBEDDINGS)
    texts, dimensions = many(fields["input"]), fields.get("dimensions")
    form = fields.get("encoding_format", "float")
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
        headers=warning(ignored),
    )
