"""`POST /v1/embeddings`: vectors of the embedder that this device's documents are indexed with."""

import asyncio
from base64 import b64encode
from collections.abc import Callable, Sequence
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
"""What the default embedder is called elsewhere."""
MOST_TEXTS = 2048
"""Of one request, as in OpenAI's API."""
AT_ONCE = 16
"""Texts between which a question may be retrieved for."""


def embedder_name(embedder: Embedder) -> str:
    """Return what clients call the embedder: no path of this machine."""
    return BUNDLED if embedder.name == DEFAULT else PurePath(embedder.name).name


async def embeddings(
    body: RequestBody, name: str, embedder: Embedder, side: LocalSide
) -> JSONResponse:
    """Return a vector for each text, as documents are embedded; ApiError for what is no text.

    Tokens are counted as the side's language model reads them. Of a text that is longer than the
    embedder reads, its beginning counts.
    """
    texts = body.take("input")
    texts = [texts] if isinstance(texts, str) else texts
    if not _are_texts(texts):
        raise invalid("input", f"a text or up to {MOST_TEXTS}, none of them empty")
    form = body.take("encoding_format", TEXT, "float")
    if form not in ("float", "base64"):
        raise invalid("encoding_format", "float or base64")
    dimensions = body.take("dimensions")
    body.pass_over(WITHOUT_EFFECT)
    body.close()
    found: list[dict[str, Any]] = []
    tokens = 0
    for first in range(0, len(texts), AT_ONCE):
        part = texts[first : first + AT_ONCE]
        for vector in await side.librarian.run(partial(embedder.encode, part)):
            if dimensions not in (None, vector.size):
                raise unsupported("dimensions", f"this embedder has {vector.size}", str(dimensions))
            packed = b64encode(vector.astype("<f4").tobytes()).decode()
            told = packed if form == "base64" else vector.tolist()
            found.append({"object": "embedding", "index": len(found), "embedding": told})
        tokens += await asyncio.to_thread(_count, side.model.encode, part)
    return JSONResponse(
        {
            "object": "list",
            "model": name,
            "data": found,
            "usage": {"prompt_tokens": tokens, "total_tokens": tokens},
        },
        headers=warning(body.ignored),
    )


def _count(encode: Callable[[str], list[int]], texts: Sequence[str]) -> int:
    return sum(len(encode(text)) for text in texts)


def _are_texts(value: Any) -> bool:
    if not isinstance(value, list) or not 1 <= len(value) <= MOST_TEXTS:
        return False
    return all(isinstance(text, str) and text for text in value)
