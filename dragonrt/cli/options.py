"""Options made of the fields of frozen settings, so that a field is written once."""

import types
import typing
from collections.abc import Callable, Mapping, Sequence
from dataclasses import MISSING, field, fields, make_dataclass
from enum import StrEnum
from typing import Annotated, Any, TypeVar

from cyclopts import Group, Parameter
from cyclopts.validators import Number

from dragonrt.settings import Entry, assemble, entries

T = TypeVar("T")

DAILY = "Options"
"""The panel of what a person needs daily: the short help has no other."""

NETWORK = "Network"
LINK = "Emulated link"


def option(
    text: str,
    *names: str,
    kind: str | None = None,
    panel: str = DAILY,
    default: str | None = None,
    low: int | None = None,
    no: bool = False,
) -> Parameter:
    """An option; given again, the last one counts.

    `kind` names its value, of at least `low`; `default` is shown; `no` gives it a --no-… beside it.
    """
    return Parameter(
        name=names or None,
        help=text,
        metavar=kind,
        group=group(panel),
        allow_repeating=True,
        negative=None if no else (),
        validator=None if low is None else Number(gte=low),
        show_default=False if default is None else lambda _: default,
    )


def group(panel: str) -> Group:
    """The panel of that title; they stand in the order in which they are first named."""
    if panel not in _GROUPS:
        _GROUPS[panel] = Group(panel, sort_key=len(_GROUPS))
    return _GROUPS[panel]


_GROUPS = {DAILY: Group(DAILY, sort_key=0)}


def derived(
    panels: Mapping[type, str],
    shared: str = "",
    *,
    only: Sequence[str] = (),
    without: Sequence[str] = (),
) -> Callable[[type[T]], type[T]]:
    """Gives a class an option for each field of these classes of settings.

    `only` these fields, or all `without` those. Each class's options stand in its panel, those of
    several in `shared`. An option that nobody sets is None whatever the field's default is: `given`
    has the others.
    """
    found: dict[str, dict[type, Entry]] = {}
    for cls in panels:
        for entry in entries(cls):
            left_out = entry.name in without or (only and entry.name not in only)
            if entry.about.help and entry.about.traced and not left_out:
                found.setdefault(entry.name, {})[cls] = entry

    def decorate(cls: type[T]) -> type[T]:
        options = []
        for name, by_class in found.items():
            panel = shared if len(by_class) > 1 else panels[next(iter(by_class))]
            options.append((name, _annotation(by_class, panel), field(default=None)))
        made = make_dataclass(cls.__name__, options, bases=(cls,), frozen=True, kw_only=True)
        made.__module__, made.__doc__ = cls.__module__, cls.__doc__
        return typing.cast(type[T], Parameter(name="*")(made))

    return decorate


def given(options: Any) -> dict[str, Any]:
    """The values that were set, by the fields' names; none of None."""
    if options is None:
        return {}
    values = {each.name: getattr(options, each.name) for each in fields(options)}
    return {name: value for name, value in values.items() if value is not None}


def settings(cls: type[T], options: Any, **fixed: Any) -> T:
    """Return the settings of one of the classes that the options are derived from.

    Raises SettingError for what does not fit.
    """
    known = {entry.name for entry in entries(cls)}
    return assemble(cls, fixed | {n: each for n, each in given(options).items() if n in known})


def _annotation(found: Mapping[type, Entry], panel: str) -> Any:
    entry = next(iter(found.values()))
    names = [entry.option, *([f"-{entry.about.letter}"] if entry.about.letter else [])]
    kind = _kind(entry.type)
    text, default = _help(found)
    panel = DAILY if entry.about.daily else panel
    parameter = option(text, *names, panel=panel, default=default, no=kind is bool)
    return Annotated[kind | None, parameter]


def _kind(annotation: Any) -> Any:
    """What is parsed; which texts and numbers are right is the settings' own business."""
    origin, inner = typing.get_origin(annotation), typing.get_args(annotation)
    if origin in (typing.Union, types.UnionType):
        return _kind(next(each for each in inner if each is not type(None)))
    if origin is typing.Literal or (origin is None and issubclass(annotation, StrEnum)):
        return str
    return annotation


def _help(found: Mapping[type, Entry]) -> tuple[str, str | None]:
    """What the field is for, and its default; where modes differ, a line for each with its own."""
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
    """What people are told of the default; a help text with "Default" says it itself."""
    value = entry.default
    told = value is None or value is MISSING or "Default" in entry.about.help
    return None if told or isinstance(value, bool | tuple) else f"{value}"
