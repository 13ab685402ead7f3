"""What the control groups of Linux say about this process."""

from collections.abc import Iterator
from pathlib import Path

_ROOT = Path("/")


def cgroup_values(controller: str, name: str, root: Path = _ROOT) -> Iterator[str]:
    """Yield the text of the file `name` in this process' group and in each group above it.

    `controller` names the hierarchy of version 1. Version 2 has one for all. Below `root` are
    `proc` and `sys`. A container may see its own group as the top, under its path outside.
    """
    try:
        lines = (root / "proc/self/cgroup").read_text(encoding="utf-8").splitlines()
    except OSError:
        return
    for line in lines:
        number, controllers, path = line.split(":", 2)
        top = root / "sys/fs/cgroup"
        if controller in controllers.split(","):
            top /= controller
        elif number != "0" or controllers:
            continue
        group = Path(path.lstrip("/"))
        if ".." in group.parts:  # a group beside the visible ones
            group = Path()
        for found in (group, *group.parents):
            try:
                yield (top / found / name).read_text(encoding="ascii").strip()
            except OSError:  # the top of version 2 has no limits
                continue
