"""`dragonrt doctor` beside a cloud that runs, and where nothing is as it should be."""

import json
from datetime import UTC, date, datetime
from pathlib import Path

import pytest

from dragonrt.backends.model import LanguageModel
from dragonrt.link.shared_key import new_key
from dragonrt.node.connections.addresses import Address, NetworkSettings
from dragonrt.node.process.diagnosis import Finding, diagnose
from dragonrt.node.process.side_settings import SideSettings
from dragonrt.service.cloud_process import CloudProcess
from dragonrt.service.comparison import ORACLES, link_report

HERE = SideSettings("device", "dragon-small", on="cpu")
CPU = Path("/proc/cpuinfo")
HAS_AVX512 = CPU.exists() and "avx512f" in CPU.read_text("utf-8")


async def findings(side: SideSettings, network: NetworkSettings) -> dict[str, list[Finding]]:
    """By what was looked at."""
    found: dict[str, list[Finding]] = {}
    async for finding in diagnose(side, network, datetime.now(UTC).date(), dials=True):
        found.setdefault(finding.what, []).append(finding)
    return found


@pytest.mark.slow
async def test_beside_a_healthy_cloud_all_is_well(cloud: CloudProcess, cloud_index: Path) -> None:
    port = cloud.wait_ready()
    side = SideSettings("device", "dragon-small", on="cpu", index=cloud_index)
    found = await findings(side, NetworkSettings(host=f"localhost:{port}"))
    assert {each.level for those in found.values() for each in those} == {"ok"}
    assert set(found) >= {"versions", "model", "device", "index", "cloud", "round trip", "clock"}
    assert "chunks in" in found["index"][0].seen
    engine = found["engine"][0].seen
    assert ("AVX-512" in engine) == (HAS_AVX512 and "xllamacpp" in engine)
    assert "(as here); not encrypted" in found["cloud"][0].seen
    assert "ms" in found["round trip"][0].seen


async def test_a_proxy_is_named_unless_it_leaves_loopback_out(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    side = SideSettings("device", str(tmp_path / "no.gguf"))
    monkeypatch.setenv("http_proxy", "http://proxy.example:3128")
    for left_out, levels in (("example.org", ["warn"]), ("example.org,127.0.0.1", [])):
        monkeypatch.setenv("no_proxy", left_out)
        found = await findings(side, NetworkSettings())
        assert [each.level for each in found.get("proxy", [])] == levels


@pytest.mark.slow
async def test_a_report_of_the_pair_has_link_forwards_and_methods(
    cloud: CloudProcess, model: LanguageModel
) -> None:
    address = Address("127.0.0.1", cloud.wait_ready())
    report, answers = await link_report(HERE, model, address)
    said = json.loads(json.dumps(report))
    times = said["milliseconds"]
    assert 0 < times["round_trip_least"] <= times["round_trip"] <= times["round_trip_most"]
    assert times["forward_device"] > 0
    assert times["forward_cloud"] > 0
    assert said["cloud"]["model"] == said["device"]["model"] == model.name
    assert set(said["methods"]) == {method.name for method in ORACLES}
    assert all(each["ms_per_token"] > 0 for each in said["methods"].values())
    for method, oracle in ORACLES.items():
        if oracle is not None:
            same = zip(answers[method], answers[oracle], strict=True)
            assert all(answer.tokens == truth.tokens for answer, truth in same)
    assert "127.0.0.1" not in str(report)


@pytest.mark.slow
async def test_each_defect_is_named_with_its_remedy(cloud: CloudProcess, tmp_path: Path) -> None:
    key = tmp_path / "key"
    key.write_text(new_key(date(2026, 1, 1)))
    key.chmod(0o644)
    network = NetworkSettings(port=cloud.wait_ready(), key_file=key)
    side = SideSettings("device", on="cpu", documents=(tmp_path / "none",))
    found = await findings(side, network)
    old, readable = found["keys"]
    assert old.level == readable.level == "warn"
    assert "renew this key before 2026-01-01" in old.seen
    assert readable.remedy == f"chmod 600 {key}"
    assert found["documents"][0].level == "fail"
    assert found["index"][0].level == "warn"
    assert found["link"][0].level == "fail"
    assert "shared key does not match" in found["link"][0].seen


async def test_without_a_model_nothing_more_is_looked_at() -> None:
    found = await findings(SideSettings("device", model="./none"), NetworkSettings())
    assert list(found) == ["versions", "model"]
    assert found["model"][0].level == "fail"
