"""The settings of the HTTP service; importing them needs no HTTP library."""

import re
import ssl
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Annotated

from msgspec import Meta

from dragonrt.errors import DragonError
from dragonrt.link.stream import is_loopback
from dragonrt.link.tls import server_context
from dragonrt.settings import Port, Text, check, setting

NETWORK = Path("/sys/class/net")  # of Linux
Names = Annotated[tuple[Text, ...], Meta(max_length=32)]
LIBRARIES = ("uvicorn", "h11", "starlette", "prometheus_client")


@dataclass(frozen=True, slots=True, kw_only=True)
class HttpSettings:
    """Address, protection and limits of the HTTP service.

    Raises DragonError if others could use or intercept it: a public address needs keys and TLS.
    """

    http_host: Text = setting("127.0.0.1", "Bind address. A public one: keys and TLS.", daily=True)
    http_port: Port = setting(8080, "TCP port to serve on. 0: a free one.", daily=True)
    api_keys: Path | None = setting(None, "File with an API key a line. Default: none.", daily=True)
    http_tls_cert: Path | None = setting(None, "Certificate, a PEM file. Default: no https.")
    http_tls_key: Path | None = setting(None, "Private key of --http-tls-cert.")
    uploads: Path | None = setting(None, "Directory for files uploaded on the page.", daily=True)
    answers_at_once: Annotated[int, Meta(ge=1, le=48)] = setting(
        16, "Most answers that run at once. Four times as many may wait, at least 16."
    )
    sources_in_text: bool = setting(
        True,
        "Append the names of sources to each text, for clients that drop annotations.",
        rare=True,
    )
    allow_origin: Names = setting(
        (), "Origin of other pages that may use the API: app://obsidian.md. May be repeated."
    )
    allow_host: Names = setting(
        (), "Further name of this machine, such as host.docker.internal. May be repeated."
    )
    http_bridge: Text = setting(
        "", "Bridge whose containers alone are served, with keys but without TLS.", rare=True
    )

    def __post_init__(self) -> None:
        check(self)
        if (self.http_tls_cert is None) != (self.http_tls_key is None):
            raise DragonError(
                "a certificate needs its private key: give --http-tls-cert and --http-tls-key"
            )
        for origin in self.allow_origin:
            if not re.fullmatch(r"[a-z][a-z0-9+.-]*://[^/*]+", origin):
                raise DragonError(f"{origin!r} is no origin: --allow-origin app://obsidian.md")
        for host in self.allow_host:
            if not re.fullmatch(r"[a-z0-9._-]+", host):
                raise DragonError(
                    f"{host!r} is no name of a host, without port and in small letters: "
                    "--allow-host host.docker.internal"
                )
        bridge = NETWORK / self.http_bridge
        if self.http_bridge and not (bridge / "bridge").is_dir():
            raise DragonError(f"there is no bridge {self.http_bridge!r} on this machine")
        for port in (each.name for each in bridge.glob("brif/*") if self.http_bridge):
            if (NETWORK / port / "device").exists() or [*NETWORK.glob(f"{port}/lower_*")]:
                raise DragonError(
                    f"the bridge {self.http_bridge} leads to a network, through {port}: keys would "
                    "pass there without TLS"
                )
        private = self.http_tls_cert is not None or self.http_bridge
        public = self.http_bridge or not is_loopback(self.http_host)
        if public and not (private and self.api_keys):
            raise DragonError(
                f"serving on {self.http_host} lets anyone read your documents: give --api-keys, "
                "--http-tls-cert and --http-tls-key, or leave --http-host out"
            )

    def context(self) -> ssl.SSLContext | None:
        if self.http_tls_cert is None or self.http_tls_key is None:
            return None
        return server_context(self.http_tls_cert, self.http_tls_key)


@dataclass(frozen=True, slots=True, kw_only=True)
class StatusSettings:
    """The address where a cloud serves health and metrics over HTTP; off if the port is None."""

    http_host: Text = setting("127.0.0.1", "Address to serve health and metrics on, without keys.")
    http_port: Port | None = setting(
        None, "TCP port of health and metrics. 0: a free one. Default: off."
    )


def check_libraries() -> None:
    """Raise DragonError unless the libraries of the HTTP service are installed."""
    for name in LIBRARIES:
        if find_spec(name) is None:
            raise DragonError(f"serving needs {name}: pip install 'dragonrt[serve]'")
