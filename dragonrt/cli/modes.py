"""`dragonrt device --mode`: what each way of answering needs, and how it begins an answer."""

from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import dataclass, fields
from typing import TYPE_CHECKING, Annotated, Any, Literal

from dragonrt.cli.console import messages
from dragonrt.cli.federation import FederationOptions
from dragonrt.cli.groups import option
from dragonrt.cli.options import AnswerOptions, NetworkOptions
from dragonrt.cli.sprinting import SprinterOptions
from dragonrt.errors import DragonError

if TYPE_CHECKING:
    from dragonrt.language.model import LanguageModel
    from dragonrt.runtime.endpoints import Address
    from dragonrt.runtime.library import Library
    from dragonrt.runtime.outcome import AnswerPlan
    from dragonrt.runtime.process import SideSettings

Mode = Literal["dragon", "speculative", "federated", "sprinter"]

BLOCKS = "Drafted blocks"

DRAGON_ONLY = ("aggregator", "run_ahead", "follow")
"""Options that other modes have no use for."""


@dataclass(frozen=True, slots=True)
class BlockOptions:
    """How blocks are drafted, in the modes where the device drafts and others verify."""

    block_tokens: Annotated[
        int | None,
        option(
            "Tokens of a block; else 4 if pipelined, 8 if not.",
            "--block-tokens",
            kind="N",
            panel=BLOCKS,
            min=1,
            max=256,
        ),
    ] = None
    budget: Annotated[
        int | None,
        option("Bits a block may take.", "--budget", kind="BITS", panel=BLOCKS, min=1),
    ] = None
    controller: Annotated[
        str | None,
        option(
            "Chooses tokens and resolution of each block: static:N:L, heuristic:L, default "
            "(trained), or a FILE.",
            "--controller",
            kind="NAME",
            panel=BLOCKS,
        ),
    ] = None
    pipelined: Annotated[
        bool | None,
        option(
            "Draft on while blocks are verified (default), or wait.",
            "--pipelined/--no-pipelined",
            panel=BLOCKS,
        ),
    ] = None


@dataclass(frozen=True, slots=True)
class ChosenMode:
    """A mode with its settings.

    `model` runs here unless the user names another, `colours` tells a person what the text's
    colours mean; `connected` gives, while the device is connected, what begins each answer of a
    conversation.
    """

    plan: "AnswerPlan"
    model: str
    connected: "Callable[[SideSettings, LanguageModel, Library | None], Connected]"
    colours: str = (
        "[cyan]Cyan[/] words were drafted on this side, [yellow]yellow[/] ones come from the other."
    )


Connected = AbstractAsyncContextManager[Callable[..., Any]]


def choose_mode(
    mode: Mode,
    answers: AnswerOptions,
    blocks: BlockOptions,
    federation: FederationOptions,
    sprinter: SprinterOptions,
    address: "Address",
) -> ChosenMode:
    """The mode of that name; raises DragonError for options that do not fit it."""
    if mode != "sprinter":
        _refuse(mode, sprinter, SprinterOptions.__slots__)
    if mode == "federated":
        return _federated(answers, blocks, federation, address)
    _refuse(mode, federation, FederationOptions.__slots__)
    if mode == "dragon":
        return _dragon(answers, blocks, address)
    if mode == "sprinter":
        return _sprinter(answers, blocks, sprinter, address)
    return _speculative(answers, blocks, address)


def _dragon(answers: AnswerOptions, blocks: BlockOptions, address: "Address") -> ChosenMode:
    from dragonrt.runtime import main as programs
    from dragonrt.runtime.modes.dragon import beginning

    _refuse("dragon", blocks, BlockOptions.__slots__)

    @asynccontextmanager
    async def connected(
        settings: "SideSettings", model: "LanguageModel", library: "Library | None"
    ) -> AsyncIterator[Callable[..., Any]]:
        async with programs.device(settings, model, library, address) as (side, connector):
            yield beginning(side, connector, answers.on_loss)

    colours = (
        "[cyan]Cyan[/] words come from your documents, [yellow]yellow[/] ones from the cloud's."
    )
    return ChosenMode(answers.plan(), "dragon-small", connected, colours)


