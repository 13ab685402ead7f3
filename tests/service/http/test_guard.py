"""Who may ask: keys, this machine alone, no page of another site."""

from pathlib import Path

import httpx2
import pytest

from dragonrt.errors import DragonError
from dragonrt.link.tls import client_context
from dragonrt.service.http import http_settings
from dragonrt.service.http.guard import ApiKeys
from dragonrt.service.http.http_settings import HttpSettings
from dragonrt.settings import assemble
from tests.certificates import make_certificates

from .served import chat_body, served

KEY = "k" * 32


async def test_with_keys_nobody_asks_without_one() -> None:
    async with served({"a?": "yes\n"}, keys=ApiKeys(("other" * 8, KEY))) as service:
        for headers in ({}, {"Authorization": "Bearer wrong"}, {"Authorization": f"Basic {KEY}"}):
            some = "/v1/models", "/metrics", "/version", "/nothing", "/healthy", "/ready/x"
            for path in (*some, "/v1/documents/page/x"):
                refused = await service.http.get(path, headers=headers)
                assert refused.status_code == 401
                assert refused.json()["error"]["code"] == "invalid_api_key"
                assert refused.headers["www-authenticate"] == "Bearer"
        assert (await service.http.get("/health")).status_code == 200
        async with service.openai(KEY) as client:
            reply = await client.chat.completions.create(
                model="bytes", messages=[{"role": "user", "content": "a?"}]
            )
            assert (reply.choices[0].message.content or "").startswith("yes")


async def test_pages_of_other_sites_are_refused() -> None:
    async with served({}) as service:
        for headers, status in (
            ({"Origin": service.url}, 200),
            ({"Origin": "https://evil.example"}, 403),
            ({"Origin": "null"}, 403),
            ({"Origin": "http://127.0.0.1:1"}, 403),
            ({"Host": "evil.example"}, 403),
            ({"Host": "localhost:1234"}, 200),
            ({"Host": "[::1]:80"}, 200),
            ({"Host": "127.0.0.1.evil.example"}, 403),
            ({"Host": "["}, 400),
            ({"Origin": "http://["}, 400),
            ({"Sec-Fetch-Site": "same-origin"}, 200),
            ({"Sec-Fetch-Site": "none"}, 200),
            ({"Sec-Fetch-Site": "cross-site"}, 403),
            ({"Sec-Fetch-Site": "same-site"}, 403),
        ):
            assert (await service.http.get("/v1/models", headers=headers)).status_code == status
        assert (await service.http.get("/", headers={"Sec-Fetch-Site": "cross-site"})).is_success
        form = {"Content-Type": "text/plain"}
        posted = await service.http.post("/v1/chat/completions", content="{}", headers=form)
        assert posted.status_code == 415


async def test_pages_of_allowed_origins_may_ask() -> None:
    page, keys = "app://obsidian.md", ApiKeys((KEY,))
    async with served({"a?": "yes\n"}, keys=keys, origins=(page,)) as service:
        path, other = "/v1/chat/completions", "https://evil.example"
        asked = {
            "Access-Control-Request-Method": "POST",
            "Access-Control-Request-Headers": "authorization,content-type,x-stainless-os",
            "Access-Control-Request-Private-Network": "true",
        }
        preflight = await service.http.options(path, headers={**asked, "Origin": page})
        assert preflight.is_success
        permitted = preflight.headers["access-control-allow-headers"]
        assert permitted == asked["Access-Control-Request-Headers"]
        assert "POST" in preflight.headers["access-control-allow-methods"]
        own = {"Origin": page, "Authorization": f"Bearer {KEY}"}
        answer = await service.http.post(path, json=chat_body("a?", store=True), headers=own)
        for response in (preflight, answer):
            assert response.headers["access-control-allow-origin"] == page
        assert "Warning" in answer.headers["access-control-expose-headers"]
        assert (await service.http.get("/v1/models", headers={"Origin": page})).status_code == 401
        refused = await service.http.options(path, headers={**asked, "Origin": other})
        assert refused.status_code == 400
        assert "access-control-allow-origin" not in refused.headers


