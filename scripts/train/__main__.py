"""`scripts/train/run`: the small networks that the modes use, trained for a pair of models."""

from cyclopts import App

from dragonrt.cli import run, set_up_logging

app = App(
    name="scripts/train/run",
    help="Train what the modes use: a controller of blocks, a verifier in the target's place.",
)
app.command(
    "scripts.train.controllers.command:controller",
    help="Train a controller by Double DQN, and compare it with every fixed action, on held-out "
    "answers and courses of the uplink.",
)
app.command(
    "scripts.train.verifiers.command:verifier",
    help="Train a verifier for a pair of models; scores are those on held-out text.",
)


def main() -> None:
    """Run the command line."""
    set_up_logging()
    run(app)


if __name__ == "__main__":
    main()
