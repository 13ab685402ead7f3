"""`dragonrt train`: the small networks that the modes use, trained for a pair of models."""

import typer

from dragonrt.cli.groups import grouped
from dragonrt.cli.train_verifier import verifier

train = typer.Typer(
    help="Train what the modes use: a verifier that stands in for the target.",
    no_args_is_help=True,
)
train.command()(grouped(verifier))
