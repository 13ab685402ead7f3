"""How the two sides work together: one frozen dataclass of settings for each mode.

Options, settings files, the wire's Open, traces and `--json` are derived from their fields. Each
class raises DragonError if its fields do not fit together.
"""

from dataclasses import dataclass, replace
from typing import Literal

from dragonrt.control.scheduler import Aggregator
from dragonrt.control.verifier import Kind
from dragonrt.distributions import ConformalThreshold, codec
from dragonrt.errors import DragonError
from dragonrt.link.units import parse_duration
from dragonrt.modes.experts import Experts
from dragonrt.modes.mode import OnLoss
from dragonrt.modes.question import Question
from dragonrt.privacy.disclosure import FLOOR, Disclosure
from dragonrt.sampling.aggregation import Algorithm1, Coupled, rule
from dragonrt.sampling.certificate import certifies
from dragonrt.sampling.noise import Noise
from dragonrt.sampling.samplers import Sampler
from dragonrt.sampling.stopping import AdaEDL, SpecDecPlusPlus, StoppingRule
from dragonrt.sampling.verification import Rejection, SampleQuantize, speculative_rule
from dragonrt.settings import check, own, setting
from dragonrt.wire.limits import MAX_32, MAX_BLOCK, MAX_RUN_AHEAD

MAX_OUTSTANDING = 8
"""Blocks of one session that may be under way and unanswered."""
FALLBACK = "topp:0.8"
"""The codec of mode dragon where no race can be proved: after top-p or a large top-k, without
coupled noise, or where the device may not ask for entries."""

Stopping = Literal["adaedl", "specdec++"]
"""What ends blocks of mode speculative early: the rules of `sampling.stopping`."""
DraftSource = Literal["model", "lookup", "auto"]
"""Where blocks of mode speculative come from: `auto` chooses for each block."""
Weighing = Literal["fixed", "relevance"]
"""Where the weights of a round come from: the settings, or the relevance of each's documents."""

LOSS_HELP = "If the cloud is lost: alone (go on without it) or wait."
VERIFIER_HELP = "Verifier: its name or its file. Default: the bundled one of these models."


class Settings:
    """What the program asks of any mode's settings. A mode overrides what differs."""

    several = False
    """Whether the other sides are workers, each named by the user."""
    require_all = False
    """Whether every other side must take part."""
    on_loss: OnLoss = "wait"
    """What the device does if the other side is lost."""
    weights: Weighing = "fixed"
    """Where the weights of the workers come from."""
    controller: str | None = None
    """The name of a controller, or its file."""
    verifier: str | None = None
    """The file of a trained verifier; None: the bundled one, if `verifies_with` needs one."""
    cadence_ticks = 0
    """Frames of a constant rate after a question, or a multiple of it."""

    @property
    def goes_alone(self) -> bool:
        """Whether the device answers without the other side while it is away."""
        return self.on_loss == "alone"

    @property
    def verifies_with(self) -> Kind | None:
        """The kind of trained verifier that is needed."""
        return None

    @property
    def keeps_drafts(self) -> bool:
        """Whether the device sends target tokens only."""
        return False

    @property
    def redacts(self) -> bool:
        """Whether some target tokens are withheld, too."""
        return False

    @property
    def pads(self) -> bool:
        """Whether every frame has one of a few sizes."""
        return False

    @property
    def cadence_s(self) -> float:
        """Seconds between the frames of a constant rate; 0: there is none."""
        return 0.0

    def asked(self, question: Question) -> Question:
        """Return the question with what the mode's own default leaves open filled in."""
        return question

    def unranked(self, sampler: Sampler) -> str | None:
        """Return why the device does not know the target's probabilities; None if it does."""
        return "only mode dragon knows the target's distribution on the device"


