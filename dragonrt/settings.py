"""Fields of frozen dataclasses that are written once: options, wire, files and traces derive them.

A field made by `setting` knows what it is for and what it may be. `check` holds an instance to it,
`flat` lists the values by name, nested dataclasses included, `assemble` makes an instance of them.
"""

import functools
import types
import typing
from collections.abc import Iterator, Mapping
from dataclasses import MISSING, Field, dataclass, field, fields, is_dataclass, replace
from enum import StrEnum
from operator import attrgetter
from pathlib import Path
from typing import Any, Literal, TypeVar, get_args, get_origin

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
    """What is known of one field.

    Attributes:
        help: one sentence for people.
        low: with `high` the range of numbers.
        limit: the most bytes of a text, or entries of a tuple.
        travels: it is sent to the other side.
        traced: it stands in traces and `--json`, which a question's own words do not.
        option: its name on a command line, if not the field's; `letter` is its short form.
        daily: often needed.
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


def setting(default: Any = MISSING, help: str = "", **about: Any) -> Any:
    """Return a dataclass field that is a Setting with these attributes."""
    known = {KEY: Setting(help, **about)}
    return field(metadata=known) if default is MISSING else field(default=default, metadata=known)


own = functools.partial(setting, travels=False)
"""Return a field of a setting that is not sent to the other side."""


@dataclass(frozen=True, slots=True)
class Entry:
    """One field of a class of settings: `type` is the annotation, evaluated."""

    name: str
    type: Any
    default: Any
    about: Setting

    @property
    def option(self) -> str:
        """What it is called on a command line."""
        return flag(self.about.option or self.name)


def flag(name: str) -> str:
    """Return a field's name as an option."""
    return "--" + name.replace("_", "-")


def entries(cls: type) -> tuple[Entry, ...]:
    """Return the fields of a class of settings, those of nested dataclasses in their place."""
    return tuple(entry for entry, _ in _leaves(cls))


def check(instance: Any) -> None:
    """Raise SettingError unless every field has its type and lies in its range."""
    for entry, value in _values(instance):
        _check(entry, value)


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


def assemble(cls: type[T], values: Mapping[str, Any]) -> T:
    """Return the instance with these values and the defaults of those that are left out.

    Raises SettingError for an unknown name, a missing one, or a value out of its type or range.
    """
    unknown = values.keys() - {entry.name for entry in entries(cls)}
    if unknown:
        raise SettingError(f"there is no setting {sorted(unknown)[0]!r} here")
    return cls(**_arguments(cls, values))


def _arguments(cls: type, values: Mapping[str, Any]) -> dict[str, Any]:
    arguments: dict[str, Any] = {}
    for each, kind in _typed_fields(cls):
        if is_dataclass(kind):
            inner = typing.cast(type, kind)
            nested, known = _arguments(inner, values), each.default
            if known is not MISSING:
                nested = {one.name: getattr(known, one.name) for one in fields(inner)} | nested
            arguments[each.name] = inner(**nested)
        elif each.name in values:
            value, enum = values[each.name], _enum(kind)
            _check(_entry(each, kind), value)
            arguments[each.name] = value if enum is None else enum(value)
        elif each.default is MISSING and each.default_factory is MISSING:
            raise SettingError(f"the setting {each.name!r} is missing")
    return arguments


def _values(instance: Any) -> Iterator[tuple[Entry, Any]]:
    cls: type = type(instance)
    return ((entry, attrgetter(path)(instance)) for entry, path in _leaves(cls))


@functools.cache
def _leaves(cls: type) -> tuple[tuple[Entry, str], ...]:
    """Return every field with the dotted attribute names that lead to it."""
    found: list[tuple[Entry, str]] = []
    for each, kind in _typed_fields(cls):
        if not is_dataclass(kind):
            found.append((_entry(each, kind), each.name))
            continue
        for entry, path in _leaves(typing.cast(type, kind)):
            if each.default is not MISSING:
                entry = replace(entry, default=attrgetter(path)(each.default))
            found.append((entry, f"{each.name}.{path}"))
    return tuple(found)


@functools.cache
def _typed_fields(cls: type) -> tuple[tuple[Field[Any], Any], ...]:
    """Kept for each class: annotations are evaluated, which takes longer than all the rest."""
    hints = typing.get_type_hints(cls)
    return tuple((each, hints[each.name]) for each in fields(cls))


def _entry(each: Field[Any], kind: Any) -> Entry:
    return Entry(each.name, kind, each.default, each.metadata.get(KEY, Setting()))


def _enum(kind: Any) -> type[StrEnum] | None:
    return kind if isinstance(kind, type) and issubclass(kind, StrEnum) else None


def _check(entry: Entry, value: Any) -> None:
    must = _mismatch(entry.type, entry.about, value)
    if must is not None:
        shown = repr(value)
        shown = shown if len(shown) <= 40 else shown[:37] + "..."
        raise SettingError(f"must be {must}, not {shown}", entry.about.option or entry.name)


def _mismatch(kind: Any, about: Setting, value: Any) -> str | None:
    """What the value must be, where it is not."""
    origin = get_origin(kind)
    if origin in (typing.Union, types.UnionType):
        options = [each for each in get_args(kind) if each is not type(None)]
        return None if value is None else _mismatch(options[0], about, value)
    if origin is Literal:
        names = get_args(kind)
        return None if value in names else "one of " + ", ".join(map(str, names))
    if enum := _enum(kind):
        names = tuple(each.value for each in enum)
        return None if value in names else "one of " + ", ".join(names)
    if origin is tuple:
        return _tuple_mismatch(get_args(kind), about, value)
    if kind is bool:
        return None if type(value) is bool else "true or false"
    if kind is Path:
        return None if isinstance(value, Path) else "a path"
    if kind is str:
        return _text_mismatch(about, value)
    low = float("-inf") if about.low is None else about.low
    high = float("inf") if about.high is None else about.high
    right = type(value) is int or (kind is not int and isinstance(value, float))
    if right and low <= value <= high:
        return None
    number = "an integer" if kind is int else "a number"
    if about.high is None:
        return f"{number} of at least {low:g}" if about.low is not None else number
    low_text, high_text = (str(n) if isinstance(n, int) else f"{n:g}" for n in (low, high))
    return f"{number} from {low_text} to {high_text}"


def _text_mismatch(about: Setting, value: Any) -> str | None:
    try:
        right = type(value) is str and len(value.encode()) <= about.limit
    except UnicodeEncodeError:
        right = False
    return None if right else f"text of at most {about.limit} bytes"


def _tuple_mismatch(kinds: tuple[Any, ...], about: Setting, value: Any) -> str | None:
    if type(value) is not tuple or len(value) > about.limit:
        return f"a tuple of at most {about.limit} entries"
    if kinds[-1] is Ellipsis:
        kinds = (kinds[0],) * len(value)
    if len(value) != len(kinds):
        return f"a tuple of {len(kinds)} entries"
    inner = Setting(low=about.low, high=about.high, limit=LONGEST_TEXT)
    wrong = (_mismatch(kind, inner, each) for kind, each in zip(kinds, value, strict=True))
    must = next((each for each in wrong if each is not None), None)
    return None if must is None else f"a tuple that holds {must}"


LONGEST_TEXT = 64 * 1024
"""Bytes of a text inside a tuple."""
