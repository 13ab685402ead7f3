"""`dragonrt train`: the small networks that the modes use, trained for a pair of models."""

import typer

from dragonrt.cli.train_controller import controller
from dragonrt.cli.train_verifier import verifier

train = typer.Typer(
    help="Train what the modes use: a controller of blocks, a verifier in the target's place.",
    no_args_is_help=True,
)
train.command()(controller)
train.command()(verifier)
