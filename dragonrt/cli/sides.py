"""`dragonrt cloud` and `dragonrt device`: the two sides."""

from dataclasses import replace
from typing import Annotated

import typer

from dragonrt.cli.console import messages, output
from dragonrt.cli.federation import FederationOptions
from dragonrt.cli.groups import option
from dragonrt.cli.loading import load
from dragonrt.cli.modes import BlockOptions, Mode, choose_mode
from dragonrt.cli.options import (
    NETWORK,
    AnswerOptions,
    AsJson,
    EmulationOptions,
    IndexOptions,
    ModelOptions,
    NetworkOptions,
    SideOptions,
    side_settings,
)
from dragonrt.cli.sprinting import SprinterOptions


def cloud(
    model: ModelOptions,
    own: SideOptions,
    index: IndexOptions,
    network: NetworkOptions,
    emulation: EmulationOptions,
    share_sources: Annotated[
        bool,
        option("Tell devices which files were used.", "--share-sources/--no-share-sources"),
    ] = True,
) -> None:
    """Serve devices with a model and public documents."""
    address = network.cloud_address(emulation)
    settings = side_settings("cloud", model, index, own, share_sources=share_sources)

    from dragonrt.runtime import main as programs

    loaded, library = load(settings)
    programs.run(
        programs.run_cloud(
            settings,
            loaded,
            library,
            address,
            on_change=lambda line: messages.print(line, markup=False, soft_wrap=True),
            on_ready=lambda port: messages.print(
                f"cloud: {loaded.name} on {loaded.on} listens on {address.host}:{port}",
                markup=False,
                soft_wrap=True,
            ),
        )
    )


def device(
    model: ModelOptions,
    own: SideOptions,
    index: IndexOptions,
    network: NetworkOptions,
    emulation: EmulationOptions,
    answers: AnswerOptions,
    blocks: BlockOptions,
    federation: FederationOptions,
    sprinter: SprinterOptions,
    mode: Annotated[
        Mode,
        option(
            "dragon: both sides answer from their documents; speculative: this side drafts blocks "
            "for the cloud's model, whose text comes out; federated: for the mixture of several; "
            "sprinter: a trained verifier asks the cloud about doubtful tokens only, so the text "
            "is approximate.",
            "--mode",
            kind="NAME",
        ),
    ] = "dragon",
    tls: Annotated[
        bool, option("Connect with TLS; trusts the system's authorities.", "--tls", panel=NETWORK)
    ] = False,
    ask: Annotated[str | None, typer.Option("--ask", help="Ask one question and leave.")] = None,
    as_json: AsJson = False,
) -> None:
    """Chat with a model over private documents, together with a cloud."""
    address = network.device_address(emulation, tls=tls)
    chosen = choose_mode(mode, answers, blocks, federation, sprinter, address)
    drafts = replace(model, model=model.model or chosen.model)
    settings = side_settings("device", drafts, index, own)

    from dragonrt.chat.conversation import Conversation
    from dragonrt.chat.terminal import ask_once, ask_once_json, chat
    from dragonrt.runtime import main as programs

    loaded, library = load(settings)

    async def talk() -> None:
        async with chosen.connected(settings, loaded, library) as begin:
            conversation = Conversation(loaded, chosen.plan, begin, answers.seed, answers.stops)
            if ask is None:
                await chat(conversation, output, chosen.colours, as_json=as_json)
            elif as_json:
                await ask_once_json(conversation, ask)
            else:
                await ask_once(conversation, ask, output)

    programs.run(talk())
