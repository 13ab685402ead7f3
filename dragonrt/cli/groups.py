"""Options in groups: a dataclass declares them once, every command that takes it has them all."""

import inspect
from collections.abc import Callable
from dataclasses import fields, is_dataclass
from functools import wraps
from typing import Any, get_type_hints

import typer


def option(
    text: str, *names: str, kind: str | None = None, panel: str | None = None, **bounds: float
) -> Any:
    """An option that the environment variable DRAGONRT_<NAME> sets too.

    `kind` is the placeholder of its value in the help, `bounds` are `min` and `max` of a number,
    both included.
    """
    long = next(name for name in names if name.startswith("--"))
    variable = "DRAGONRT_" + long.split("/")[0].removeprefix("--").replace("-", "_").upper()
    return typer.Option(
        *names,
        help=text,
        metavar=kind,
        envvar=variable,
        show_envvar=False,
        rich_help_panel=panel,
        **bounds,  # type: ignore[arg-type]
    )


def grouped(command: Callable[..., None]) -> Callable[..., None]:
    """`command` with one parameter for each field of each of its dataclass parameters.

    Typer reads options from a signature; the dataclasses are made from the values it found.
    """
    hints = get_type_hints(command, include_extras=True)
    parameters = inspect.signature(command).parameters
    groups = {name: hints[name] for name in parameters if is_dataclass(hints[name])}
    flat: list[inspect.Parameter] = []
    for name, parameter in parameters.items():
        if name in groups:
            flat += _parameters(groups[name])
        else:
            keyword = inspect.Parameter.KEYWORD_ONLY
            flat.append(parameter.replace(kind=keyword, annotation=hints[name]))

    @wraps(command)
    def run(**values: Any) -> None:
        made = {
            name: group(**{field.name: values.pop(field.name) for field in fields(group)})
            for name, group in groups.items()
        }
        command(**made, **values)

    run.__signature__ = inspect.Signature(flat)  # type: ignore[attr-defined]
    run.__annotations__ = {parameter.name: parameter.annotation for parameter in flat}
    return run


def _parameters(group: Any) -> list[inspect.Parameter]:
    hints = get_type_hints(group, include_extras=True)
    return [
        inspect.Parameter(
            field.name,
            inspect.Parameter.KEYWORD_ONLY,
            default=field.default,
            annotation=hints[field.name],
        )
        for field in fields(group)
    ]
