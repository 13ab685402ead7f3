"""Settings as typed dataclass fields; options, messages, files and traces derive from each field.

A field's annotation has its bounds in a `Meta` of msgspec. Errors describe the valid values by the
`Meta`'s `description`, else by the type. No bool is a number. No range has NaN or infinities.

In a frozen dataclass, a field made by `setting` has a help text, too. `check` validates an
instance, `flat` lists its values by name, and `assemble` makes an instance from such values.
"""

import functools
import sys
import types
import typing
from collections.abc import Iterator, Mapping
from dataclasses import MISSING, dataclass, field, fields, is_dataclass, replace
from enum import StrEnum
from operator import attrgetter
from pathlib import Path
from typing import Annotated, Any, Final, Literal, TypeAlias, TypeVar, get_args, get_origin

from msgspec import Meta, ValidationError, convert

from dragonrt.errors import DragonError

T = TypeVar("T")

KEY = "setting"
LARGEST: Final = 2**64 - 1
"""The largest integer, as in msgpack; msgspec's bounds end at 63 bits."""
FINITE: Final = sys.float_info.max
ENCODABLE: Final = r"\A[^\ud800-\udfff]*\Z"
"""The pattern of texts that UTF-8 can encode."""
BUILTIN: Final = (bytes,)
"""For msgspec: bytes are never a text in base64."""

U64: TypeAlias = Annotated[int, Meta(ge=0, description=f"an integer from 0 to {LARGEST}")]
Positive: TypeAlias = Annotated[int, Meta(ge=1)]
Port: TypeAlias = Annotated[int, Meta(ge=0, le=65535)]
Share: TypeAlias = Annotated[float, Meta(ge=0, le=1)]
Text: TypeAlias = Annotated[str, Meta(max_length=128, pattern=ENCODABLE)]
PathText: TypeAlias = Annotated[str, Meta(max_length=4096, pattern=ENCODABLE)]
"""A text that may name a file."""
LongText: TypeAlias = Annotated[str, Meta(max_length=64 * 1024, pattern=ENCODABLE)]


class SettingError(DragonError):
    """An invalid value of the setting `name`; `problem` says why it is invalid."""

    def __init__(self, problem: str, name: str = "") -> None:
        super().__init__(f"{name} {problem}" if name else problem)
        self.problem, self.name = problem, name


@dataclass(frozen=True, slots=True)
class Setting:
    """What options and traces need to know of one field of settings, besides its type.

    Attributes:
        help: one sentence for people.
        travels: whether the value is sent to the other side.
        traced: whether it is written to traces and `--json`; a question's words are not.
        option: the option's name, if not the field's; `letter` is its short form.
        daily: whether the short help has the option.
        rare: whether it is a key of the settings file and the environment, not an option.
    """

    help: str = ""
    travels: bool = True
    traced: bool = True
    option: str = ""
    letter: str = ""
    daily: bool = False
    rare: bool = False


def setting(default: Any, help: str = "", **about: Any) -> Any:
    """Return a dataclass field with a Setting of `help` and, in `about`, its other attributes."""
    return field(default=default, metadata={KEY: Setting(help, **about)})


own = functools.partial(setting, travels=False)
"""Return a field of a setting that is not sent to the other side."""


@dataclass(frozen=True, slots=True)
class Entry:
    """A field of a settings class: `type` is its plain type, `within` its type with bounds."""

    name: str
    type: Any
    within: Any
    default: Any
    about: Setting

    @property
    def option(self) -> str:
        return flag(self.about.option or self.name)

    def read(self, value: Any) -> Any:
        """Convert and return a value for the field. Raises SettingError if it is not valid."""
        return read(self.within, value, self.about.option or self.name)


def flag(name: str) -> str:
    """Return the command-line option of a field: `max_tokens` becomes `--max-tokens`."""
    return "--" + name.replace("_", "-")


def entries(cls: type) -> tuple[Entry, ...]:
    """Return an Entry for each field of a settings class; nested dataclasses add their fields."""
    return tuple(entry for entry, _ in _leaves(cls))


def check(instance: Any) -> None:
    """Raise SettingError unless every field of a settings instance has its type and range."""
    for entry, value in _values(instance):
        entry.read(value)


def flat(instance: Any) -> dict[str, Any]:
    """Return an instance's values by field name: nested dataclasses flattened, enums as text."""
    return {
        entry.name: value.value if isinstance(value, StrEnum) else value
        for entry, value in _values(instance)
    }


