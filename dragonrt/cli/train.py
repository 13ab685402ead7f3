"""`dragonrt train`: the small networks that the modes use, trained for a pair of models."""

from cyclopts import App

train = App(
    name="train",
    help="Train what the modes use: a controller of blocks, a verifier in the target's place.",
)
train.command(
    "dragonrt.cli.train_controller:controller",
    help="Train a controller by Double DQN, and compare it with every fixed action, on held-out "
    "answers and courses of the uplink.",
)
train.command(
    "dragonrt.cli.train_verifier:verifier",
    help="Train a verifier for a pair of models; scores are those on held-out text.",
)
