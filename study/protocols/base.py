"""What a protocol is: which cells a study still wants, and all that other parts need to know about it.

A protocol reads the spec and the outcomes so far; it never opens a database and never trains. A new one is a
subclass in a file of its own, added to the list in `study/protocols/__init__.py` or announced by its package
as an entry point of the group `elsa.protocols`.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any, ClassVar

from objectives import settings
from objectives.contract import Cell, Outcome
from study.analysis.choices import Select
from study.cli import lists
from study.specs.study_spec import StudySpec

USUAL = {"frozen_layers": "0 and the upper half", "learning_rates": "1e-5-5e-5", "seeds": "3"}
"""The lists that most protocols run where none are given, as help shows them."""


@dataclass(frozen=True, kw_only=True)
class Subject:
    """What a protocol's defaults may depend on."""

    model: str
    total_layers: int
    demo: bool = False

    @property
    def upper_half(self) -> tuple[int, ...]:
        """The full model and the upper half of the depths."""
        return (0, *range((self.total_layers + 1) // 2, self.total_layers + 1))


@dataclass(frozen=True, kw_only=True)
class Defaults:
    """The grid that is run where none is given, and the recipe's fields that differ from the usual."""

    frozen_layers: tuple[int, ...]
    learning_rates: tuple[float, ...] = lists.rates(USUAL["learning_rates"])
    seeds: tuple[int, ...] = lists.seeds(USUAL["seeds"])
    train_sizes: tuple[int | None, ...] = (None,)
    recipe: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True)
class NoSettings:
    """A protocol without settings of its own."""


class Protocol(ABC):
    name: ClassVar[str]
    summary: ClassVar[str]
    """One line for --help, of 62 characters at most."""
    settings: ClassVar[type] = NoSettings
    """Its own settings: a frozen dataclass of declared fields, whose flags `launch` takes."""
    extendable: ClassVar[tuple[str, ...]] = ()
    """The lists of the spec that `launch --extend` may make longer."""
    phased: ClassVar[bool] = False
    """Whether more cells may be wanted once those of now are done."""
    adds_seeds: ClassVar[bool] = False
    """Whether the spec's seeds are the most that it may use, rather than those that it uses."""
    remark: ClassVar[str] = ""
    """What every report on its trials says of it."""
    table_caveat: ClassVar[str] = ""
    """What a report says of its trials where only their table is known, without the recipe."""

    @abstractmethod
    def defaults(self, subject: Subject) -> Defaults: ...

    @abstractmethod
    def wanted(self, spec: StudySpec, outcomes: Sequence[Outcome]) -> list[Cell]:
        """All cells that should have a trial and have no final outcome yet."""

    @abstractmethod
    def explain(self, spec: StudySpec, outcomes: Sequence[Outcome]) -> str:
        """One line on where the study is."""

    def check(self, spec: StudySpec) -> None:
        """Refuse, with a UsageError, a spec that this protocol cannot answer."""
        settings.check(self.own(spec))

    def later(self, spec: StudySpec) -> list[Cell]:
        """Cells that are certain to follow the first ones, at any learning rate where that is still open."""
        return []

    def outlook(self, spec: StudySpec) -> str:
        """What follows the first cells, in words for a dry run; empty where nothing does."""
        return ""

    def most_work(self, spec: StudySpec) -> float | None:
        """The most that will be run, in full-model trials; None where it is just the cells."""
        return None

    def thresholds(self, spec: StudySpec) -> tuple[float, ...] | None:
        """The shares of full quality that its trials were chosen for; None where any can be asked for."""
        return None

    def select(self, spec: StudySpec) -> Select | None:
        """How its search chose learning rates; None where any way can be asked for."""
        return None

    def own_settings(self, given: Mapping[str, Any], seeds: Sequence[int]) -> dict[str, Any]:
        """All of its own settings, defaults included, so that no other version changes those of a study."""
        made = self.settings(**given)
        return {name: value for name, value in vars(made).items() if value is not None}

    def own(self, spec: StudySpec) -> Any:
        """Its own settings of this study."""
        return settings_of(self.settings, spec.protocol_settings)


@lru_cache(maxsize=256)
def settings_of(kind: type, values: tuple[tuple[str, Any], ...]) -> Any:
    known = {item.name for item in settings.declared(kind)}
    return kind(**{name: value for name, value in values if name in known})
