"""The command line: parse, call, print.

A setting comes from its flag, else from the environment (DRAGONRT_<OPTION>), else from a TOML file
with one table per command, else it has its default. What a user can mend is one line on stderr.
"""

import logging
import os
import sys
from pathlib import Path
from typing import Annotated, Any, NoReturn

from cyclopts import App, CycloptsError, Parameter
from cyclopts.config import Env
from cyclopts.exceptions import UnusedCliTokensError

from dragonrt import __version__
from dragonrt.cli.console import output, say
from dragonrt.cli.files import SettingsFile
from dragonrt.cli.help import EVERYTHING, Help
from dragonrt.cli.options import DAILY, group, option
from dragonrt.errors import DragonError

NOISY = ("asyncio", "httpx", "sentence_transformers", "transformers", "filelock", "faiss")

COMMANDS = {
    "demo": (
        "experiments:demo",
        "Ask sample documents in two processes 100 ms apart, and compare.",
    ),
    "cloud": ("sides:cloud", "Serve devices with a model and public documents."),
    "device": ("sides:device", "Chat over private documents, together with a cloud."),
    "index": ("preparing:index", "Index documents before they are needed."),
    "profile": ("preparing:profile", "Measure this machine's time per token."),
    "trace": ("traces:trace", "Sum up or draw what --trace wrote."),
    "experiment": ("experiments:experiment", "Measure one thing as a paper's figure does."),
    "simulate": ("simulate:simulate", "Search for defects in virtual time."),
    "bench": ("experiments:bench", "Measure this machine."),
    "train": ("training:train", "Train what the modes use."),
}
"""Where each command is and what it is for: none is imported before it is called."""

ENVIRONMENT = Env("DRAGONRT_", command=False, show=False)

app = App(
    name="dragonrt",
    help="Two peers, each with its own documents, answer one question together.",
    version=f"dragonrt {__version__}",
    help_flags=("--help", "-h", EVERYTHING),
    config=ENVIRONMENT,
    group_parameters=group(DAILY),
    help_format="plaintext",
    help_epilogue="--help-all shows all options. Each may also stand in the environment "
    "(DRAGONRT_<OPTION>) or in dragonrt.toml, in the command's table.",
    console=output,
    result_action="return_value",
)
for _name, (_place, _help) in COMMANDS.items():
    app.command(f"dragonrt.cli.{_place}", name=_name, help=_help)
app.meta.config = (ENVIRONMENT,)  # which also says where the settings file is


@app.meta.default
def launch(
    *tokens: Annotated[str, Parameter(show=False, allow_leading_hyphen=True)],
    config: Annotated[
        Path | None, option("Settings: a TOML file with one table per command.")
    ] = None,
    verbose: Annotated[bool, option("Log everything, and show errors in full.")] = False,
) -> Any:
    """Run a command with its settings."""
    logging.basicConfig(
        level=logging.DEBUG if verbose else logging.WARNING,
        format="%(levelname)s %(name)s: %(message)s",
    )
    for name in NOISY:
        logging.getLogger(name).setLevel(logging.WARNING)
    os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")  # else a warning at every fork
    if not verbose:
        os.environ.setdefault("TRANSFORMERS_VERBOSITY", "error")  # its warnings are for programmers
    app.config = (ENVIRONMENT, SettingsFile.read(config, app))
    return app(tokens, exit_on_error=False, print_error=False)


def main() -> None:
    """Run the command line: exit code 1 for what went wrong, 2 for what was called wrongly."""
    app.help_formatter = Help(everything=EVERYTHING in sys.argv)
    try:
        sys.exit(app.meta(sys.argv[1:], exit_on_error=False, print_error=False))
    except UnusedCliTokensError as error:
        _fail(error, f"unexpected argument: {' '.join(error.unused_tokens or ())}", 2)
    except CycloptsError as error:
        _fail(error, str(error), 2)
    except DragonError as error:
        _fail(error, str(error), 1)
    except KeyboardInterrupt:
        sys.exit(130)


def _fail(error: Exception, line: str, code: int) -> NoReturn:
    if "--verbose" in sys.argv:
        raise error
    text = " ".join(line.split())
    say(f"dragonrt: {text}", "red")
    sys.exit(code)
