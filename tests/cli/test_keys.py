"""`dragonrt keys`, and what is said of keys that end soon."""

import io
import re
import sys
from collections.abc import Callable
from datetime import UTC, date, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from dragonrt.link.authority import last_day, make_certificates
from dragonrt.link.shared_key import new_key, read_key, renewal
from dragonrt.link.tls import client_context, server_context
from dragonrt.node.connections.addresses import NetworkSettings

Run = Callable[..., Any]


def test_a_key_is_made_shown_and_entered_elsewhere(
    run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert run("keys", "new").code == 0
    shown = run("keys", "show")
    assert shown.code == 0
    line = shown.output.splitlines()[-1]
    assert re.fullmatch(r"(\w{4}-){7}\w{4}", line)
    assert "█" in shown.output
    monkeypatch.setattr(sys, "stdin", io.StringIO(line.upper() + "\n"))
    assert run("keys", "enter", "other").code == 0
    assert read_key(Path("other")) == read_key(Path("dragonrt.key")) == line.encode()


def test_a_settings_file_has_a_table_for_each_command_of_keys(run: Run) -> None:
    Path("dragonrt.toml").write_text("[keys.new]\ndays = 31\n[keys.show]\nfile = 'other'\n")
    assert run("keys", "new", "other").code == 0
    ends = renewal(read_key(Path("other")))
    assert ends is not None
    assert ends <= datetime.now(UTC).date() + timedelta(days=31)
    assert run("keys", "show").code == 0


def test_mistakes_are_one_line(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    Path("dragonrt.key").write_text("f" * 64)
    assert "exists and is left as it is" in run("keys", "new").line
    assert "copy the file instead" in run("keys", "show").line
    assert "give --tls DIR" in run("keys", "new", "k", "--host", "me").line
    assert "--days is at most" in run("keys", "new", "k", "--days", "1000000").line
    assert "neither the name" in run("keys", "new", "--tls", "t", "--host", "é").line
    monkeypatch.setattr(sys, "stdin", io.StringIO("zzzz\n"))
    assert "mistyped" in run("keys", "enter", "k").line
    assert not Path("k").exists()


def test_certificates_are_made_once_and_fit(run: Run) -> None:
    made = run("keys", "new", "--tls", "pki", "--host", "127.0.0.1", "--host", "cloud.example")
    assert made.code == 0
    assert "--tls-cert pki/cloud.pem --tls-key pki/cloud.key" in made.output
    pki = Path("pki")
    server_context(pki / "cloud.pem", pki / "cloud.key", pki / "authority.pem")
    client_context(pki / "authority.pem", pki / "device.pem", pki / "device.key")
    assert all(path.stat().st_mode & 0o077 == 0 for path in pki.iterdir())
    assert "exists and is left as it is" in run("keys", "new", "--tls", "pki").line


def test_what_ends_soon_is_warned_of(tmp_path: Path) -> None:
    today = date(2027, 1, 2)  # 30 days before the key's end
    (tmp_path / "key").write_text(new_key(date(2027, 2, 20)))
    now = datetime(2026, 12, 1, tzinfo=UTC)
    make_certificates(tmp_path / "tls", ["a"], now, 60)
    certificate = tmp_path / "tls" / "cloud.pem"
    assert last_day(certificate) == date(2027, 1, 30)
    network = NetworkSettings(
        key_file=tmp_path / "key",
        tls_cert=certificate,
        tls_key=tmp_path / "tls" / "cloud.key",
        tls_ca=tmp_path / "tls" / "authority.pem",
    )
    key, *certificates = network.expiring(today)
    assert "renew this key before 2027-02-01" in key
    assert [line.split(": ")[1] for line in certificates] == [
        "this certificate ends on 2027-01-30"
    ] * 2
    assert network.expiring(today - timedelta(days=45)) == []
