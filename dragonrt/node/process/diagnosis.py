"""The checks of `dragonrt doctor`, the cheap ones first."""

import os
import platform
import shutil
import stat
from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass
from datetime import date
from importlib.metadata import version
from pathlib import Path
from typing import Literal
from urllib.request import getproxies, proxy_bypass

from dragonrt import __version__
from dragonrt.backends.backend import ModelInfo
from dragonrt.backends.model import LanguageModel
from dragonrt.backends.resources import usable_cores, usual_threads
from dragonrt.errors import DragonError
from dragonrt.node.connections.addresses import Address, LinkSettings, NetworkSettings
from dragonrt.node.connections.link_probe import probe
from dragonrt.node.process.composition import index_directory, kv_limit, load_model
from dragonrt.node.process.host_profile import load_profile
from dragonrt.node.process.side_settings import SideSettings
from retrieval import Index, RetrievalError
from retrieval.files import network_drive

Level = Literal["ok", "warn", "fail"]

LEAST_FREE_BYTES = 2 * 10**9
MOST_CLOCK_S = 2.0  # how far two clocks may differ beyond the round trip of their comparison
LONGEST_ROUND_TRIP_S = 1.0
MEND = "mend that, then look again"


@dataclass(frozen=True, slots=True)
class Finding:
    """A check's result: `level` (ok, warn, fail), what it checked, what was seen, and a remedy."""

    level: Level
    what: str
    seen: str
    remedy: str = ""


async def diagnose(
    side: SideSettings, network: NetworkSettings, today: date, *, dials: bool
) -> AsyncIterator[Finding]:
    """Yield the result of each check that `dragonrt doctor` makes of this side.

    Keys that expire soon after `today` give a warning. `dials` adds checks of cloud and link.
    """
    here = f"Python {platform.python_version()}, {platform.system()} {platform.machine()}"
    seen = f"dragonrt {__version__}, numpy {version('numpy')}, {here}"
    yield Finding("ok", "versions", seen)
    for finding in (*_proxy(), *_keys(network, today)):
        yield finding
    try:
        model = load_model(side)
    except DragonError as error:
        yield Finding("fail", "model", str(error), "choose another --model")
        return
    for finding in (*_model(side, model), *_index(side)):
        yield finding
    if not dials:
        yield Finding("ok", "link", "not looked at: name the cloud with --host")
        return
    try:
        found = await _link(network.device_address(LinkSettings()), model)
    except DragonError as error:
        found = [Finding("fail", "link", str(error), MEND)]
    for finding in found:
        yield finding


def _proxy() -> Iterator[Finding]:
    found = getproxies()
    if found.keys() & {"http", "all"} and not proxy_bypass("127.0.0.1"):
        seen = "programs here that read HTTP_PROXY ask it for `dragonrt serve`, too"
        yield Finding("warn", "proxy", seen, "export NO_PROXY=localhost,127.0.0.1")


def _keys(network: NetworkSettings, today: date) -> Iterator[Finding]:
    try:
        soon = network.expiring(today)
    except DragonError as error:
        yield Finding("fail", "keys", str(error), "make keys with `dragonrt keys new`")
        return
    for line in soon:
        yield Finding("warn", "keys", line, "renew it on both sides")
    for path in filter(None, (network.key_file, network.tls_key)):
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
    yield _engine(model.backend.info)
    threads = usual_threads() if side.threads is None else side.threads
    cores = usable_cores()
    where, wrong, remedy = f"{model.device} in {model.dtype}, {threads} of {cores} cores", False, ""
    if model.device == "cpu" and Path("/proc/driver/nvidia/version").exists():
        where, wrong = f"{where}; there is a GPU, which is not used", True
        remedy = "install a build for CUDA of the engine above, or ignore this"
    elif threads > cores:
        wrong, remedy = True, "give --threads no more than there are cores"
    yield Finding(_warns(wrong), "device", where, remedy)
    if load_profile(model.name) is None:
        yield Finding("ok", "profile", "none; `dragonrt profile` measures one")