@dataclass(frozen=True, slots=True, kw_only=True)
class DragonSettings(Settings):
    """Mode dragon: both sides draft (SPEC 1)."""

    rule: str = setting(
        "coupled",
        "Rule: coupled, algorithm1 (with --aggregator greedy and so on), or experts (per token the "
        "best single document, for comparison).",
    )
    aggregator: Aggregator = setting(
        Aggregator.BOTH, "Aggregator: both, greedy, device, cloud, random; sync: no drafting ahead."
    )
    codec: str = setting("topp:0.8", "Codec: race, topp:P, topk:K:residual, dense:fp16 …")
    run_ahead: int = setting(32, "Undecided tokens to draft ahead.", low=1, high=MAX_RUN_AHEAD)
    follow: bool = setting(
        True, "Adopt the other side's drafts, and look up drafts in the documents."
    )
    disclose: Disclosure = setting(
        Disclosure.DRAFTS,
        "What leaves this side: drafts (tokens and distributions), the answer's tokens alone, or "
        "those redacted: no token that only your documents make likely.",
    )
    withhold: float = own(
        8.0,
        "redacted: withhold tokens that your documents make more than X times likelier than the "
        "cloud alone.",
        low=1,
        high=1e6,
    )
    reveal: float = own(
        8.0, "redacted: bits that an answer may reveal to the cloud.", high=1e6, low=0
    )
    pad: bool | None = setting(
        None, "Pad every frame to one of four sizes. Default: on at --disclose answer and redacted."
    )
    cadence: str | None = setting(
        None, "Send one frame of one size every TICK, such as 20ms, full or empty."
    )
    cadence_ticks: int = setting(
        500, "Ticks per question; a longer answer takes a multiple.", low=1, high=MAX_32
    )
    on_loss: OnLoss = own("alone", LOSS_HELP)

    def __post_init__(self) -> None:
        check(self)
        _check_codec(self.codec, because="both sides mix distributions", complete=False)
        rule(self.rule, Noise(0), Sampler())
        if self.cadence is not None and not 0.001 <= self.cadence_s <= 10:
            raise DragonError("--cadence must be from 1ms to 10s")
        if self.keeps_drafts and self.placement not in (Aggregator.DEVICE, Aggregator.SYNC):
            raise DragonError(
                f"with --disclose {self.disclose} the device decides every token, as it alone "
                "knows both drafts: leave out --aggregator"
            )
        if self.keeps_drafts and self.rule == Experts.name:
            raise DragonError(
                "experts weigh the sides anew at every token, which a cloud could steer by: "
                "use --disclose drafts"
            )
        if self.redacts and self.rule != Coupled.name:
            raise DragonError(
                "what is redacted is decided from both distributions, not from drafts: "
                f"use --rule {Coupled.name}"
            )
        if self.rule == Algorithm1.name and self.placement is Aggregator.BOTH:
            raise DragonError(
                "the leaderless aggregator needs coupled noise: "
                "use --rule coupled, or --aggregator greedy with --rule algorithm1"
            )

    def codec_for(self, sampler: Sampler) -> str:
        """Return the codec that is used: a race if its winner can be proved, otherwise FALLBACK."""
        may_ask = self.rule == Coupled.name and not self.keeps_drafts
        proves = may_ask and certifies(sampler)
        return self.codec if proves or codec(self.codec, 2).complete else FALLBACK

    def asked(self, question: Question) -> Question:
        if question.relevance_floor is None and self.keeps_drafts:
            return replace(question, relevance_floor=FLOOR)
        return question

    def unranked(self, sampler: Sampler) -> str | None:
        if self.placement not in (Aggregator.BOTH, Aggregator.DEVICE, Aggregator.SYNC):
            return f"with --aggregator {self.aggregator} the cloud decides tokens, too"
        name = self.codec_for(sampler)
        if not codec(name, 2).complete:
            return f"the codec {name} sends the cloud's distribution in part only"
        return None

    @property
    def keeps_drafts(self) -> bool:
        """Whether the device sends target tokens only."""
        return self.disclose != Disclosure.DRAFTS

    @property
    def redacts(self) -> bool:
        """Whether some target tokens are withheld, too."""
        return self.disclose == Disclosure.REDACTED

    @property
    def pads(self) -> bool:
        """Whether every frame has one of a few sizes."""
        return self.keeps_drafts if self.pad is None else self.pad

    @property
    def cadence_s(self) -> float:
        """Seconds between the frames of a constant rate; LinkError for what is no duration."""
        return parse_duration(self.cadence or "0s")

    @property
    def placement(self) -> Aggregator:
        """Who decides: where the device keeps its drafts, nobody else can."""
        both = self.aggregator is Aggregator.BOTH
        return Aggregator.DEVICE if both and self.keeps_drafts else self.aggregator

    @property
    def window(self) -> int:
        """Undecided steps for which the other side may send drafts.

        Its decided prefix and its drafts behind that are each at most `run_ahead` steps ahead.
        """
        return 2 * self.run_ahead + 1


