"""`dragonrt keys`, and what is said of keys that end soon."""

import io
import re
import sys
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from dragonrt.link.shared_key import new_key, read_key, renewal
from dragonrt.link.tls import last_day
from dragonrt.node.connections.addresses import NetworkSettings
from tests.certificates import make_certificates

Run = Callable[..., Any]


def test_a_key_is_made_shown_and_entered(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
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
    assert "--days is at most" in run("keys", "new", "k", "--days", "1000000").line
    assert "openssl" in run("keys", "new", "--tls", "t").line
    monkeypatch.setattr(sys, "stdin", io.StringIO("zzzz\n"))
    assert "mistyped" in run("keys", "enter", "k").line
    assert not Path("k").exists()


def test_what_ends_soon_is_warned_of(tmp_path: Path) -> None:
    make_certificates(tmp_path)
    end = last_day(tmp_path / "cloud.pem")
    (tmp_path / "key").write_text(new_key(end))
    network = NetworkSettings(
        key_file=tmp_path / "key",
        tls_cert=tmp_path / "cloud.pem",
        tls_key=tmp_path / "cloud.key",
        tls_ca=tmp_path / "authority.pem",
    )
    renew = end.replace(day=1)
    key, *certificates = network.expiring(renew)
    assert f"renew this key before {renew}" in key
    assert [line.split(": ")[1] for line in certificates] == [f"this certificate ends on {end}"] * 2
    assert network.expiring(renew - timedelta(days=30)), "the last day without a warning is over"
    assert network.expiring(renew - timedelta(days=45)) == []
