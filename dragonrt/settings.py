"""Fields of frozen dataclasses that are written once: options, wire, files and traces derive them.

A field made by `setting` knows what it is for and what it may be. `check` holds an instance to it,
`flat` lists the values by name, nested dataclasses included, `assemble` makes an instance of them.
"""

import functools
import typing
from collections.abc import Iterator, Mapping
from dataclasses import MISSING, dataclass, field, fields, is_dataclass, replace
from enum import StrEnum
from operator import attrgetter
from typing import Any, TypeVar

from dragonrt import schema
from dragonrt.errors import DragonError

T = TypeVar("T")

KEY = "setting"


class SettingError(DragonError):
    """A value that the field `name` does not take; the line names both."""

    def __init__(self, problem: str, name: str = "") -> None:
        super().__init__(f"{name} {problem}" if name else problem)
        self.problem, self.name = problem, name


@dataclass(frozen=True, slots=True)
class Setting:
    """The description of one field.

    Attributes:
        help: one sentence for people.
        low: with `high` the range of numbers.
        limit: the most characters of a text, or entries of a tuple.
        travels: it is sent to the other side.
        traced: it stands in traces and `--json`, which a question's own words do not.
        option: its name on a command line, if not the field's; `letter` is its short form.
        daily: often needed.
        rare: a key of the settings file and of the environment, not an option.
    """

    help: str = ""
    low: float | None = None
    high: float | None = None
    limit: int = 128
    travels: bool = True
    traced: bool = True
    option: str = ""
    letter: str = ""
    daily: bool = False
    rare: bool = False


def setting(default: Any = MISSING, help: str = "", **about: Any) -> Any:
    """Return a dataclass field that is a Setting with these attributes."""
    known = {KEY: Setting(help, **about)}
    return field(metadata=known) if default is MISSING else field(default=default, metadata=known)


own = functools.partial(setting, travels=False)
"""Return a field of a setting that is not sent to the other side."""


@dataclass(frozen=True, slots=True)
class Entry:
    """One field of a class of settings: `type` is the annotation, `within` the same with bounds."""

    name: str
    type: Any
    within: Any
    default: Any
    about: Setting

    @property
    def option(self) -> str:
        return flag(self.about.option or self.name)

    def read(self, value: Any) -> Any:
        """Return the value as the field holds it. Raises SettingError."""
        try:
            made = schema.read(self.within, value)
        except schema.MismatchError as error:
            raise SettingError(str(error), self.about.option or self.name) from None
        return value if type(value) is int else made


def flag(name: str) -> str:
    """Return a field's name as an option."""
    return "--" + name.replace("_", "-")


def entries(cls: type) -> tuple[Entry, ...]:
    """Return the fields of a class of settings, those of nested dataclasses in their place."""
    return tuple(entry for entry, _ in _leaves(cls))


def check(instance: Any) -> None:
    """Raise SettingError unless every field has its type and lies in its range."""
    for entry, value in _values(instance):
        entry.read(value)


def flat(instance: Any) -> dict[str, Any]:
    """Return all fields by name, nested dataclasses flattened, enums as their text."""
    return {
        entry.name: value.value if isinstance(value, StrEnum) else value
        for entry, value in _values(instance)
    }


def traced(instance: Any) -> dict[str, Any]:
    """Return the values that may stand in a trace or in `--json`."""
    shown = {entry.name for entry in entries(type(instance)) if entry.about.traced}
    return {name: value for name, value in flat(instance).items() if name in shown}


def picked(cls: type[T], values: Mapping[str, Any]) -> T:
    """Return the instance of those values that are fields of the class; `assemble` says more."""
    known = {entry.name for entry in entries(cls)}
    return assemble(cls, {name: each for name, each in values.items() if name in known})


def assemble(cls: type[T], values: Mapping[str, Any]) -> T:
    """Return the instance with these values and the defaults of those that are left out.

    Raises SettingError for an unknown name, a missing one, or a value out of its type or range.
    """
    known = {entry.name: entry for entry in entries(cls)}
    if unknown := values.keys() - known.keys():
        raise SettingError(f"there is no setting {min(unknown)!r} here")
    every = {name: entry.default for name, entry in known.items()}
    every |= {name: known[name].read(value) for name, value in values.items()}
    if missing := next((name for name, value in every.items() if value is MISSING), None):
        raise SettingError(f"the setting {missing!r} is missing")
    made: T = _made(cls, every)
    return made


def _made(cls: Any, values: Mapping[str, Any]) -> Any:
    return cls(
        **{
            name: _made(kind, values) if is_dataclass(kind) else values[name]
            for name, kind in _kinds(cls).items()
        }
    )


def _values(instance: Any) -> Iterator[tuple[Entry, Any]]:
    cls: type = type(instance)
    return ((entry, attrgetter(path)(instance)) for entry, path in _leaves(cls))


@functools.cache
def _leaves(cls: type) -> tuple[tuple[Entry, str], ...]:
    """Return every field with the dotted attribute names that lead to it."""
    found: list[tuple[Entry, str]] = []
    for each in fields(cls):
        kind = _kinds(cls)[each.name]
        if not is_dataclass(kind):
            about = each.metadata.get(KEY, Setting())
            within = schema.bounded(kind, about.low, about.high, about.limit)
            found.append((Entry(each.name, kind, within, each.default, about), each.name))
            continue
        for entry, path in _leaves(typing.cast(type, kind)):
            if each.default is not MISSING:
                entry = replace(entry, default=attrgetter(path)(each.default))
            found.append((entry, f"{each.name}.{path}"))
    return tuple(found)


@functools.cache
def _kinds(cls: type) -> Mapping[str, Any]:
    """Kept for each class: annotations are evaluated, which takes longer than all the rest."""
    hints = typing.get_type_hints(cls)
    return {each.name: hints[each.name] for each in fields(cls)}