def _speculative(answers: AnswerOptions, blocks: BlockOptions, address: "Address") -> ChosenMode:
    from dragonrt.control import controller
    from dragonrt.runtime import main as programs
    from dragonrt.runtime.modes.speculative import (
        PIPELINED,
        WAITING,
        BlockShape,
        SpeculativePlan,
        beginning,
    )

    _refuse("speculative", answers, DRAGON_ONLY)
    if blocks.controller is not None and blocks.block_tokens is not None:
        raise DragonError("--controller chooses the tokens of a block: leave out --block-tokens")
    usual = WAITING if blocks.pipelined is False else PIPELINED
    plan = SpeculativePlan(
        seed=answers.seed if answers.seed is not None else 0,
        sampler=answers.sampler(),
        rule=answers.rule or "coupled",
        codec=answers.codec or "ids",
        max_tokens=answers.max_tokens,
        documents=answers.documents_per_side,
        relevance_temperature=answers.relevance_temperature,
        reweight_every=answers.reweight_every,
        shape=BlockShape(
            length=blocks.block_tokens or usual.length,
            budget=blocks.budget,
            controller=controller(blocks.controller) if blocks.controller is not None else None,
            outstanding=usual.outstanding,
        ),
    )
    plan.check()

    @asynccontextmanager
    async def connected(
        settings: "SideSettings", model: "LanguageModel", library: "Library | None"
    ) -> AsyncIterator[Callable[..., Any]]:
        async with programs.device(settings, model, library, address) as (side, connector):
            yield beginning(side, connector, answers.on_loss)

    return ChosenMode(plan, "dragon-draft", connected)


def _federated(
    answers: AnswerOptions,
    blocks: BlockOptions,
    federation: FederationOptions,
    address: "Address",
) -> ChosenMode:
    from dragonrt.runtime.federation import coordinator
    from dragonrt.runtime.modes.federated import FederatedPlan, beginning

    _refuse("federated", answers, (*DRAGON_ONLY, "on_loss"))
    _refuse("federated", blocks, ("budget", "controller", "pipelined"))
    if (address.host, address.port) != (NetworkOptions().host, NetworkOptions().port):
        raise DragonError("--host and --port name one cloud: name each worker with --worker")
    workers = federation.workers(address)
    plan = FederatedPlan(
        seed=answers.seed if answers.seed is not None else 0,
        sampler=answers.sampler(),
        rule=answers.rule or "coupled",
        codec=answers.codec or "topk:64:residual",
        max_tokens=answers.max_tokens,
        documents=answers.documents_per_side,
        relevance_temperature=answers.relevance_temperature,
        reweight_every=answers.reweight_every,
        block_tokens=blocks.block_tokens or 8,
        weighing=federation.weights,
        quorum_deadline_s=federation.quorum_deadline,
        require_all=federation.require_all,
    )
    plan.check()

    @asynccontextmanager
    async def connected(
        settings: "SideSettings", model: "LanguageModel", library: "Library | None"
    ) -> AsyncIterator[Callable[..., Any]]:
        async with coordinator(
            settings,
            model,
            library,
            workers,
            require_all=federation.require_all,
            on_notice=lambda line: messages.print(line, markup=False, soft_wrap=True),
        ) as (side, members):
            yield beginning(side, members)

    return ChosenMode(plan, "dragon-draft", connected)


def _sprinter(
    answers: AnswerOptions, blocks: BlockOptions, sprinter: SprinterOptions, address: "Address"
) -> ChosenMode:
    from dragonrt.control.verifier import Verifier
    from dragonrt.runtime import main as programs
    from dragonrt.runtime.modes.sprinter import (
        CODEC,
        RUN_LENGTH,
        SprinterPlan,
        beginning,
    )
    from dragonrt.runtime.modes.sprinter.pairing import verifier_of

    _refuse("sprinter", answers, DRAGON_ONLY)
    _refuse("sprinter", blocks, BlockOptions.__slots__)
    plan = SprinterPlan(
        seed=answers.seed if answers.seed is not None else 0,
        sampler=answers.sampler(),
        rule=answers.rule or "rejection",
        codec=answers.codec or CODEC,
        max_tokens=answers.max_tokens,
        documents=answers.documents_per_side,
        relevance_temperature=answers.relevance_temperature,
        reweight_every=answers.reweight_every,
        threshold=sprinter.threshold,
        run_length=sprinter.run_length or RUN_LENGTH,
    )
    plan.check()
    given = Verifier.load(sprinter.verifier) if sprinter.verifier is not None else None

    @asynccontextmanager
    async def connected(
        settings: "SideSettings", model: "LanguageModel", library: "Library | None"
    ) -> AsyncIterator[Callable[..., Any]]:
        async with programs.device(settings, model, library, address) as (side, connector):
            cloud = connector.peer.connection.peer if connector.peer is not None else None
            if cloud is None:
                raise DragonError("the cloud was lost as soon as it was reached: try again")
            verifier = verifier_of(model.fingerprint, cloud.weights, given)
            yield beginning(side, connector, verifier, answers.on_loss)

    return ChosenMode(plan, "dragon-draft", connected)


def _refuse(mode: Mode, options: Any, names: tuple[str, ...]) -> None:
    """Refuse options that were given and mean nothing in this mode."""
    for field in fields(options):
        if field.name in names and getattr(options, field.name) != field.default:
            flag = "--" + field.name.replace("_", "-")
            raise DragonError(f"{flag} has no meaning with --mode {mode}: leave it out")
