"""Who may use the HTTP service, and when: API keys, origins, hosts, and the queue for a device."""

import asyncio
import hmac
import itertools
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from urllib.parse import urlsplit

from starlette.datastructures import Headers, MutableHeaders
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from dragonrt.errors import DragonError
from dragonrt.link.stream import is_loopback
from dragonrt.service.http.api_request import ApiError
from retrieval.files import read_text

SHORTEST_KEY = 16
OPEN = ("/", "/health", "/ready")
PAGE = "/page/"
"""Paths without private data: OPEN, and the page's own files."""

SECURITY = {
    "Content-Security-Policy": "default-src 'none'; script-src 'self'; style-src 'self'; "
    "img-src 'self'; connect-src 'self'; base-uri 'none'; form-action 'none'; "
    "frame-ancestors 'none'",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Referrer-Policy": "no-referrer",
    "X-Content-Type-Options": "nosniff",
}

LONGEST_WAIT_S = 60.0
"""A request that waits longer is rejected."""
ENDING_S = 30
"""Seconds for answers under way when the service ends."""
FIRST_GUESS_S = 1.0
"""The expected duration of an answer before there was one."""
SMOOTHING = 0.2


class ApiKeys:
    """The accepted API keys of the service; a request for private data must have one of them."""

    def __init__(self, keys: tuple[str, ...]) -> None:
        self._keys = tuple(key.encode() for key in keys)

    @classmethod
    def read(cls, path: Path) -> "ApiKeys":
        """Read a file of keys, one per line; # begins a comment. Raises DragonError if unusable."""
        try:
            lines = [line.strip() for line in read_text(path).splitlines()]
        except (OSError, ValueError) as error:
            raise DragonError(f"cannot read the keys in {path}: {error}") from None
        keys = tuple(line for line in lines if line and not line.startswith("#"))
        if not keys or min(map(len, keys)) < SHORTEST_KEY:
            raise DragonError(
                f"{path} must have keys of at least {SHORTEST_KEY} characters, one a line: make "
                f"one with `dragonrt keys new {path}`"
            )
        return cls(keys)

    def allow(self, authorization: str | None) -> bool:
        """Return whether the header `Authorization: Bearer KEY` has a valid key (constant time)."""
        scheme, _, key = (authorization or "").partition(" ")
        given = key.strip().encode()
        known = [hmac.compare_digest(given, each) for each in self._keys]
        return scheme.lower() == "bearer" and any(known)


