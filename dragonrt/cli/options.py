"""Options made from the fields of settings, the environment and the settings file.

The settings file is TOML and has one table per command; its keys are the names of options.
"""

import functools
import itertools
import os
import tomllib
import types
import typing
from collections.abc import Callable, Mapping, Sequence
from dataclasses import MISSING, field, fields, make_dataclass
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any, Final, Self, TypeVar, get_args, get_origin

import platformdirs
from cyclopts import App, Group, Parameter
from cyclopts.argument import ArgumentCollection
from cyclopts.config import Dict, Env
from cyclopts.validators import Number
from typing_extensions import override

from dragonrt.errors import DragonError
from dragonrt.settings import Entry, assemble_known, entries
from retrieval.files import read_text

T = TypeVar("T")

NAME = "dragonrt.toml"
PREFIX = "DRAGONRT_"
DAILY = "Options"
"""The panel of options for daily use, the only one of the short help."""
NETWORK = "Network"
LINK = "Emulated link"

REMOVED: Final[dict[str, str]] = {
    "keys new --tls": "make certificates with openssl, as docs/operation.md shows",
    "--chrome": "use dragonrt trace FILE --json, or draw from the lines of the trace",
    "--replay": "a question asked again with the same --seed gives the same text",
    **dict.fromkeys(("--jitter", "--jitter-kind", "--bandwidth"), "write it into a --link FILE"),
    "--latency": "use --link, such as --link 150ms, or write it into a --link FILE",
    "--link-seed": "an emulated link has always the same jitter",
    "--waiting": "four requests may wait for each of --answers-at-once",
    "--pad": "use --traffic padded, or --traffic plain for --no-pad",
    **dict.fromkeys(("--cadence", "--cadence-ticks"), "use --traffic constant:TICK[:TICKS]"),
    "--follow-links": "name the targets of links to other places as --documents",
    "--stopping": "give the length of blocks by --block-tokens",
}
"""Options of the release before this one that are gone: what to do instead, by `--name`.

An option that another command still has is under the command and its name.
"""


def removed(name: str) -> str | None:
    """Return the error text for an option that earlier releases had, such as `--pad`; else None."""
    return f"{name} was removed: {REMOVED[name]}" if name in REMOVED else None


def option(
    text: str,
    *names: str,
    kind: str | None = None,
    panel: str = DAILY,
    default: str | None = None,
    low: int | None = None,
    no: bool = False,
    full: bool = False,
    show: bool = True,
) -> Parameter:
    """Return the cyclopts Parameter of an option with the help `text` and further `names`.

    In the help, `panel` is the heading above the option, `kind` names its value, and `default`
    replaces the parameter's default. A number must be at least `low`. With `full`, a text must not
    be empty. `no` adds a --no-… flag. Without `show`, only the settings file and the environment
    set the option. If a user repeats the option, the last value counts.
    """
    return Parameter(
        name=names or None,
        help=text,
        metavar=kind,
        group=group(panel),
        show=show,
        allow_repeating=True,
        negative=None if no else (),
        validator=_full if full else None if low is None else Number(gte=low),
        show_default=lambda own: default or (str(own) if own not in (None, False, ()) else None),
    )


def _full(_: Any, text: str | None) -> None:
    if text is not None and not text.strip():
        raise ValueError("it is empty")


@functools.cache
def group(panel: str) -> Group:
    """Return the panel of the help with that title; panels are shown in order of first use."""
    return Group(panel, sort_key=next(_ORDER))


_ORDER = itertools.count()
group(DAILY)


def derived(
    panels: Mapping[type, str],
    shared: str = "",
    *,
    only: Sequence[str] = (),
    without: Sequence[str] = (),
) -> Callable[[type[T]], type[T]]:
    """Return a class decorator that adds an option for each field of the settings in `panels`.

    `panels` maps each settings class to its heading in the help; fields of several classes are
    under `shared`. `only` or `without` choose fields by name. An option not given is None.
    """
    found: dict[str, dict[type, Entry]] = {}
    for cls in panels:
        for entry in entries(cls):
            left_out = entry.name in without or (only and entry.name not in only)
            if entry.about.help and entry.about.traced and not left_out:
                found.setdefault(entry.name, {})[cls] = entry
    options = []
    for name, of in found.items():
        panel = shared if len(of) > 1 else panels[next(iter(of))]
        options.append((name, _annotation(of, panel), field(default=None)))

    def decorate(cls: type[T]) -> type[T]:
        made = make_dataclass(cls.__name__, options, bases=(cls,), frozen=True, kw_only=True)
        made.__module__, made.__doc__ = cls.__module__, cls.__doc__
        return typing.cast(type[T], Parameter(name="*")(made))

    return decorate