def traced(instance: Any) -> dict[str, Any]:
    """Return the fields of a settings object, by name, that traces and `--json` may contain."""
    shown = {entry.name for entry in entries(type(instance)) if entry.about.traced}
    return {name: value for name, value in flat(instance).items() if name in shown}


def assemble_known(cls: type[T], values: Mapping[str, Any]) -> T:
    """Make an instance of `cls` from those `values` that name its fields; ignore all others."""
    known = {entry.name for entry in entries(cls)}
    return assemble(cls, {name: each for name, each in values.items() if name in known})


def assemble(cls: type[T], values: Mapping[str, Any]) -> T:
    """Make an instance of `cls` from `values` by field name; other fields get their defaults.

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
    kinds = {each.name: hints(cls)[each.name] for each in fields(cls)}
    return cls(
        **{
            name: _made(kind, values) if is_dataclass(kind) else values[name]
            for name, kind in kinds.items()
        }
    )


def _values(instance: Any) -> Iterator[tuple[Entry, Any]]:
    cls: type = type(instance)
    return ((entry, attrgetter(path)(instance)) for entry, path in _leaves(cls))


@functools.cache
def _leaves(cls: type) -> tuple[tuple[Entry, str], ...]:
    """Return every field with the dotted attribute names that lead to it."""
    found: list[tuple[Entry, str]] = []
    plain = typing.get_type_hints(cls)
    for each in fields(cls):
        kind, about = plain[each.name], each.metadata.get(KEY, Setting())
        if not is_dataclass(kind):
            entry = Entry(each.name, kind, hints(cls)[each.name], each.default, about)
            found.append((entry, each.name))
            continue
        for entry, path in _leaves(typing.cast(type, kind)):
            if each.default is not MISSING:
                entry = replace(entry, default=attrgetter(path)(each.default))
            found.append((entry, f"{each.name}.{path}"))
    return tuple(found)


@functools.cache
def hints(cls: type) -> Mapping[str, Any]:
    """Return the types of a dataclass's fields by name, with their bounds; cached."""
    return typing.get_type_hints(cls, include_extras=True)


def read(kind: Any, value: Any, name: str = "") -> Any:
    """Convert `value` to the type `kind`. Raises SettingError about the field `name` if invalid."""
    try:
        made = convert(value, kind, builtin_types=BUILTIN)
    except ValidationError:
        pass
    else:
        if type(value) is not int:
            return made
        if value <= LARGEST:
            return value
    shown = repr(value)
    shown = shown if len(shown) <= 40 else shown[:37] + "..."
    raise SettingError(f"must be {must(kind)}, not {shown}", name)


def must(kind: Any) -> str:
    """Describe the values of a type for an error message, as in "an integer of at least 1"."""
    bounds = Meta()
    if get_origin(kind) is Annotated:
        kind, bounds, *_ = get_args(kind)
    if bounds.description is not None:
        return bounds.description
    origin, inner = get_origin(kind), get_args(kind)
    if isinstance(kind, type) and issubclass(kind, StrEnum):
        origin, inner = Literal, tuple(each.value for each in kind)
    if origin in (typing.Union, types.UnionType):
        return must(next(each for each in inner if each is not types.NoneType))
    if origin is Literal:
        return "one of " + ", ".join(map(str, inner))
    if origin is tuple and inner[-1] is ...:
        return f"a tuple of at most {bounds.max_length} entries, each {must(inner[0])}"
    if origin is tuple:
        return f"a tuple of {len(inner)} entries: {', '.join(map(must, inner))}"
    if kind in (int, float):
        return ("an integer" if kind is int else "a number") + _range(bounds)
    if kind is bytes:
        low, high = bounds.min_length or 0, bounds.max_length
        return f"{high} bytes" if low == high else f"{low} to {high} bytes"
    text = f"text of at most {bounds.max_length} characters"
    return {bool: "true or false", Path: "a path", str: text}.get(kind, f"a {kind.__name__}")


def _range(bounds: Meta) -> str:
    low, high = (n if n is None or isinstance(n, int) else f"{n:g}" for n in (bounds.ge, bounds.le))
    if bounds.gt is not None:
        return f" above {bounds.gt:g} and at most {high}"
    if high in (None, f"{FINITE:g}"):
        return "" if low in (None, f"{-FINITE:g}") else f" of at least {low}"
    return f" from {low} to {high}"