@dataclass(frozen=True, slots=True)
class Guard:
    """ASGI middleware for all routes: it rejects foreign pages, foreign hosts and missing keys.

    An Origin that is not among `origins` is rejected, so that pages of other sites cannot send
    requests. Without `keys` the Host header must be localhost, a loopback address or among `hosts`,
    because another site's name could be made to resolve to this machine.
    """

    app: ASGIApp
    keys: ApiKeys | None
    origins: Sequence[str]
    hosts: Sequence[str]

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass a request on, or reject it; either response gets the headers of SECURITY."""

        async def secured(message: Message) -> None:
            if message["type"] == "http.response.start":
                headers = MutableHeaders(scope=message)
                headers.update(SECURITY)
                headers.setdefault("Cache-Control", "no-store")
            await send(message)

        error = self._objection(Headers(scope=scope), scope["path"])
        await (self.app if error is None else error.response)(scope, receive, secured)

    def _objection(self, headers: Headers, path: str) -> ApiError | None:
        if len(headers.getlist("host")) > 1:
            return ApiError(400, "a request names one Host", code="invalid_host")
        host, origin = headers.get("host", ""), headers.get("origin")
        try:
            named, own = urlsplit(f"//{host}").hostname, urlsplit(origin or f"//{host}").netloc
        except ValueError:  # an address in brackets that is none
            return ApiError(400, "Host or Origin is not an address", code="invalid_host")
        if self.keys is None and not is_loopback(named or "") and named not in self.hosts:
            return ApiError(
                403, f"{host!r} is not local; use localhost, or --allow-host", code="foreign_host"
            )
        foreign = origin is not None and own != host and origin not in self.origins
        if origin is None and headers.get("sec-fetch-site") in ("cross-site", "same-site"):
            origin, foreign = headers["sec-fetch-site"], not _is_open(path)  # an image, a link
        if foreign:
            about = f"the origin {origin!r} is foreign; open this service's page, or --allow-origin"
            return ApiError(403, about, code="foreign_origin")
        if self.keys is None or _is_open(path):
            return None
        if self.keys.allow(headers.get("authorization")):
            return None
        about = "a key is missing or wrong: send Authorization: Bearer KEY"
        return ApiError(401, about, code="invalid_api_key")


def _is_open(path: str) -> bool:
    return path in OPEN or path.startswith(PAGE)


class Admission:
    """The queue for a device: at most `at_once` answers run, and at most `waiting` requests wait.

    First come, first served, but a chat page's own tasks, such as a title, wait for all others.
    They are rejected if half of `waiting` requests wait already.
    """

    def __init__(self, at_once: int, waiting: int) -> None:
        self.running = 0
        self.closing = False
        self._at_once = at_once
        self._most_waiting = waiting
        self._queue: set[tuple[bool, int]] = set()
        self._numbers = itertools.count()
        self._moved = asyncio.Event()  # set, and replaced by another, when the queue moves
        self._answer_s = FIRST_GUESS_S
        self._drained = asyncio.Event()

    @property
    def waiting(self) -> int:
        return len(self._queue)

    def close(self, *, at_once: bool = False) -> None:
        """Reject new requests from now on; with `at_once`, let `drained` return without waiting."""
        self.closing = True
        if at_once or not (self.running or self.waiting):
            self._drained.set()

    async def drained(self) -> bool:
        """After `close`, wait up to 30 s for accepted requests; return whether all have ended."""
        with suppress(TimeoutError):
            async with asyncio.timeout(ENDING_S):
                await self._drained.wait()
        return not (self.running or self.waiting)

    @asynccontextmanager
    async def place(self) -> AsyncIterator[None]:
        """Wait for a place to run, and hold it in this context. Raises ApiError (429 or 503)."""
        leave = await self.enter()
        try:
            yield
        finally:
            leave()

    async def enter(self, *, behind: bool = False) -> Callable[[], None]:
        """Wait for a place among the running answers, and return a function that frees it.

        With `behind`, for a chat page's own task such as a title, it waits for all ordinary ones.
        Raises ApiError: 429 if too many wait, 503 after `close` or a wait of 60 s.
        """
        if self.closing:
            raise ApiError(503, "the service is ending", code="stopping", retry_after_s=10)
        most = self._most_waiting // (2 if behind else 1)
        if self.running >= self._at_once and self.waiting >= most:
            about = f"{self.running} answers are under way and {self.waiting} wait"
            raise self._full(429, "queue_full", about)
        self._queue.add(own := (behind, next(self._numbers)))
        try:
            async with asyncio.timeout(LONGEST_WAIT_S):
                while self.running >= self._at_once or own != min(self._queue):
                    await self._moved.wait()
            self.running += 1
        except TimeoutError:
            about = f"no answer could begin within {LONGEST_WAIT_S:g} s"
            raise self._full(503, "overloaded", about) from None
        finally:
            self._queue.remove(own)
            self._move()
        return partial(self._leave, asyncio.get_running_loop().time())

    def _leave(self, began_s: float) -> None:
        took_s = asyncio.get_running_loop().time() - began_s
        self._answer_s += SMOOTHING * (took_s - self._answer_s)
        self.running -= 1
        self._move()

    def _move(self) -> None:
        self._moved.set()
        self._moved = asyncio.Event()
        if self.closing:
            self.close()

    def _full(self, status: int, code: str, about: str) -> ApiError:
        free_s = min(LONGEST_WAIT_S, self._answer_s * (self.waiting + 1) / self._at_once)
        return ApiError(status, f"{about}: try again later", code=code, retry_after_s=free_s)