@dataclass(frozen=True, slots=True, kw_only=True)
class SpeculativeSettings(Settings):
    """Mode speculative: the device drafts blocks, the cloud verifies them (SPEC 2).

    A block has `block_tokens` tokens, or what `controller` chooses; it ends earlier where one token
    more would take it over `budget` bits, and where `stopping` says so. With `pipelined` the next
    blocks are drafted and sent as if those before them were accepted. With `cloud_decodes` the
    cloud decodes by itself while no block waits, where no token depends on a draft. `learning_rate`
    and `target` are η and α of C-SQS, both divided by √T with a `horizon` of T tokens (SQS A.3).
    """

    rule: str = setting(
        "coupled", "Rule: coupled, rejection, or sample-quantize (biased, a baseline)."
    )
    codec: str = setting("ids", "Codec: ids, qs:L, ksqs:K:L, csqs:BETA:L, dense:fp16 …")
    draft: DraftSource | None = setting(
        None,
        "Drafts come from: model, lookup (what documents, question and answer so far say next; no "
        "model computes), auto (what promises more, for each block). With the last two the cloud "
        "looks up, too, while it decodes by itself. Default: auto; model with --controller and "
        "--stopping.",
    )
    block_tokens: int | None = own(
        None,
        "Tokens of a block. Default: 4 if pipelined, 8 if not, 16 with --stopping; 0: the cloud "
        "decodes alone.",
        low=0,
        high=256,
    )
    budget: int | None = own(None, "Most bits of a block.", low=1)
    controller: str | None = own(
        None,
        "Chooses tokens and resolution of each block: static:N:L, heuristic:L, default (trained), "
        "or a FILE.",
        limit=4096,
    )
    stopping: Stopping | None = own(
        None,
        "Ends a block early: adaedl (the draft model is unsure), specdec++ (a trained network "
        "expects a rejection).",
    )
    verifier: str | None = own(None, VERIFIER_HELP, limit=4096)
    pipelined: bool = own(True, "Draft on while blocks are verified (default), or wait.")
    cloud_decodes: bool = setting(
        True, "The cloud decodes by itself while no block waits (coupled, ids)."
    )
    learning_rate: float = own(
        0.001, "η of C-SQS's threshold.", low=0, high=1, option="csqs_learning_rate"
    )
    target: float = own(
        0.0005, "α of C-SQS: the mass it aims to drop.", low=0, high=1, option="csqs_target"
    )
    horizon: int | None = own(
        None,
        "Tokens of all answers together: η and α are divided by their root.",
        low=1,
        option="csqs_horizon",
    )
    on_loss: OnLoss = own("alone", LOSS_HELP)

    def __post_init__(self) -> None:
        check(self)
        _check_verifies(self.rule, self.codec)
        if self.controller is not None and self.block_tokens is not None:
            raise DragonError(
                "--controller chooses the tokens of a block: leave out --block-tokens"
            )
        if self.block_tokens == 0 and not self.decodes:
            raise DragonError("--block-tokens 0 needs a cloud that decodes: leave out --rule")
        if self.drafts_from != "model" and (self.controller or self.stopping):
            raise DragonError(
                "--controller and --stopping read what the model drafts: use --draft model"
            )
        if self.verifier is not None and self.stopping != "specdec++":
            raise DragonError("a verifier of blocks is read by --stopping specdec++ alone")

    @property
    def drafts_from(self) -> DraftSource:
        """Where blocks come from; the other side is not told what it chooses their length by."""
        return self.draft or ("model" if self.controller or self.stopping else "auto")

    @property
    def length(self) -> int:
        """The tokens of a block where nothing else chooses.

        Within a few per cent of the fastest of 1 to 16 tokens and 1 to 8 blocks under way, at
        100 ms round trip and acceptances from 0.5 to 0.95; so is `outstanding`.
        """
        if self.block_tokens is not None:
            return self.block_tokens
        return 16 if self.stopping is not None else 4 if self.pipelined else 8

    @property
    def outstanding(self) -> int:
        """The blocks that may await their verdicts."""
        return 4 if self.pipelined else 1

    @property
    def stopping_rule(self) -> StoppingRule | None:
        """What ends a block before it has that length (SPRINTER Table 2)."""
        if self.stopping is None:
            return None
        return (AdaEDL if self.stopping == "adaedl" else SpecDecPlusPlus)(self.length)

    @property
    def first_threshold(self) -> ConformalThreshold | None:
        """C-SQS's threshold of an answer's first token; None for the other codecs."""
        family, *arguments = self.codec.split(":")
        if family != "csqs":
            return None
        first = float(arguments[0])
        return ConformalThreshold.first(first, self.learning_rate, self.target, self.horizon)

    @property
    def decodes(self) -> bool:
        """Whether tokens may come without a block: if they depend on no draft."""
        return self.cloud_decodes and not codec(self.codec, 2).sends_distributions

    @property
    def verifies_with(self) -> Kind | None:
        """The kind of trained verifier that is needed."""
        return "specdec++" if self.stopping == "specdec++" else None


