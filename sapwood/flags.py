"""Command-line flags made from configuration dataclasses."""

from __future__ import annotations

import argparse
import difflib
import types
import typing
from collections.abc import Iterable
from dataclasses import Field, fields
from typing import Any, NoReturn, TypeVar

from sapwood.srt.config import check
from sapwood.srt.errors import UsageError

C = TypeVar("C")


class FlagError(UsageError):
    """A flag with a value outside its range."""


class Parser(argparse.ArgumentParser):
    """Answers a bad command line with one clear line on standard error, and exit code 2."""

    def __init__(self, **options: Any) -> None:
        options.setdefault("allow_abbrev", False)
        options.setdefault("formatter_class", _help_format)
        super().__init__(**options)

    def error(self, message: str) -> NoReturn:
        """Exits with the message, and no usage before it: that would bury it."""
        self.exit(2, f"{self.prog}: {message} (see {self.prog} --help)\n")

    def refuse_unknown(self, unknown: Iterable[str]) -> NoReturn:
        """Exits because of arguments that no flag of this command takes."""
        name = next((arg for arg in unknown if arg.startswith("-")), next(iter(unknown)))
        if not name.startswith("-"):
            self.error(f"unexpected argument {name}")
        name = name.split("=")[0]
        near = difflib.get_close_matches(name, sorted(self._option_string_actions), 1, 0.5)
        self.error(f"unknown flag {name}" + (f"; did you mean {near[0]}?" if near else ""))


def _help_format(prog: str) -> argparse.HelpFormatter:
    return argparse.HelpFormatter(prog, max_help_position=32, width=100)


def add_flags(parser: argparse.ArgumentParser, kind: Any, skip: Iterable[str] = ()) -> None:
    """Adds a flag for each field of a dataclass, in a group with the dataclass's first sentence."""
    title = (kind.__doc__ or kind.__name__).strip().splitlines()[0].rstrip(".")
    group = parser.add_argument_group(title[0].lower() + title[1:])
    hints = typing.get_type_hints(kind)
    for each in fields(kind):
        if each.name not in skip:
            _add_flag(group, each, hints[each.name])


def _add_flag(group: argparse._ArgumentGroup, each: Field[Any], hint: Any) -> None:
    name = "--" + each.name.replace("_", "-")
    shown = each.metadata.get("help", "").replace("%", "%%")
    if each.default is not None and each.default != () and hint is not bool:
        shown += f" (default: {each.default})"
    options: dict[str, Any] = {"help": shown, "dest": each.name, "default": each.default}
    kind = plain_type(hint)
    if kind is bool:
        group.add_argument(name, action="store_true", **options)
    elif typing.get_origin(kind) is tuple:
        group.add_argument(name, action="append", metavar="TEXT", **{**options, "default": None})
    elif "choices" in each.metadata:
        group.add_argument(name, choices=each.metadata["choices"], **options)
    else:
        metavar = {int: "N", float: "X"}.get(kind, each.name.rsplit("_")[-1].upper())
        group.add_argument(name, type=kind, metavar=metavar, **options)


def plain_type(hint: Any) -> Any:
    """``int`` for ``int | None``; other types as they are."""
    if typing.get_origin(hint) in (types.UnionType, typing.Union):
        return next(kind for kind in typing.get_args(hint) if kind is not types.NoneType)
    return hint


def collect(kind: type[C], given: argparse.Namespace) -> C:
    """The dataclass that the parsed flags make; ``FlagError`` for a value outside its range."""
    values: dict[str, Any] = {}
    for each in fields(kind):  # type: ignore[arg-type]  # every configuration is a dataclass
        value = getattr(given, each.name, each.default)
        values[each.name] = tuple(value) if isinstance(value, list) else value
        if value is None:
            values[each.name] = each.default
    part = kind(**values)
    try:
        check(part)
    except UsageError as error:
        raise FlagError(str(error)) from error
    return part
