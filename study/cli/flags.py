"""Declared settings as flags: added to a parser, read back, and written out again for another process."""

from __future__ import annotations

import argparse
import os
import shlex
from collections.abc import Collection, Mapping, Sequence
from dataclasses import MISSING
from typing import Any, TypeVar

from objectives.contract import UsageError
from objectives.errors import did_you_mean
from objectives.settings import Declared, declared

T = TypeVar("T")


def add_settings(
    parser: argparse.ArgumentParser,
    title: str,
    *groups: type,
    description: str | None = None,
    full: bool = True,
    only: Collection[str] | None = None,
    default_texts: Mapping[str, str] | None = None,
) -> None:
    """A flag for every declared field of `groups`; without `full` help shows the everyday ones only.

    `only` are the names of those that a command has, where it does not have them all; `default_texts` are
    defaults in words that the declaration does not know.
    """
    section = parser.add_argument_group(title, description)
    found = [item for group in groups for item in declared(group) if item.about.is_flag]
    for item in (item for item in found if only is None or item.name in only):
        default = (default_texts or {}).get(item.name, item.about.default_text)
        shown = _help(item, default) if full or item.about.everyday else argparse.SUPPRESS
        _add(section, item, shown)


def _add(section: Any, item: Declared, shown: str) -> None:
    spellings = [item.flag, *item.about.aliases]
    if item.switch:
        off = f"--no-{item.flag.removeprefix('--')}"
        named = (spellings, [off]) if item.default is not True else ([off], spellings)
        for words, text in zip(named, (shown, argparse.SUPPRESS), strict=True):
            section.add_argument(
                *words, dest=item.name, action="store_const", const=str(off not in words), help=text
            )
        return
    metavar = item.about.metavar or _metavar(item)
    action = "append" if item.about.repeat else "store"
    bare: dict[str, Any] = {} if item.about.bare is None else {"nargs": "?", "const": item.about.bare}
    section.add_argument(*spellings, dest=item.name, metavar=metavar, action=action, help=shown, **bare)


def _metavar(item: Declared) -> str:
    if item.choices:
        return "|".join(map(str, item.choices))
    return {int: "N", float: "X"}.get(item.kind, item.name.rpartition("_")[2].upper())


def _help(item: Declared, text: str | None) -> str:
    if text is None and item.default not in (MISSING, None, (), "") and not item.switch:
        text = f"{item.default:g}" if isinstance(item.default, float) else str(item.default)
    if item.about.env:
        text = f"${item.about.env}" + (f", else {text}" if text else "")
    help = f"do not {item.about.help}" if item.switch and item.default is True else item.about.help
    return (help + (f" (default: {text})" if text else "")).replace("%", "%%")


def given(
    group: type, arguments: argparse.Namespace, file: Mapping[str, Any] | None = None
) -> dict[str, Any]:
    """The settings of `group` that were given, as values.

    The command line comes first, then the values of a spec file, then environment variables.
    """
    found: dict[str, Any] = {}
    for item in declared(group):
        text = getattr(arguments, item.name, None)
        if text is not None:
            found[item.name] = _value(item, text)
        elif file and item.name in file:
            found[item.name] = file[item.name]
        elif item.about.env and os.environ.get(item.about.env):
            found[item.name] = item.read(os.environ[item.about.env])
    return found


def made(group: type[T], arguments: argparse.Namespace) -> T:
    """The group's settings as they were given, with the defaults of the others."""
    return group(**given(group, arguments))


def _value(item: Declared, text: str | list[str]) -> Any:
    if isinstance(text, list):
        return tuple(part for one in text for part in (item.read(one) if item.about.read else (one,)))
    return item.read(text)


def to_arguments(instance: Any) -> list[str]:
    """The flags that make the same instance again; defaults are left out."""
    words: list[str] = []
    kind: type = type(instance)
    for item in declared(kind):
        value = getattr(instance, item.name)
        if not item.about.is_flag or value == item.default or value is None:
            continue
        if item.switch:
            words.append(item.flag if value else f"--no-{item.flag.removeprefix('--')}")
        elif item.about.repeat:
            words += [f"{item.flag}={one}" for one in value]
        else:
            words.append(f"{item.flag}={as_text(value)}")
    return words


def as_text(value: Any) -> str:
    """A value as its flag takes it; a single number of a list keeps its comma, so that it stays a list."""
    if isinstance(value, tuple | list):
        return ",".join(map(as_text, value)) + ("," if len(value) == 1 else "")
    return repr(value) if isinstance(value, float) else str(value)


def command_line(words: Sequence[str], width: int = 90) -> str:
    """A command as a shell takes it, over several lines where it is long."""
    lines = [""]
    for word in map(quoted, words):
        if lines[-1] and len(lines[-1]) + len(word) > width:
            lines.append("  ")
        lines[-1] += word if not lines[-1].strip() else f" {word}"
    return " \\\n".join(lines)


def quoted(word: str) -> str:
    """As a shell takes it, on one line: control characters as bash writes them."""
    if word.isprintable():
        return shlex.quote(word)
    known = {"\\": "\\\\", "'": "\\'", "\n": "\\n", "\t": "\\t", "\r": "\\r"}
    return "$'" + "".join(known.get(c) or (c if c.isprintable() else _bytes(c)) for c in word) + "'"


def _bytes(character: str) -> str:
    return "".join(f"\\x{byte:02x}" for byte in character.encode(errors="surrogateescape"))


def from_file(values: Mapping[str, Any], *groups: type) -> dict[str, Any]:
    """Typed values of a spec file, checked against the declarations of `groups`, by name."""
    items = [item for group in groups for item in declared(group) if item.about.is_flag]
    known = {_key(spelling): item for item in items for spelling in (item.flag, *item.about.aliases)}
    known |= {item.name: item for item in items}
    found: dict[str, Any] = {}
    for name, value in values.items():
        key = name.replace("-", "_")
        if key not in known:
            raise UsageError(f"unknown setting {name!r}: {did_you_mean(key, sorted(known))}")
        item = known[key]
        if item.name in found:
            raise UsageError(f"{item.name} is set twice, the second time as {name}: leave one of them out")
        given = tuple(value) if item.about.repeat and isinstance(value, list) else item.accept(value)
        found[item.name] = given
    return found


def _key(flag: str) -> str:
    return flag.removeprefix("--").replace("-", "_")
