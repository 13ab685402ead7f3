"""The files of deploy/ are what the programs they are for take, as far as those are here."""

import os
import re
import shutil
import socket
import subprocess
import sys
import tomllib
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from threading import Thread
from urllib.parse import urlsplit

import pytest
from typing_extensions import override

from dragonrt.cli import COMMANDS
from dragonrt.timeouts import USUAL

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
@pytest.mark.parametrize(
    ("name", "program", "options"),
    [
        ("dragonrt@.service", "/opt/dragonrt/.venv/bin/dragonrt", ["--system"]),
        ("dragonrt-user@.service", "%h/.local/share/dragonrt/venv/bin/dragonrt", ["--user"]),
    ],
)
def test_systemd_takes_the_units(
    tmp_path: Path, name: str, program: str, options: list[str]
) -> None:
    analyze = needs("systemd-analyze")
    text = (DEPLOY / name).read_text()
    assert f"ExecStart={program} " in text
    unit = tmp_path / "dragonrt@serve.service"
    unit.write_text(text.replace(program, "/bin/true"))
    verify = [analyze, *options, "verify", "--man=no", str(unit)]
    assert run(*verify, XDG_RUNTIME_DIR=str(tmp_path)) == ""


def test_the_compose_file_has_clouds_that_share_what_is_read() -> None:
    yaml = pytest.importorskip("yaml")
    compose = yaml.safe_load((DEPLOY / "compose.yaml").read_text())
    services = compose["services"]
    index, balancer = services["index"], services["balancer"]
    for variable in ("CLOUD_A", "CLOUD_B"):
        cloud = services[balancer["environment"][variable].split(":")[0]]
        assert cloud["secrets"] == list(compose["secrets"])
        assert {index["command"][0], cloud["command"][0]} <= {*COMMANDS}
        assert cloud["depends_on"] == {"index": {"condition": "service_completed_successfully"}}
        for what in ("build", "environment", "networks", "volumes"):
            assert cloud[what] == index[what]
    assert (DEPLOY / index["build"]["context"] / index["build"]["dockerfile"]).exists()
    store, kv = (index["environment"][name] for name in ("DRAGONRT_STORE", "DRAGONRT_INDEX"))
    database = services[urlsplit(store).hostname]
    assert set(database["networks"]) <= set(index["networks"])
    documents, data = (each.split(":") for each in index["volumes"])
    assert data[0] in compose["volumes"]
    assert Path(kv).is_relative_to(data[1])
    assert index["command"][1] == "/documents"
    example = Path("../dragonrt/bundled/documents/cloud")
    assert str(example) in ":".join(documents)
    assert (DEPLOY / example).is_dir()


@pytest.mark.parametrize(
    ("schema", "files"),
    [("compose-spec", ["deploy/compose.yaml"]), ("github-workflows", [".github/workflows/*.yml"])],
)
def test_files_of_others_fit_their_schemas(schema: str, files: list[str]) -> None:
    pytest.importorskip("check_jsonschema")
    found = [str(path) for each in files for path in DEPLOY.parent.glob(each)]
    assert found
    check = [sys.executable, "-m", "check_jsonschema", "--builtin-schema", f"vendor.{schema}"]
    run(*check, *found)


def test_kubernetes_takes_every_resource() -> None:
    pytest.importorskip("kubernetes_validate")
    file = str(DEPLOY / "kubernetes.yaml")
    run(sys.executable, "-m", "kubernetes_validate", "--strict", file)


def test_kubernetes_drains_hosts_that_share_what_they_read() -> None:
    yaml = pytest.importorskip("yaml")
    found = [*yaml.safe_load_all((DEPLOY / "kubernetes.yaml").read_text())]
    indexing, hosts = (
        each["spec"]["template"]["spec"] for each in found if each["kind"] in ("Job", "Deployment")
    )
    assert hosts["terminationGracePeriodSeconds"] > USUAL.answer_s
    (index,), (cloud,) = indexing["containers"], hosts["containers"]
    assert index["env"] == cloud["env"]
    assert {index["args"][0], cloud["args"][0]} <= {*COMMANDS}
    # Else a Service of that name would be a variable that a side reads as its port.
    assert hosts["enableServiceLinks"] is indexing["enableServiceLinks"] is False
    assert cloud["readinessProbe"]["httpGet"]["path"] == "/ready"
    kv = {"name": "kv", "mountPath": index["env"][0]["value"]}
    assert kv in index["volumeMounts"]
    assert kv in cloud["volumeMounts"]


def test_the_container_copies_all_and_starts_a_command() -> None:
    lines = (DEPLOY / "Containerfile").read_text().splitlines()
    copied = {each for line in lines if line.startswith("COPY") for each in line.split()[1:-1]}
    kept = (DEPLOY / "Containerfile.dockerignore").read_text().splitlines()
    assert copied == {line[1:] for line in kept if line.startswith("!")}
    assert all((DEPLOY.parent / each).exists() for each in copied)
    (command,) = (line for line in lines if line.startswith("CMD"))
    assert command.split('"')[1] in COMMANDS


def test_the_container_serves_watches_and_is_nobody() -> None:
    text = (DEPLOY / "Containerfile").read_text()
    project = tomllib.loads((DEPLOY.parent / "pyproject.toml").read_text())["project"]
    (extras,) = re.findall(r"'\.\[(.*)\]'", text)
    assert {"serve", "documents", "postgres"} <= {*extras.split(",")}
    assert {*extras.split(",")} <= {*project["optional-dependencies"]}
    users = [line.split()[1] for line in text.splitlines() if line.startswith("USER ")]
    assert users
    assert "root" not in users
    assert "0" not in users
    assert "HEALTHCHECK" in text


class Healthy(BaseHTTPRequestHandler):
    """A service that is alive."""

    def do_GET(self) -> None:
        self.send_response(200 if self.path == "/health" else 404)
        self.end_headers()

    @override
    def log_message(self, format: str, *args: object) -> None:
        """Nothing."""


def test_the_health_check_knows_a_service_a_cloud_and_nobody() -> None:
    def healthy(http: int, port: int) -> bool:
        ports = {"DRAGONRT_HTTP_PORT": str(http), "DRAGONRT_PORT": str(port)}
        check = [sys.executable, str(DEPLOY / "healthy.py")]
        return subprocess.run(check, env=os.environ | ports, check=False).returncode == 0

    with HTTPServer(("127.0.0.1", 0), Healthy) as service, socket.socket() as nobody:
        nobody.bind(("127.0.0.1", 0))  # and does not listen
        closed, http = nobody.getsockname()[1], service.server_address[1]
        serving = Thread(target=service.serve_forever)
        serving.start()
        try:
            assert healthy(http, closed)
        finally:
            service.shutdown()
            serving.join()
        with socket.create_server(("127.0.0.1", 0)) as cloud:
            assert healthy(closed, cloud.getsockname()[1])
        assert not healthy(closed, closed)