@dataclass(frozen=True, slots=True, kw_only=True)
class FederatedSettings(Settings):
    """Mode federated: a coordinator drafts, several workers upload distributions (SPEC 3).

    `codec` codes the workers' uploads; drafted tokens travel as ids. With `block_tokens` 0 the
    workers decode token by token.
    """

    several = True

    rule: str = setting("coupled", "Rule: coupled or rejection.")
    codec: str = setting("topk:64:residual", "Codec of uploads: topk:K:residual …")
    block_tokens: int = own(8, "Tokens of a block.", low=0, high=MAX_BLOCK - 1)
    weights: Weighing = own(
        "fixed", "Weights of workers: fixed, or relevance (of their documents)."
    )
    quorum_deadline: float | None = own(
        None,
        "Seconds to wait for late workers. Default: four times the slowest one's median.",
        low=0.001,
        high=1e6,
    )
    require_all: bool = own(False, "Decide no token without all workers.")

    def __post_init__(self) -> None:
        check(self)
        _check_codec(self.codec, because="workers upload distributions")
        speculative_rule(self.rule, Noise(0), Sampler())
        if self.rule == SampleQuantize.name:
            raise DragonError(
                f"the rule {self.rule} is a baseline of another mode: use coupled or rejection"
            )


@dataclass(frozen=True, slots=True, kw_only=True)
class SprinterSettings(Settings):
    """Mode sprinter: a trained verifier stands in for the cloud's model (SPEC 4). Approximate.

    A drafted token that the verifier finds acceptable with a probability below `threshold` goes to
    the cloud, and so does the last one of `run_length` tokens in a row of which the cloud has
    verified none.
    """

    rule: str = setting(Rejection.name, "Rule: rejection.")
    codec: str = setting("topk:64:renorm", "Codec of the doubtful token: topk:K:renorm …")
    verifier: str | None = own(None, VERIFIER_HELP, limit=4096)
    threshold: float | None = own(
        None,
        "The cloud decides tokens below this score. Default: the verifier's own.",
        low=0,
        high=1,
    )
    run_length: int = own(32, "The cloud decides at least every Nth token.", low=1, high=256)
    on_loss: OnLoss = own("alone", LOSS_HELP)

    def __post_init__(self) -> None:
        check(self)
        if self.rule != Rejection.name:
            raise DragonError(
                f"sprinter verifies by the rule {Rejection.name}, not {self.rule}: leave --rule out"
            )
        _check_verifies(self.rule, self.codec)

    @property
    def verifies_with(self) -> Kind | None:
        """The kind of trained verifier that is needed."""
        return "sprinter"


def _check_codec(name: str, *, because: str = "", complete: bool = True) -> None:
    """Refuse a codec of mode dragon if `complete`, and one without distributions if `because`."""
    code = codec(name, 2)
    if because and not code.sends_distributions:
        raise DragonError(f"{because} and the codec {name} sends none: choose another --codec")
    if complete and not code.complete:
        raise DragonError(f"the codec {name} is for mode dragon: choose another --codec")


def _check_verifies(name: str, code: str) -> None:
    """Refuse a codec that sends no distributions where the rule verifies with them."""
    _check_codec(code)
    sends = codec(code, 2).sends_distributions
    if speculative_rule(name, Noise(0), Sampler()).sends_distributions and not sends:
        raise DragonError(
            f"the rule {name} verifies with distributions and the codec {code} sends none: "
            "choose a codec that does, such as ksqs:64:100"
        )
