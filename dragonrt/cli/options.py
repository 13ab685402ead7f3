"""The options that more than one command has, and what they are turned into.

Nothing heavy is imported before a command runs: `dragonrt --help` answers at once.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

from dragonrt.cli.groups import option
from dragonrt.errors import DragonError
from dragonrt.side import Side

if TYPE_CHECKING:
    import ssl

    from dragonrt.link.stream import Stream
    from dragonrt.runtime.endpoints import Address
    from dragonrt.runtime.plan import Plan
    from dragonrt.runtime.process import SideSettings
    from dragonrt.sampling.samplers import Sampler


NETWORK = "Network"
EMULATION = "Emulated link"
SAMPLING = "Sampling"
TOGETHER = "Both sides together"


@dataclass(frozen=True, slots=True)
class ModelOptions:
    """Which model runs, where, and how precisely."""

    model: Annotated[
        str | None,
        option(
            "Language model: bundled name, directory or hub id; else dragon-small, and "
            "dragon-draft where it drafts for a larger one.",
            "--model",
            "-m",
            kind="NAME",
        ),
    ] = None
    device: Annotated[
        Literal["auto", "cpu", "cuda", "mps"],
        option("It runs on auto, cpu, cuda or mps.", "--device", kind="NAME"),
    ] = "auto"
    dtype: Annotated[
        Literal["auto", "float32", "bfloat16", "float16"],
        option("Its numbers: auto, float32, bfloat16 or float16.", "--dtype", kind="NAME"),
    ] = "auto"

    @property
    def name(self) -> str:
        """The model that is asked for, or the one that all run by default."""
        return self.model or "dragon-small"


@dataclass(frozen=True, slots=True)
class IndexOptions:
    """How documents are indexed, and where the index is."""

    index: Annotated[
        Path | None,
        option(
            "Where the index is; each directory of documents has its own.", "--index", kind="DIR"
        ),
    ] = None
    store: Annotated[
        str | None,
        option("PostgreSQL that has the index instead, for many machines.", "--store", kind="URL"),
    ] = None
    embedder: Annotated[
        str, option("Embedding model: default, directory or hub id.", "--embedder", kind="NAME")
    ] = "default"
    chunk_words: Annotated[int, option("Words per chunk.", "--chunk-words", kind="N", min=1)] = 64


@dataclass(frozen=True, slots=True)
class SideOptions:
    """The documents of one side, and what it records."""

    documents: Annotated[
        Path | None,
        option(
            "Documents; at each start what changed is indexed.", "--documents", "-d", kind="DIR"
        ),
    ] = None
    search: Annotated[
        Literal["hybrid", "dense", "words"],
        option(
            "How documents are chosen: by meaning (dense), by words or both.",
            "--search",
            kind="NAME",
        ),
    ] = "hybrid"
    kv_cache: Annotated[
        str, option("Most disk for documents' KV; the rest is computed.", "--kv-cache", kind="SIZE")
    ] = "20GB"
    reranker: Annotated[
        str | None,
        option("Cross-encoder that ranks again: directory or hub id.", "--reranker", kind="NAME"),
    ] = None
    trace: Annotated[
        Path | None,
        option(
            "Write every event to this file, about 1 kB a token, more where --codec sends more; "
            "`dragonrt trace` and `simulate --replay` read it.",
            "--trace",
            kind="FILE",
        ),
    ] = None


def side_settings(
    side: Side,
    model: ModelOptions,
    index: IndexOptions,
    own: SideOptions,
    *,
    share_sources: bool = True,
) -> "SideSettings":
    """What these options say of one side."""
    from dragonrt.runtime.process import SideSettings

    return SideSettings(
        side=side,
        model=model.name,
        device=model.device,
        dtype=model.dtype,
        documents=(own.documents,) if own.documents is not None else (),
        index=index.index,
        store=index.store,
        embedder=index.embedder,
        reranker=own.reranker,
        search=own.search,
        kv_cache=own.kv_cache,
        chunk_words=index.chunk_words,
        trace=own.trace,
        share_sources=share_sources,
    )


@dataclass(frozen=True, slots=True)
class EmulationOptions:
    """A slower network than the real one, in both directions, as this side sees it."""

    link: Annotated[
        str | None,
        option(
            "Profile of a link: its name or a TOML file.", "--link", kind="NAME", panel=EMULATION
        ),
    ] = None
    latency: Annotated[
        str | None,
        option(
            "One-way delay in each direction, such as 150ms.",
            "--latency",
            kind="TIME",
            panel=EMULATION,
        ),
    ] = None
    jitter: Annotated[
        str | None,
        option("How far the delay varies, such as 30ms.", "--jitter", kind="TIME", panel=EMULATION),
    ] = None
    jitter_kind: Annotated[
        Literal["uniform", "normal", "sinusoidal"] | None,
        option("uniform, normal or sinusoidal.", "--jitter-kind", kind="NAME", panel=EMULATION),
    ] = None
    bandwidth: Annotated[
        str | None,
        option(
            "Bit rate in each direction, such as 1mbit.",
            "--bandwidth",
            kind="RATE",
            panel=EMULATION,
        ),
    ] = None
    link_seed: Annotated[
        int, option("Seed of the jitter.", "--link-seed", kind="N", panel=EMULATION, min=0)
    ] = 0

    def or_latency(self, latency: str) -> "EmulationOptions":
        """These options, with that delay if they ask for no link at all."""
        asked = (self.link, self.latency, self.jitter, self.bandwidth)
        return self if any(value is not None for value in asked) else replace(self, latency=latency)

    def emulate(self, side: Side) -> "Callable[[Stream], Stream] | None":
        """What puts the emulated link around a stream, or None."""
        from dragonrt.runtime.endpoints import emulation

        return emulation(
            side,
            self.link,
            self.latency,
            self.jitter,
            self.jitter_kind,
            self.bandwidth,
            self.link_seed,
        )


@dataclass(frozen=True, slots=True)
class NetworkOptions:
    """Where the cloud is, and what protects the connection."""

    host: Annotated[str, option("Address of the cloud.", "--host", kind="NAME", panel=NETWORK)] = (
        "127.0.0.1"
    )
    port: Annotated[
        int, option("Its port.", "--port", "-p", kind="N", panel=NETWORK, min=0, max=65535)
    ] = 7070
    key_file: Annotated[
        Path | None,
        option(
            "File with the key that both sides share.", "--key-file", kind="FILE", panel=NETWORK
        ),
    ] = None
    tls_cert: Annotated[
        Path | None,
        option("Own certificate, a PEM file.", "--tls-cert", kind="FILE", panel=NETWORK),
    ] = None
    tls_key: Annotated[
        Path | None,
        option("The certificate's private key.", "--tls-key", kind="FILE", panel=NETWORK),
    ] = None
    tls_ca: Annotated[
        Path | None,
        option("Authority whose certificates to trust.", "--tls-ca", kind="FILE", panel=NETWORK),
    ] = None

    def cloud_address(self, emulation: EmulationOptions) -> "Address":
        """Where to listen."""
        from dragonrt.link.tls import server_context

        if (self.tls_cert is None) != (self.tls_key is None):
            raise DragonError("a certificate needs its private key: give --tls-cert and --tls-key")
        if self.tls_ca is not None and self.tls_cert is None:
            raise DragonError("--tls-ca needs a certificate of this side: give --tls-cert, too")
        context = None
        if self.tls_cert is not None and self.tls_key is not None:
            context = server_context(self.tls_cert, self.tls_key, self.tls_ca)
        return self._address("cloud", emulation, context)

    def device_address(self, emulation: EmulationOptions, *, tls: bool) -> "Address":
        """Where to find the cloud; any certificate or authority turns TLS on."""
        from dragonrt.link.tls import client_context

        files = (self.tls_cert, self.tls_key, self.tls_ca)
        context = None
        if tls or any(path is not None for path in files):
            context = client_context(self.tls_ca, self.tls_cert, self.tls_key)
        return self._address("device", emulation, context)

    def _address(
        self, side: Side, emulation: EmulationOptions, context: "ssl.SSLContext | None"
    ) -> "Address":
        from dragonrt.runtime.endpoints import Address, read_key

        key = read_key(self.key_file) if self.key_file is not None else None
        return Address(self.host, self.port, key, context, emulation.emulate(side))


@dataclass(frozen=True, slots=True)
class AnswerOptions:
    """How answers are made: sampling, and how the two sides come to one text."""

    temperature: Annotated[
        float,
        option(
            "0: always the most likely token.",
            "--temperature",
            "-t",
            kind="X",
            panel=SAMPLING,
            min=0,
        ),
    ] = 0.0
    top_p: Annotated[
        float,
        option("Keep the likeliest with this mass; 1: all.", "--top-p", kind="X", panel=SAMPLING),
    ] = 1.0
    top_k: Annotated[
        int,
        option(
            "Keep so many of the likeliest; 0: all.", "--top-k", kind="N", panel=SAMPLING, min=0
        ),
    ] = 0
    min_p: Annotated[
        float,
        option(
            "Keep what has this part of the top one's; 0: all.", "--min-p", kind="X", panel=SAMPLING
        ),
    ] = 0.0
    seed: Annotated[
        int | None,
        option(
            "Same seed, same text; else fresh for each answer.", "--seed", kind="N", panel=SAMPLING
        ),
    ] = None
    max_tokens: Annotated[
        int,
        option("Longest answer.", "--max-tokens", "-n", kind="N", panel=SAMPLING, min=1, max=65536),
    ] = 64
    stop: Annotated[
        list[str] | None,
        option(
            "Text that ends the answer; may be repeated.", "--stop", kind="TEXT", panel=SAMPLING
        ),
    ] = None
    aggregator: Annotated[
        str,
        option(
            "Who decides: both, greedy, device, cloud, random; sync: no drafting ahead.",
            "--aggregator",
            kind="NAME",
            panel=TOGETHER,
        ),
    ] = "both"
    rule: Annotated[
        str | None,
        option(
            "How: coupled (default), or algorithm1 (with greedy and so on); for drafted blocks "
            "also rejection, the only one of --mode sprinter, or sample-quantize (biased).",
            "--rule",
            kind="NAME",
            panel=TOGETHER,
        ),
    ] = None
    codec: Annotated[
        str | None,
        option(
            "What travels: topp:P, topk:K:residual, qs:L, ksqs:K:L, csqs:BETA:L, dense:fp16 …; "
            "else topp:0.8, ids for drafted blocks, topk:64:residual from several workers, "
            "topk:64:renorm with --mode sprinter.",
            "--codec",
            kind="NAME",
            panel=TOGETHER,
        ),
    ] = None
    run_ahead: Annotated[
        int,
        option(
            "Undecided tokens to draft ahead.",
            "--run-ahead",
            kind="N",
            panel=TOGETHER,
            min=1,
            max=4096,
        ),
    ] = 32
    documents_per_side: Annotated[
        int,
        option(
            "Documents for each question.",
            "--documents-per-side",
            kind="N",
            panel=TOGETHER,
            min=1,
            max=256,
        ),
    ] = 2
    relevance_temperature: Annotated[
        float,
        option(
            "Divides relevances; less: trust the best document.",
            "--relevance-temperature",
            kind="X",
            panel=TOGETHER,
            min=0.001,
        ),
    ] = 0.05
    reweight_every: Annotated[
        int,
        option(
            "Tokens between new relevances; 0: never.",
            "--reweight-every",
            kind="N",
            panel=TOGETHER,
            min=0,
        ),
    ] = 0
    follow: Annotated[
        bool,
        option("Draft along the better side's line.", "--follow/--no-follow", panel=TOGETHER),
    ] = True
    on_loss: Annotated[
        Literal["alone", "wait"],
        option("While the cloud is lost: alone or wait.", "--on-loss", kind="NAME", panel=TOGETHER),
    ] = "alone"

    def sampler(self) -> "Sampler":
        """How tokens are sampled; DragonError for numbers out of range."""
        from dragonrt.sampling.samplers import Sampler

        return Sampler(self.temperature, self.top_k, self.top_p, self.min_p)

    def plan(self) -> "Plan":
        """The plan of every answer in the mode dragon, checked; its seed is 0 if none is given."""
        from dragonrt.runtime.plan import Plan, placement_of

        plan = Plan(
            seed=self.seed if self.seed is not None else 0,
            sampler=self.sampler(),
            rule=self.rule or "coupled",
            placement=placement_of(self.aggregator),
            codec=self.codec or "topp:0.8",
            max_tokens=self.max_tokens,
            run_ahead=self.run_ahead,
            documents=self.documents_per_side,
            relevance_temperature=self.relevance_temperature,
            reweight_every=self.reweight_every,
            follow=self.follow,
        )
        plan.check()
        return plan

    @property
    def stops(self) -> tuple[str, ...]:
        return tuple(self.stop or ())


AsJson = Annotated[bool, option("Print one JSON object per answer.", "--json")]
