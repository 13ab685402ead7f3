"""The check before every request: keys, origins, and the rules for browsers."""

from urllib.parse import urlsplit

from starlette.datastructures import Headers, MutableHeaders
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from dragonrt.link.stream import is_loopback
from dragonrt.service.http.api_errors import ApiError
from dragonrt.service.http.http_settings import ApiKeys

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


class Guard:
    """ASGI middleware in front of everything.

    Pages of other sites cannot send requests: a foreign Origin is rejected. Without keys the Host
    must be this machine's own, because another name could be made to resolve to this machine.
    """

    def __init__(self, app: ASGIApp, keys: ApiKeys | None) -> None:
        self._app = app
        self._keys = keys

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass a request on, or reject it; either response gets the headers of SECURITY."""

        async def secured(message: Message) -> None:
            if message["type"] == "http.response.start":
                headers = MutableHeaders(scope=message)
                headers.update(SECURITY)
                headers.setdefault("Cache-Control", "no-store")
            await send(message)

        error = self._objection(scope)
        app = self._app if error is None else error.response
        await app(scope, receive, secured)

    def _objection(self, scope: Scope) -> ApiError | None:
        headers, path = Headers(scope=scope), scope["path"]
        if len(headers.getlist("host")) > 1:
            return ApiError(400, "a request names one Host", code="invalid_host")
        host, origin = headers.get("host", ""), headers.get("origin")
        try:
            named, own = urlsplit(f"//{host}").hostname, urlsplit(origin or f"//{host}").netloc
        except ValueError:  # an address in brackets that is none
            return ApiError(400, "Host or Origin is not an address", code="invalid_host")
        if self._keys is None and not is_loopback(named or ""):
            return ApiError(403, f"{host!r} is not local; use localhost", code="foreign_host")
        if origin is not None and own != host:
            return ApiError(403, "foreign origin; open this service's page", code="foreign_origin")
        if self._keys is None or path in OPEN or path.startswith(PAGE):
            return None
        if self._keys.allow(headers.get("authorization")):
            return None
        about = "a key is missing or wrong: send Authorization: Bearer KEY"
        return ApiError(401, about, code="invalid_api_key")