def given(options: Any) -> dict[str, Any]:
    """Return the options that the user gave, by the names of their fields; None means not given."""
    if options is None:
        return {}
    values = {each.name: getattr(options, each.name) for each in fields(options)}
    return {name: value for name, value in values.items() if value is not None}


def settings(cls: type[T], options: Any, **fixed: Any) -> T:
    """Make an instance of the settings class `cls` from the options of a command.

    A value is from `options`, or from `fixed` if None there. Raises SettingError if it is invalid.
    """
    return assemble_known(cls, fixed | given(options))


def _annotation(found: Mapping[type, Entry], panel: str) -> Any:
    entry = next(iter(found.values()))
    names = [entry.option, *([f"-{entry.about.letter}"] if entry.about.letter else [])]
    kind = _kind(entry.type)
    text, default = _help(found)
    panel, show = DAILY if entry.about.daily else panel, not entry.about.rare
    parameter = option(text, *names, panel=panel, default=default, no=kind is bool, show=show)
    return Annotated[kind | None, parameter]


def _kind(annotation: Any) -> Any:
    """Return the type to parse; the settings themselves check texts and numbers."""
    origin, inner = get_origin(annotation), get_args(annotation)
    if origin in (typing.Union, types.UnionType):
        return _kind(next(each for each in inner if each is not type(None)))
    if origin is typing.Literal or (origin is None and issubclass(annotation, StrEnum)):
        return str
    return annotation


def _help(found: Mapping[type, Entry]) -> tuple[str, str | None]:
    """Return the help of a field and its default; if modes differ, a line for each."""
    lines: dict[tuple[str, str | None], list[str]] = {}
    for cls, entry in found.items():
        name = cls.__name__.removesuffix("Settings").lower()
        lines.setdefault((entry.about.help, _default(entry)), []).append(name)
    if len(lines) == 1:
        return next(iter(lines))
    each = (
        f"{', '.join(names)}: {text}" + (f" [default: {default}]" if default else "")
        for (text, default), names in lines.items()
    )
    return "\n".join(each), None


def _default(entry: Entry) -> str | None:
    """Return the default to show; a help text with "Default" has it."""
    value = entry.default
    shown = value is None or value is MISSING or "Default" in entry.about.help
    return None if shown or isinstance(value, bool | tuple) else f"{value}"


class SettingsError(DragonError):
    """An error: a settings file cannot be read, or names an unknown command or option."""


class EnvironmentVariables(Env):
    """A source of option values for cyclopts: the environment variables DRAGONRT_<OPTION>."""

    def __init__(self) -> None:
        super().__init__(PREFIX, command=False, show=False)

    @override
    def __call__(self, app: App, commands: tuple[str, ...], arguments: ArgumentCollection) -> None:
        gone = REMOVED.keys() - {name for each in arguments for name in each.names}
        for flag in (*gone, *(name for each in arguments for name in each.negatives)):
            variable = PREFIX + flag.removeprefix("--").replace("-", "_").upper()
            if variable in os.environ:  # the library would read a negative's value as the flag's
                right = variable.replace("_NO_", "_", 1)
                wrong = f"{variable} is no setting: write {right}=false"
                raise SettingsError(removed(flag) if flag in gone else wrong)
        super().__call__(app, commands, arguments)


class SettingsFile(Dict):
    """A source of option values for cyclopts: the command's table in the settings file."""

    @classmethod
    def read(cls, path: Path | None, program: App) -> Self:
        """Read `path`, else ./dragonrt.toml, else the user's dragonrt.toml, else nothing.

        Raises SettingsError for a file that cannot be read, or a command that `program` lacks.
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
