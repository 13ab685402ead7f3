"""What `dragonrt doctor` looks at, one finding after another, the cheap ones first."""

import os
import platform
import shutil
import stat
import statistics
from collections.abc import AsyncIterator, Iterator, Sequence
from dataclasses import dataclass
from datetime import date
from importlib.metadata import version
from pathlib import Path
from typing import Literal

from dragonrt import __version__
from dragonrt.backends.model import LanguageModel
from dragonrt.backends.torch_.process import usual_threads
from dragonrt.errors import DragonError
from dragonrt.modes.settings import DragonSettings
from dragonrt.node.addresses import LinkSettings, NetworkSettings, members
from dragonrt.node.endpoints import Identity
from dragonrt.node.host_profile import load_profile
from dragonrt.node.link_measurement import LinkMeasurement, measure_link
from dragonrt.node.process import index_directory, load_model
from dragonrt.node.side_settings import SideSettings
from retrieval import Index, RetrievalError

Level = Literal["ok", "warn", "fail"]

LEAST_FREE_BYTES = 2 * 10**9
MOST_CLOCK_S = 2.0
"""How far two clocks may differ beyond the round trip that they are compared over."""
LONGEST_ROUND_TRIP_S = 1.0


@dataclass(frozen=True, slots=True)
class Finding:
    """What was looked at and what was seen; `remedy` says what to do unless all is well."""

    level: Level
    what: str
    seen: str
    remedy: str = ""


async def diagnose(
    side: SideSettings, network: NetworkSettings, hosts: Sequence[str] | None, today: date
) -> AsyncIterator[Finding]:
    """All findings about this side, and about each host of the cloud and the way there.

    `hosts` are as `members` takes them: with none of them it is the network's; None dials nowhere.
    """
    yield _programs()
    for finding in _keys(network, today):
        yield finding
    try:
        model = load_model(side)
    except DragonError as error:
        yield Finding("fail", "model", str(error), "choose another --model")
        return
    for finding in (*_model(side, model), *_index(side)):
        yield finding
    if hosts is None:
        yield Finding("ok", "link", "not looked at: name the cloud with --host")
        return
    identity = Identity(
        "device", model.tokenizer_fingerprint, model.vocabulary, model.name, model.fingerprint
    )
    try:
        (cloud,) = members(DragonSettings(), network, LinkSettings(), (), hosts)
    except DragonError as error:
        yield Finding("fail", "link", str(error), "mend that, then look again")
        return
    for host in cloud.hosts or (cloud,):
        try:
            measured = await measure_link(host.address, identity)
        except DragonError as error:
            yield Finding("fail", "link", str(error), "mend that, then look again")
        else:
            for finding in _link(host.name, measured, model):
                yield finding


def _programs() -> Finding:
    names = ("torch", "transformers", "numpy", "tokenizers")
    found = ", ".join(f"{name} {version(name)}" for name in names)
    here = f"Python {platform.python_version()}, {platform.system()} {platform.machine()}"
    return Finding("ok", "versions", f"dragonrt {__version__}, {found}, {here}")


def _keys(network: NetworkSettings, today: date) -> Iterator[Finding]:
    try:
        soon = network.expiring(today)
    except DragonError as error:
        yield Finding("fail", "keys", str(error), "make keys with `dragonrt keys new`")
        return
    for line in soon:
        yield Finding("warn", "keys", line, "renew it on both sides")
    secrets = [path for path in (network.key_file, network.tls_key) if path is not None]
    for path in secrets:
        if os.name == "posix" and path.exists() and stat.S_IMODE(path.stat().st_mode) & 0o077:
            yield Finding("warn", "keys", f"others can read {path}", f"chmod 600 {path}")
        else:
            yield Finding("ok", "keys", f"{path} is its owner's alone")


def _model(side: SideSettings, model: LanguageModel) -> Iterator[Finding]:
    seen = (
        f"{model.name}, {model.parameters / 1e6:,.1f} million parameters, context of "
        f"{model.context_length} tokens, tokenizer {_short(model.tokenizer_fingerprint)}, "
        f"weights {_short(model.fingerprint)}"
    )
    yield Finding("ok", "model", seen)
    threads = usual_threads() if side.threads is None else side.threads
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    where = f"{model.device} in {model.dtype}, {threads} of {cores} cores"
    if model.device == "cpu" and Path("/proc/driver/nvidia/version").exists():
        remedy = "install a build of torch for CUDA, or say --on cpu"
        yield Finding("warn", "device", f"{where}; there is a GPU, which torch cannot use", remedy)
    elif cores is not None and threads > cores:
        yield Finding("warn", "device", where, "give --threads no more than there are cores")
    else:
        yield Finding("ok", "device", where)
    if load_profile(model.name) is None:
        yield Finding("ok", "profile", "none; `dragonrt profile` measures one")


def _index(side: SideSettings) -> Iterator[Finding]:
    if not side.has_documents:
        yield Finding("ok", "index", "no documents: this side answers without")
        return
    for path in side.documents:
        if not path.exists():
            yield Finding("fail", "documents", f"there is no {path}", "name what there is")
    directory = index_directory(side)
    assert directory is not None  # it has documents
    try:
        chunks = len(Index.open(directory, side.store))
    except RetrievalError as error:
        yield Finding("warn", "index", str(error), "or the next start does")
    else:
        where = "PostgreSQL" if side.store else directory  # its URL may hold a password
        yield Finding("ok", "index", f"{chunks} chunks in {where}")
    place = next(each for each in (directory, *directory.parents) if each.exists())
    free = shutil.disk_usage(place).free
    level: Level = "ok" if free >= LEAST_FREE_BYTES else "warn"
    yield Finding(level, "disk", f"{free / 1e9:.1f} GB free at {place}", "make room, or --kv-cache")


def _link(name: str, link: LinkMeasurement, model: LanguageModel) -> Iterator[Finding]:
    peer, median_s = link.peer, statistics.median(link.round_trips_s)
    yield Finding(
        "ok",
        name,
        f"{peer.software} with {peer.model}, tokenizer {_short(peer.tokenizer)} as here, weights "
        f"{_short(peer.weights)} ({'as' if peer.weights == model.fingerprint else 'not those'} "
        f"here); {link.protection}",
    )
    least, most = min(link.round_trips_s), max(link.round_trips_s)
    slow = median_s > LONGEST_ROUND_TRIP_S
    yield Finding(
        "warn" if slow else "ok",
        "round trip",
        f"{1e3 * median_s:.2f} ms ({1e3 * least:.2f} to {1e3 * most:.2f}); connecting took "
        f"{1e3 * link.connect_s:.0f} ms",
        "answers come late over such a link" if slow else "",
    )
    up = "too fast to tell" if link.up_bits is None else f"{link.up_bits / 1e6:.3g} Mbit/s up"
    yield Finding("ok", "bandwidth", up)
    if link.clock_s is not None:
        off = abs(link.clock_s) > MOST_CLOCK_S + median_s
        ahead = "ahead of" if link.clock_s > 0 else "behind"
        yield Finding(
            "warn" if off else "ok",
            "clock",
            f"the cloud's is {abs(link.clock_s):.3f} s {ahead} this one",
            "set both by NTP: certificates and traces go by them" if off else "",
        )


def _short(fingerprint: str) -> str:
    return fingerprint[:12]