async def test_names_that_are_allowed_are_this_machine() -> None:
    async with served({}, hosts=("host.docker.internal",)) as service:
        for host, status in (("host.docker.internal:8080", 200), ("evil.example", 403)):
            named = await service.http.get("/v1/models", headers={"Host": host})
            assert named.status_code == status


async def test_every_response_tells_browsers_to_be_strict() -> None:
    async with served({}) as service:
        for path in ("/health", "/nothing"):
            headers = (await service.http.get(path)).headers
            assert "default-src 'none'" in headers["content-security-policy"]
            assert "unsafe" not in headers["content-security-policy"]
            assert headers["x-content-type-options"] == "nosniff"
            assert headers["cache-control"] == "no-store"


async def test_over_tls_the_certificate_is_the_services_own(tmp_path: Path) -> None:
    make_certificates(tmp_path)
    settings = HttpSettings(
        http_tls_cert=tmp_path / "cloud.pem", http_tls_key=tmp_path / "cloud.key"
    )
    trusted = client_context(tmp_path / "authority.pem")
    async with served({"a?": "yes\n"}, tls=settings.context(), trusted=trusted) as service:
        assert service.url.startswith("https://")
        assert (await service.chat("a?", stream=True)).status_code == 200
        with pytest.raises(httpx2.TransportError):
            async with httpx2.AsyncClient(base_url=service.url) as stranger:
                await stranger.get("/health")


def test_beyond_loopback_keys_and_tls_are_needed(tmp_path: Path) -> None:
    for more in ({}, {"api_keys": tmp_path}, {"http_tls_cert": tmp_path, "http_tls_key": tmp_path}):
        with pytest.raises(DragonError):
            assemble(HttpSettings, {"http_host": "0.0.0.0", **more})
    HttpSettings(http_host="::", api_keys=tmp_path, http_tls_cert=tmp_path, http_tls_key=tmp_path)
    for wrong in (
        {"http_tls_cert": tmp_path},
        {"allow_origin": ("*",)},
        {"http_host": "0.0.0.0", "api_keys": tmp_path, "http_bridge": "lo"},
        {"http_bridge": "docker0"},
        {"allow_host": ("host.docker.internal:8080",)},
        {"allow_host": ("Laptop",)},
    ):
        with pytest.raises(DragonError):
            assemble(HttpSettings, wrong)


def test_a_bridge_has_ports_of_containers_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(http_settings, "NETWORK", tmp_path)
    for bridge, port in (("containers", "veth1"), ("card", "eth1"), ("vlan", "eth0.7")):
        for part in ("bridge", f"brif/{port}"):
            (tmp_path / bridge / part).mkdir(parents=True)
    for part in ("veth1/brport", "eth1/device", "eth0.7/lower_eth0"):
        (tmp_path / part).mkdir(parents=True)
    HttpSettings(http_host="0.0.0.0", http_bridge="containers", api_keys=tmp_path)
    for wrong in (
        {"http_bridge": "containers"},
        {"http_bridge": "card", "api_keys": tmp_path},
        {"http_bridge": "vlan", "api_keys": tmp_path},
    ):
        with pytest.raises(DragonError):
            assemble(HttpSettings, {"http_host": "0.0.0.0", **wrong})


def test_keys_are_lines_of_a_file(tmp_path: Path) -> None:
    path = tmp_path / "keys"
    path.write_text(f"# mine\n{KEY}\n\n  {'z' * 16}  \n")
    keys = ApiKeys.read(path)
    assert keys.allow(f"bearer {KEY}")
    assert keys.allow("Bearer " + "z" * 16)
    assert not keys.allow("Bearer # mine")
    assert not keys.allow("Bearer ")
    assert not keys.allow("Bearer é")
    assert not keys.allow(None)
    for text in ("", f"{KEY}\nshort\n", "# nothing\n"):
        path.write_text(text)
        with pytest.raises(DragonError):
            ApiKeys.read(path)
    with pytest.raises(DragonError):
        ApiKeys.read(tmp_path / "none")
