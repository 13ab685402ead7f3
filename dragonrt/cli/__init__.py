"""The command line: parse, call, print.

A setting comes from its flag, else from the environment (DRAGONRT_<OPTION>), else from a TOML file
with one table per command, else it has its default. What a user can mend is one line on stderr.
"""

import logging
import os
import sys
from pathlib import Path
from typing import Annotated, NoReturn

import typer
from typer.exceptions import TyperException

from dragonrt import __version__
from dragonrt.cli.console import messages, output
from dragonrt.cli.experiments import bench, demo, experiment
from dragonrt.cli.groups import grouped
from dragonrt.cli.preparing import index, profile
from dragonrt.cli.settings import read_settings
from dragonrt.cli.sides import cloud, device
from dragonrt.cli.simulate import simulate
from dragonrt.cli.traces import trace
from dragonrt.cli.training import train
from dragonrt.errors import DragonError

NOISY = ("asyncio", "httpx", "sentence_transformers", "transformers", "filelock", "faiss")

app = typer.Typer(
    name="dragonrt",
    add_completion=False,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
    epilog="Every option of a command can also be set as DRAGONRT_<OPTION> in the environment, or "
    "in dragonrt.toml: here, in the user's configuration directory, or named with --config.",
)


def _show_version(wanted: bool) -> None:
    if wanted:
        output.print(f"dragonrt {__version__}")
        raise typer.Exit


@app.callback(invoke_without_command=True)
def configure(
    context: typer.Context,
    config: Annotated[
        Path | None,
        typer.Option(
            "--config",
            metavar="FILE",
            help="Settings: a TOML file with one table per command.",
            envvar="DRAGONRT_CONFIG",
            show_envvar=False,
        ),
    ] = None,
    verbose: Annotated[
        bool, typer.Option("--verbose", help="Log everything, and show errors in full.")
    ] = False,
    version: Annotated[
        bool,
        typer.Option(
            "--version", help="Say which one this is.", callback=_show_version, is_eager=True
        ),
    ] = False,
) -> None:
    """Two peers, each with its own documents, answer one question together."""
    if context.invoked_subcommand is None:
        typer.echo(context.get_help())
        raise typer.Exit
    logging.basicConfig(
        level=logging.DEBUG if verbose else logging.WARNING,
        format="%(levelname)s %(name)s: %(message)s",
    )
    for name in NOISY:
        logging.getLogger(name).setLevel(logging.WARNING)
    os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")  # else a warning at every fork
    if not verbose:
        os.environ.setdefault("TRANSFORMERS_VERBOSITY", "error")  # its warnings are for programmers
    context.default_map = read_settings(config, context.command)


app.command()(grouped(demo))
app.command()(grouped(cloud))
app.command()(grouped(device))
app.command()(grouped(index))
app.command()(grouped(profile))
app.command()(trace)
app.command()(experiment)
app.command()(grouped(simulate))
app.add_typer(bench, name="bench")
app.add_typer(train, name="train")


def main() -> None:
    """Run the command line: exit code 1 for what went wrong, 2 for what was called wrongly."""
    try:
        sys.exit(app(prog_name="dragonrt", standalone_mode=False))
    except TyperException as error:
        # The library that checks an option's value says whose error it is; nobody needs to know.
        _fail(error, error.format_message().replace("Value error, ", ""), error.exit_code)
    except DragonError as error:
        _fail(error, str(error), 1)
    except KeyboardInterrupt:
        sys.exit(130)


def _fail(error: Exception, line: str, code: int) -> NoReturn:
    if "--verbose" in sys.argv:
        raise error
    text = " ".join(line.split())
    if text:  # a group without a command has shown its help instead
        messages.print(f"dragonrt: {text}", style="red", markup=False, soft_wrap=True)
    sys.exit(code)
