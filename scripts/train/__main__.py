"""`scripts/train/run WHAT`: the models that are bundled, and what the modes use beside them."""

from cyclopts import App

from dragonrt.cli import run, set_up_logging

COMMANDS = {
    "adapter-samples": ("models.adapter_samples", "Write the samples of an adapter."),
    "samples": ("models.adapter_samples", "Write them as texts for verifiers."),
    "adapter": ("models.adapter", "Train a LoRA adapter of SmolLM2 for answers."),
    "draft": ("models.draft", "Train a draft of some layers of SmolLM2."),
    "statistics": ("models.adapter", "Write the statistics that a file is rounded by."),
    "adapter-file": ("models.files", "Write an adapter as the package merges it."),
    "layers-file": ("models.files", "Write a draft's layers as the package has them."),
    "verifier": (
        "verifiers.training",
        "Train a verifier for a pair of models; scores are those on held-out text.",
    ),
}
"""Each is the function of its name in that module, with its help."""

app = App(name="scripts/train/run", help="Train the bundled models and what the modes use.")
for _name, (_module, _help) in COMMANDS.items():
    _function = _name.replace("-", "_")
    app.command(f"scripts.train.{_module}:{_function}", name=_name, help=_help)


def main() -> None:
    """Run the command line."""
    set_up_logging()
    run(app)


if __name__ == "__main__":
    main()
