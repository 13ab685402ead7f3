"""The files of deploy/ are what the programs they are for take, as far as those are here."""

import os
import shutil
import subprocess
from pathlib import Path

import pytest

from dragonrt.cli import COMMANDS

DEPLOY = Path(__file__).parents[2] / "deploy"


def needs(program: str) -> str:
    found = shutil.which(program, path=os.environ["PATH"] + ":/usr/sbin")
    if found is None:
        pytest.skip(f"{program} is not installed")
    return found


def run(*command: str, **environment: str) -> str:
    done = subprocess.run(
        command, env=os.environ | environment, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout + done.stderr


def test_haproxy_takes_its_configuration() -> None:
    haproxy = needs("haproxy")
    config = str(DEPLOY / "haproxy.cfg")
    run(haproxy, "-c", "-f", config)
    run(haproxy, "-c", "-f", config, LISTEN="127.0.0.1:7", CLOUD_A="127.0.0.1:8")


@pytest.mark.slow
def test_systemd_takes_the_unit(tmp_path: Path) -> None:
    analyze = needs("systemd-analyze")
    text = (DEPLOY / "dragonrt@.service").read_text()
    program = "/opt/dragonrt/.venv/bin/dragonrt"
    assert f"ExecStart={program} --config" in text
    unit = tmp_path / "dragonrt@cloud.service"
    unit.write_text(text.replace(program, "/bin/true"))
    assert run(analyze, "verify", "--man=no", str(unit)) == ""


def test_the_compose_file_fits_the_others() -> None:
    yaml = pytest.importorskip("yaml")
    compose = yaml.safe_load((DEPLOY / "compose.yaml").read_text())
    services = compose["services"]
    balancer = services.pop("balancer")
    assert {balancer["environment"][name].split(":")[0] for name in ("CLOUD_A", "CLOUD_B")} == set(
        services
    )
    for cloud in services.values():
        assert (DEPLOY / cloud["build"]["context"] / cloud["build"]["dockerfile"]).exists()
        assert cloud["secrets"] == list(compose["secrets"])
    example = Path("../dragonrt/bundled/documents/cloud")
    assert str(example) in compose["x-cloud"]["volumes"][0]
    assert (DEPLOY / example).is_dir()


def test_the_container_has_all_that_is_copied_and_starts_a_command() -> None:
    lines = (DEPLOY / "Containerfile").read_text().splitlines()
    copied = {each for line in lines if line.startswith("COPY") for each in line.split()[1:-1]}
    kept = (DEPLOY / "Containerfile.dockerignore").read_text().splitlines()
    assert copied == {line[1:] for line in kept if line.startswith("!")}
    assert all((DEPLOY.parent / each).exists() for each in copied)
    (command,) = (line for line in lines if line.startswith("CMD"))
    assert command.split('"')[1] in COMMANDS