def _engine(info: ModelInfo) -> Finding:
    exact = "equal bits are not promised"
    if info.exact_blocks:
        most = "any number of" if info.exact_tokens is None else f"up to {info.exact_tokens}"
        exact = f"equal bits in forwards of {most} tokens, at any number of threads"
        if info.single_from is not None:
            exact += f" (a lone token from position {info.single_from} on has a forward of its own)"
    if not info.exact_batches:
        exact += ", nor beside other answers" * (not info.exact_blocks)
    faster = ""
    if "xllamacpp" in info.engine:
        faster = "; `pip install llama-cpp-python` compiles one for this processor"
        if (known := Path("/proc/cpuinfo")).exists() and "avx512f" in known.read_text("utf-8"):
            faster += ", which has AVX-512: prompts then take 0.7 of the time"
    return Finding("ok", "engine", f"{info.engine}; {exact}{faster}")


def _index(side: SideSettings) -> Iterator[Finding]:
    directory = index_directory(side)
    if directory is None:
        yield Finding("ok", "index", "no documents: this side answers without")
        return
    for path in side.documents:
        if not path.exists():
            what = f"there is no file or directory {path}"
            yield Finding("fail", "documents", what, "name what there is")
    try:
        chunks = len(Index.open(directory, side.store))
    except RetrievalError as error:
        yield Finding("warn", "index", str(error), "the next start makes it, too")
    else:
        where = "PostgreSQL" if side.store else directory  # its URL may hold a password
        drive = "" if side.store else network_drive(directory)
        seen = f"{chunks} chunks in {where}" + f", on {drive}" * bool(drive)
        remedy = "SQLite needs a local disk: --index DIR, or --store postgresql://…"
        yield Finding(_warns(bool(drive)), "index", seen, remedy)
    place = next(each for each in (directory, *directory.parents) if each.exists())
    free = shutil.disk_usage(place).free
    level = _warns(free < LEAST_FREE_BYTES)
    most = kv_limit(side, directory) / 1e9
    seen = f"{free / 1e9:.1f} GB free at {place}; stored KV takes at most {most:.1f} GB"
    yield Finding(level, "disk", seen, "make room, or lower --kv-cache")


async def _link(address: Address, model: LanguageModel) -> list[Finding]:
    link = await probe(address, model)
    peer = link.peer
    ways = {"encrypted with the shared key": address.key, "TLS": address.tls}
    protection = " and ".join(each for each, used in ways.items() if used) or "not encrypted"
    same = "as" if peer.weights == model.fingerprint else "not those"
    seen = (
        f"{peer.software} with {peer.model}, tokenizer {_short(peer.tokenizer)} as here, weights "
        f"{_short(peer.weights)} ({same} here); {protection}"
    )
    trips = (
        f"{1e3 * link.median_s:.2f} ms ({1e3 * min(link.trips_s):.2f} to "
        f"{1e3 * max(link.trips_s):.2f}); connecting took {1e3 * link.connect_s:.0f} ms"
    )
    slow = _warns(link.median_s > LONGEST_ROUND_TRIP_S)
    up = f"{link.up / 1e6:.3g} Mbit/s up" if link.up else "too fast to tell"
    found = [
        Finding(_warns(address.exposed), "cloud", seen, "give both sides the same --key-file"),
        Finding(slow, "round trip", trips, "answers come late over such a link"),
        Finding("ok", "bandwidth", up),
    ]
    if link.ahead_s is not None:
        way = "ahead of" if link.ahead_s > 0 else "behind"
        seen = f"the cloud's is {abs(link.ahead_s):.3f} s {way} this one"
        wrong = abs(link.ahead_s) > MOST_CLOCK_S + link.median_s
        remedy = "set both by NTP: certificates and traces go by them"
        found.append(Finding(_warns(wrong), "clock", seen, remedy))
    return found


def _warns(wrong: bool) -> Level:
    return "warn" if wrong else "ok"


def _short(fingerprint: str) -> str:
    return fingerprint[:12]
