"""The command line: parse the options, call the command, and print errors.

A setting comes from its flag, else the environment (DRAGONRT_<OPTION>), else a TOML file with one
table per command, else its default. An error that the user can fix is one line on stderr.
"""

import logging
import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal, NoReturn

from cyclopts import App, CycloptsError, Parameter
from cyclopts.exceptions import UnknownOptionError, UnusedCliTokensError
from cyclopts.help import DefaultFormatter, HelpPanel
from typing_extensions import override

from dragonrt import __version__
from dragonrt.cli.console import log_to_stderr, output, say
from dragonrt.cli.options import DAILY, EnvironmentVariables, SettingsFile, group, option, removed
from dragonrt.errors import DragonError
from dragonrt.node.process.ending import exit_on_sigterm
from dragonrt.settings import SettingError, flag

if TYPE_CHECKING:
    from rich.console import Console, ConsoleOptions

COMMANDS = {
    "demo": (
        "demo:demo",
        "Ask sample documents in two processes, and compare methods.\n\nThe round trip is 100 ms. "
        "Give --aggregator, --rule, --on-loss and --json with --ask; a comparison sets its own.",
    ),
    "cloud": ("answering:cloud", "Serve devices with a model and public documents."),
    "device": ("answering:device", "Chat over private documents, together with a cloud."),
    "serve": (
        "answering:serve",
        "Serve a device over HTTP: OpenAI's API, Ollama's API, and a page.\n\nFor programs that "
        "people already have. It stores no conversation.",
    ),
    "mcp": (
        "answering:mcp",
        "Offer a device's tools to an agent: MCP over stdin and stdout.\n\nThe agent starts it.",
    ),
    "doctor": (
        "answering:doctor",
        "Check the set-up.\n\nVersions, keys, model, index and, with --host, the connection.",
    ),
    "keys": ("preparation:keys", "Make the key that both sides share, and show or enter it."),
    "index": (
        "preparation:index",
        "Index documents before they are needed.\n\nText, embeddings and, with --kv, the model's "
        "KV. Only changed documents are read again.",
    ),
    "profile": (
        "preparation:profile",
        "Measure this machine's time per token.\n\nLater answers with --aggregator greedy use it.",
    ),
    "model": ("preparation:models", "Write the default models as files for other programs."),
    "experiment": (
        "demo:experiment",
        "Measure your own pair of sides.\n\n`latency` asks the same questions over slower links.",
    ),
    "trace": ("trace_tables:trace", "Summarise the files that --trace wrote, of one side or both."),
}
"""The module and the help of each command: none is imported before it is called."""

EVERYTHING = "--help-all"
ENVIRONMENT = EnvironmentVariables()


class Help(DefaultFormatter):
    """A formatter of the help that shows the options for daily use, or all with --help-all."""

    @override
    def __call__(self, console: "Console", options: "ConsoleOptions", panel: HelpPanel) -> None:
        if EVERYTHING in sys.argv or panel.title in ("Commands", "Arguments", DAILY):
            super().__call__(console, options, panel)


app = App(
    name="dragonrt",
    help="Two peers, each with its own documents, answer one question together.",
    version=f"dragonrt {__version__}",
    help_flags=("--help", "-h", EVERYTHING),
    config=ENVIRONMENT,
    group_parameters=group(DAILY),
    help_format="plaintext",
    help_epilogue="--help-all shows all options. Each is also read from the environment "
    "(DRAGONRT_<OPTION>) and from the table of the command in dragonrt.toml.",
    help_formatter=Help(),
    console=output,
    result_action="return_value",
)
for _place, (_name, (_path, _help)) in enumerate(COMMANDS.items()):
    app.command(f"dragonrt.cli.{_path}", name=_name, help=_help, sort_key=_place)
app.meta.config = (ENVIRONMENT,)  # which also says where the settings file is


@app.meta.default
def launch(
    *tokens: Annotated[str, Parameter(show=False, allow_leading_hyphen=True)],
    config: Annotated[
        Path | None, option("TOML file with a table per command. Default: ./dragonrt.toml.")
    ] = None,
    verbose: Annotated[bool, option("Log debug lines (no texts), show tracebacks.")] = False,
    log_format: Annotated[
        Literal["text", "json"], option("Format of the log on stderr: text or json.")
    ] = "text",
) -> Any:
    """Set up logging, read the settings file, and run the command that `tokens` name."""
    set_up_logging(verbose, as_json=log_format == "json")
    app.config = (ENVIRONMENT, SettingsFile.read(config, app))
    return app(tokens, exit_on_error=False, print_error=False)


def set_up_logging(verbose: bool = False, *, as_json: bool = False) -> None:
    """Log to stderr, as text or JSON: warnings and, if `verbose`, this program's debug lines."""
    log_to_stderr(logging.DEBUG if verbose else logging.WARNING, as_json=as_json)
    os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")  # else a warning at every fork
    if not verbose:
        os.environ.setdefault("TRANSFORMERS_VERBOSITY", "error")


def main() -> None:
    """Run the command that sys.argv names, and exit; SIGTERM ends it cleanly, by SystemExit."""
    exit_on_sigterm()
    run(app.meta)


def run(commands: App) -> NoReturn:
    """Run the command of `commands` that sys.argv names; exit with 1 for an error, 2 if misused."""
    try:
        sys.exit(commands(sys.argv[1:], exit_on_error=False, print_error=False))
    except UnusedCliTokensError as error:
        _fail(error, f"unexpected argument: {' '.join(error.unused_tokens or ())}", 2)
    except UnknownOptionError as error:
        name = error.token.keyword or error.token.value
        name = name.partition("=")[0]
        there = " ".join((*(error.command_chain or ()), name))
        _fail(error, removed(name) or removed(there) or str(error), 2)
    except CycloptsError as error:
        _fail(error, str(error), 2)
    except SettingError as error:
        _fail(error, f"{flag(error.name)} {error.problem}" if error.name else str(error), 1)
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
