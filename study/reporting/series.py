"""Which study a line, a row or a sentence is of, said only where a model has more than one to be confused.

Names are made of the curves' own study and protocol; nothing is read or computed here.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from typing import Protocol

from study.analysis.quality import Curve
from study.names import UNKNOWN


class OfStudy(Protocol):
    """Curves, operating points, costs, summaries, gains."""

    @property
    def model(self) -> str: ...

    @property
    def study(self) -> str | None: ...


class Series:
    """A model's curves under one name: the model's, with protocol or study where these tell them apart."""

    def __init__(self, curves: Iterable[Curve]):
        self._labels: dict[tuple[str, str | None], str] = {}
        self._protocols: defaultdict[str, set[str | None]] = defaultdict(set)
        self._of_study: dict[str | None, str | None] = {}
        curves = list(curves)
        for curve in curves:
            self._protocols[curve.model].add(curve.protocol)
            self._of_study[curve.study] = curve.protocol
        mistakable = _mistakable(curves)
        for curve in curves:
            key = (curve.model, curve.study)
            label = curve.study if key in mistakable else None
            if label is None and len(self._protocols[curve.model]) > 1:
                label = curve.protocol or curve.study
            self._labels[key] = label or ""
        self._ranks = {name: i for i, name in enumerate(self.names(curves))}

    @property
    def shown(self) -> bool:
        """Whether any name needs more than the model."""
        return any(self._labels.values())

    @property
    def protocols_shown(self) -> bool:
        return any(len(found) > 1 for found in self._protocols.values())

    @property
    def studies(self) -> int:
        return len(self._labels)

    def label(self, item: OfStudy) -> str:
        """What is added to the model's name; empty where the model says it all."""
        return self._labels.get((item.model, item.study), "")

    def name(self, item: OfStudy) -> str:
        label = self.label(item)
        return f"{item.model} ({label})" if label else item.model

    def rank(self, item: OfStudy) -> int:
        """The place of the item's name in the order of the curves."""
        return self._ranks[self.name(item)]

    def study_name(self, study: str | None) -> str:
        """A study as a table's cell, with the protocol that other places name it by."""
        protocol = self._of_study.get(study)
        if study is None:
            return UNKNOWN
        silent = not self.protocols_shown or protocol is None or protocol in study
        return study if silent else f"{study} ({protocol})"

    def of_protocol(self, model: str, protocol: str | None) -> str:
        """The name of all of a model's studies of one protocol."""
        several = len(self._protocols[model]) > 1
        return f"{model} ({protocol})" if several and protocol else model

    def names(self, items: Iterable[OfStudy]) -> list[str]:
        """Each name once, in the order of the items."""
        return list(dict.fromkeys(self.name(item) for item in items))


def _mistakable(curves: Iterable[Curve]) -> set[tuple[str, str | None]]:
    """Models and studies of one protocol that measured the same thing twice: only their names differ."""
    places: defaultdict[tuple[object, ...], set[str | None]] = defaultdict(set)
    for c in curves:
        places[c.model, c.task, c.train_size, c.metric, c.protocol].add(c.study)
    return {(str(place[0]), study) for place, found in places.items() if len(found) > 1 for study in found}
