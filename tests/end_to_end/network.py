"""Hosts with a network of their own: Linux's network namespaces, each joined to this one."""

import os
import shutil
import socket
import subprocess
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Place:
    """Where a host runs: its address, and the command that runs a program there."""

    address: str
    port: int
    within: tuple[str, ...] = ()

    def cut(self) -> None:
        """Cut its network, so that nobody hears of its end; loopback has none to cut."""
        self._turn("down")

    def mend(self) -> None:
        """Join it again."""
        self._turn("up")

    def _turn(self, state: str) -> None:
        # At its own end: without the route here, packets would take another way out.
        if self.within:
            _ip("-n", self.within[-1], "link", "set", "host", state)


@contextmanager
def places(count: int) -> Iterator[list[Place]]:
    """Yield so many places, in namespaces where the system permits them, else on loopback."""
    with ExitStack() as stack:
        found = []
        for number in range(count):
            space, wire = f"dragonrt-{os.getpid()}-{number}", f"d{os.getpid()}.{number}"
            here, there = (f"10.213.78.{4 * number + end}" for end in (1, 2))
            try:
                _ip("netns", "add", space)
                stack.callback(_ip, "netns", "delete", space)
                _ip("link", "add", wire, "type", "veth", "peer", "name", "host", "netns", space)
                _ip("address", "add", f"{here}/30", "dev", wire)
                _ip("link", "set", wire, "up")
                _ip("-n", space, "address", "add", f"{there}/30", "dev", "host")
                _ip("-n", space, "link", "set", "host", "up")
            except OSError:
                found.append(Place("127.0.0.1", _free_port()))
            else:
                found.append(Place(there, 7070, (_program(), "netns", "exec", space)))
        yield found


def _free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as free:
        return int(free.getsockname()[1])


def _program() -> str:
    return shutil.which("ip", path=f"{os.environ['PATH']}:/usr/sbin:/sbin") or "ip"


def _ip(*arguments: str) -> None:
    """Run `ip`. Raises OSError where it is missing or not permitted."""
    done = subprocess.run([_program(), *arguments], capture_output=True, check=False)
    if done.returncode:
        raise OSError(done.stderr.decode(errors="replace").strip())
