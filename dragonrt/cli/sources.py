"""The sources of settings beside flags: the environment, and a TOML file.

The file has one table per command; keys are the names of options.
"""

import os
import tomllib
from pathlib import Path
from typing import Any, Self, get_args, get_origin

import platformdirs
from cyclopts import App
from cyclopts.argument import ArgumentCollection
from cyclopts.config import Dict, Env
from typing_extensions import override

from dragonrt.cli.options import REMOVED, removed
from dragonrt.errors import DragonError
from retrieval.files import read_text

NAME = "dragonrt.toml"
PREFIX = "DRAGONRT_"


class SettingsError(DragonError):
    """A settings file that cannot be read, or has an unknown name."""


class EnvironmentVariables(Env):
    """Reads the environment variables named like the options."""

    def __init__(self) -> None:
        super().__init__(PREFIX, command=False, show=False)

    @override
    def __call__(self, app: App, commands: tuple[str, ...], arguments: ArgumentCollection) -> None:
        for flag in (name for each in arguments for name in each.negatives):
            variable = PREFIX + flag.removeprefix("--").replace("-", "_").upper()
            if variable in os.environ:  # the library would read its value as the flag's
                right = variable.replace("_NO_", "_", 1)
                raise SettingsError(f"{variable} is no setting: write {right}=false")
        for flag in REMOVED.keys() - {name for each in arguments for name in each.names}:
            if PREFIX + flag.removeprefix("--").replace("-", "_").upper() in os.environ:
                raise SettingsError(removed(flag))
        super().__call__(app, commands, arguments)


class SettingsFile(Dict):
    """Reads the table of the running command."""

    @classmethod
    def read(cls, path: Path | None, program: App) -> Self:
        """Return the file at `path`, else ./dragonrt.toml, else the user's own, else an empty one.

        Raises SettingsError for a file that is none, or has tables of unknown commands.
        """
        usual = (Path(NAME), Path(platformdirs.user_config_dir("dragonrt")) / NAME)
        path = path or next((each for each in usual if each.exists()), None)
        if path is None:
            return cls({})
        try:
            table = tomllib.loads(read_text(path))
        except OSError as error:
            raise SettingsError(f"cannot read the settings {path}: {error.strerror}") from None
        except ValueError as error:
            raise SettingsError(f"the settings {path} are not TOML: {error}") from None
        _check_tables(path, program, table, "")
        return cls(table, source=str(path))

    @override
    def __call__(self, app: App, commands: tuple[str, ...], arguments: ArgumentCollection) -> None:
        table: Any = self.config
        for name in commands:
            table = table.get(name, {})
        for each in arguments:
            if not each.show and any(token.source == "cli" for token in each.tokens):
                key = each.name.removeprefix("--")
                raise SettingsError(f"{each.name} is no option: write {key} into {NAME}")
        named = {name: each for each in arguments for name in each.parameter.name or ()}
        for key, value in table.items():
            where = f"{self.source}: {key} in [{'.'.join(commands)}]"
            found = named.get(flag := "--" + key.replace("_", "-"))
            if found is None and (line := removed(flag)):
                raise SettingsError(f"{self.source}: {line}")
            if found is None:
                known = sorted(name[2:] for name in named if name.startswith("--"))
                raise SettingsError(f"{where} is no setting; there are {', '.join(known)}")
            _check_value(where, value, (found.hint, *get_args(found.hint)))
        super().__call__(app, commands, arguments)


def _check_value(where: str, value: Any, hints: tuple[Any, ...]) -> None:
    """Reject values that the library would misread."""
    several = get_origin(hints[0]) is list or any(get_origin(each) is tuple for each in hints)
    if isinstance(value, dict) or (isinstance(value, list) and not several):
        raise SettingsError(f"{where} must be a single value")
    if isinstance(value, bool) != (bool in hints):
        kind = "true or false" if bool in hints else "a value, not true or false"
        raise SettingsError(f"{where} must be {kind}")


def _check_tables(path: Path, group: App, table: dict[str, Any], above: str) -> None:
    """Reject tables of commands that do not exist."""
    known = _commands(group)
    for name, value in table.items():
        if name not in known:
            tables = ", ".join(f"[{above}{each}]" for each in sorted(known))
            raise SettingsError(f"{path}: there is no table [{above}{name}]; there are {tables}")
        if not isinstance(value, dict):
            raise SettingsError(f"{path}: {above}{name} must be a table: write [{above}{name}]")
        if any(isinstance(each, dict) for each in value.values()) and _commands(group[name]):
            _check_tables(path, group[name], value, f"{above}{name}.")


def _commands(group: App) -> list[str]:
    return [name for name in group if not name.startswith("-")]
