"""Certificates for TLS, made by the commands that the documents show."""

import re
import subprocess
from pathlib import Path

PAGE = Path(__file__).parents[1] / "docs" / "operation.md"


def make_certificates(directory: Path) -> None:
    """Write an authority, and the certificates and keys of `cloud` and `device`, for 127.0.0.1."""
    text = PAGE.read_text(encoding="utf-8")
    (commands,) = re.findall(r"^```sh certificates\n(.*?)^```$", text, re.M | re.S)
    commands = commands.replace("IP:192.0.2.7", "IP:127.0.0.1")
    subprocess.run(["sh", "-ec", commands], cwd=directory, capture_output=True, check=True)
