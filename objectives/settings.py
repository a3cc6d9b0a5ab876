"""Settings declared once: a dataclass field carries its default, its help and its bounds.

The command line, its help, spec files, dry runs and reports all read these declarations. Standard library
only.
"""

from __future__ import annotations

import math
import types
import typing
from collections.abc import Callable, Sequence
from dataclasses import MISSING, dataclass, field, fields
from functools import lru_cache
from typing import Any, ClassVar, Literal, TypeVar

from objectives.errors import UsageError

Value = TypeVar("Value")
_METADATA = "setting"
_TYPE_NAMES = {int: "a whole number", float: "a number", str: "text", bool: "true or false"}
_YES_NO = {"true": True, "yes": True, "1": True, "false": False, "no": False, "0": False}


@dataclass(frozen=True, kw_only=True)
class Setting:
    """What a field's declaration says beyond its type and default."""

    help: str
    metavar: str | None = None
    least: float | None = None
    most: float | None = None
    above: float | None = None
    """As `least`, but the bound itself is refused."""
    below: float | None = None
    everyday: bool = False
    """Shown by --help; the others by --help-all."""
    is_flag: bool = True
    """False for a field that is never set on its own."""
    default_text: str | None = None
    """The default in words, where it depends on the model or the protocol."""
    read: Callable[[str], Any] | None = None
    """From text, where the type alone does not say how: lists, sizes in bytes."""
    words: tuple[str, ...] = ()
    """Words, such as auto, that stand for a value which the launcher works out."""
    aliases: tuple[str, ...] = ()
    """Other spellings of the flag."""
    bare: str | None = None
    """What the flag means without a value, where it may be given without."""
    repeat: bool = False
    """The flag may be given several times, an item each; the field is a tuple."""
    env: str | None = None
    """The environment variable that is read where the flag is not given."""


def setting(default: Value = MISSING, *, help: str, **details: Any) -> Value:  # type: ignore[assignment]
    """A dataclass field with its declaration; see Setting for the details."""
    return field(default=default, metadata={_METADATA: Setting(help=help, **details)})  # type: ignore[call-overload, no-any-return]


@dataclass(frozen=True)
class Declared:
    """One declared field of a dataclass."""

    name: str
    kind: Any
    """The field's type without None."""
    optional: bool
    default: Any
    """MISSING where the field has none."""
    about: Setting

    @property
    def flag(self) -> str:
        return f"--{self.name.replace('_', '-')}"

    @property
    def switch(self) -> bool:
        return self.kind is bool

    @property
    def choices(self) -> tuple[Any, ...]:
        return typing.get_args(self.kind) if typing.get_origin(self.kind) is Literal else ()

    def read(self, text: str) -> Any:
        """From the command line or an environment variable."""
        if text in self.about.words:
            return text
        if self.about.read is not None:
            try:
                value = self.about.read(text)
            except ValueError as error:
                raise UsageError(f"{self.flag} {shortened(text)}: {error}") from None
        elif self.switch:
            value = _YES_NO.get(text.strip().lower())
            if value is None:
                raise self._refused(text)
        elif self.kind in (int, float):
            try:
                value = self.kind(text)
            except ValueError:
                raise self._refused(text) from None
        else:
            value = text
        self.check(value)
        return value

    def accept(self, value: Any) -> Any:
        """From a spec file, where values have types already; a text is read as on the command line."""
        if isinstance(value, str) and (self.kind is not str or self.about.read is not None):
            return self.read(value)
        if typing.get_origin(self.kind) is tuple:
            value = self._items(value) if isinstance(value, list | tuple) else self.read(str(value))
        elif self.kind is float and type(value) is int:
            value = float(value)
        elif isinstance(value, list | dict) or (self.kind in _TYPE_NAMES and type(value) is not self.kind):
            raise self._refused(value)
        self.check(value)
        return value

    def _items(self, values: Sequence[Any]) -> tuple[Any, ...]:
        made = tuple(float(v) if self.item is float and type(v) is int else v for v in values)
        if any(type(item) is not self.item for item in made):
            raise self._refused(values)
        return made

    @property
    def item(self) -> Any:
        """The type of a list's items."""
        return _without_none(typing.get_args(self.kind)[0])[0]

    def check(self, value: Any) -> None:
        """Refuse what is out of bounds, in one line."""
        if value is None:
            return
        if self.choices and value not in self.choices:
            raise self._refused(value)
        for item in value if isinstance(value, tuple) else (value,):
            if isinstance(item, int | float) and not isinstance(item, bool) and not self._within(item):
                raise self._refused(item)

    def _within(self, number: float) -> bool:
        about = self.about
        return (
            math.isfinite(number)
            and (about.least is None or number >= about.least)
            and (about.most is None or number <= about.most)
            and (about.above is None or number > about.above)
            and (about.below is None or number < about.below)
        )

    def _refused(self, value: Any) -> UsageError:
        return UsageError(f"{self.flag} {shortened(value)}: use {self.allowed()}")

    def allowed(self) -> str:
        """The values that are accepted, in words: `a number above 0, at most 1000`."""
        if self.choices:
            named = [*self.about.words, *map(str, self.choices)]
            return " or ".join([", ".join(named[:-1]), named[-1]])
        words = "".join(f"{word} or " for word in self.about.words)
        inner = self.item if typing.get_origin(self.kind) is tuple else self.kind
        bounds = {
            "at least": self.about.least,
            "above": self.about.above,
            "at most": self.about.most,
            "below": self.about.below,
        }
        told = [
            f"{word} {bound:,.0f}" if bound >= 10_000 else f"{word} {bound:g}"
            for word, bound in bounds.items()
            if bound is not None
        ]
        return words + " ".join([_TYPE_NAMES.get(inner, "a value"), ", ".join(told)]).strip()


@lru_cache
def declared(settings: type) -> tuple[Declared, ...]:
    """The declared fields of a dataclass, in order; fields without a declaration are left out."""
    hints = typing.get_type_hints(settings)
    found = []
    for item in fields(settings):
        about = item.metadata.get(_METADATA)
        if about is not None:
            kind, optional = _without_none(hints[item.name])
            found.append(Declared(item.name, kind, optional, item.default, about))
    return tuple(found)


def check(instance: Any) -> None:
    """For `__post_init__`: refuse an instance with a value out of its declared bounds."""
    kind: type = type(instance)
    for item in declared(kind):
        item.check(getattr(instance, item.name))


class Checked:
    """For dataclasses of settings: refuses values out of bounds, and two that exclude each other."""

    alone: ClassVar[tuple[tuple[str, ...], ...]] = ()
    """Names of settings of which one may be given."""

    def __post_init__(self) -> None:
        check(self)
        for names in self.alone:
            given = [name for name in names if getattr(self, name) not in (None, False)]
            if len(given) > 1:
                flags = " and ".join(f"--{name.replace('_', '-')}" for name in given)
                raise UsageError(f"{flags} exclude each other: leave one of them out")


def shortened(value: Any, most: int = 60) -> str:
    """A value at fault as an error shows it: on one line, never longer than this."""
    text = " ".join((str(value) if isinstance(value, int | float) else repr(value)).split())
    return text if len(text) <= most else f"{text[: most - 1]}…"


def _without_none(hint: Any) -> tuple[Any, bool]:
    if typing.get_origin(hint) in (typing.Union, types.UnionType):
        inner = [part for part in typing.get_args(hint) if part is not type(None)]
        if len(inner) == 1:
            return inner[0], True
    return hint, False
