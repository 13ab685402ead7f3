"""The TOML file of settings: one table per command, keys as the options are called."""

import tomllib
from pathlib import Path
from typing import Any

import platformdirs

from dragonrt.errors import DragonError

NAME = "dragonrt.toml"


class SettingsError(DragonError):
    """A settings file that cannot be read, or names what does not exist."""


def read_settings(path: Path | None, program: Any) -> dict[str, Any]:
    """The defaults that a settings file gives to the commands of `program`, a click group.

    The file is `path`, else ./dragonrt.toml, else the user's own, else there are none.
    """
    user = Path(platformdirs.user_config_dir("dragonrt")) / NAME
    places = [path] if path is not None else [p for p in (Path(NAME), user) if p.exists()]
    if not places:
        return {}
    path = places[0]
    try:
        table = tomllib.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise SettingsError(f"cannot read the settings {path}: {error.strerror}") from None
    except ValueError as error:
        reason = " ".join(str(error).split())
        raise SettingsError(f"the settings {path} are not TOML: {reason}") from None
    return _group_defaults(path, program, table, "")


def _group_defaults(path: Path, group: Any, table: dict[str, Any], above: str) -> dict[str, Any]:
    defaults = {}
    for name, value in table.items():
        command = group.commands.get(name)
        if command is None:
            known = ", ".join(f"[{above}{command}]" for command in sorted(group.commands))
            raise SettingsError(f"{path}: there is no table [{above}{name}]; there are {known}")
        if not isinstance(value, dict):
            raise SettingsError(f"{path}: {above}{name} must be a table: write [{above}{name}]")
        read = _group_defaults if hasattr(command, "commands") else _command_defaults
        defaults[name] = read(path, command, value, f"{above}{name}.")
    return defaults


def _command_defaults(
    path: Path, command: Any, table: dict[str, Any], above: str
) -> dict[str, Any]:
    """Values by parameter; keys are those of the long options, values of the option's own kind."""
    parameters = {}
    for parameter in command.params:
        for flag in parameter.opts:
            if flag.startswith("--") and flag != "--help":
                parameters[flag.removeprefix("--")] = parameter
    defaults = {}
    for key, value in table.items():
        parameter = parameters.get(key.replace("_", "-"))
        where = f"{path}: {key} in [{above.rstrip('.')}]"
        if parameter is None:
            known = ", ".join(sorted(parameters))
            raise SettingsError(f"{where} is no setting; there are {known}")
        if isinstance(value, dict | list) and not (parameter.multiple and isinstance(value, list)):
            raise SettingsError(f"{where} must be a single value")
        if isinstance(value, bool) != parameter.is_flag:
            kind = "true or false" if parameter.is_flag else "a value, not true or false"
            raise SettingsError(f"{where} must be {kind}")
        if parameter.multiple and not isinstance(value, list):
            value = [value]
        defaults[parameter.name] = value
    return defaults
