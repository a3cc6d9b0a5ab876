"""Which study a line, a row or a sentence is of, said only where a model has more than one to be confused.

Names are made of the curves' own study and protocol; nothing is read or computed here.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from typing import Protocol, TypeVar

from study.analysis.quality import Curve
from study.reporting.names import UNKNOWN, place, task_order


class OfStudy(Protocol):
    """Curves, operating points, costs, summaries, gains."""

    @property
    def model(self) -> str: ...

    @property
    def study(self) -> str | None: ...


class OfCurve(OfStudy, Protocol):
    """What belongs to one curve: its operating points, its costs."""

    @property
    def task(self) -> str: ...

    @property
    def train_size(self) -> int | None: ...

    @property
    def metric(self) -> str: ...


def curve_key(item: OfCurve) -> tuple[str | None, str, str, int | None, str]:
    """The same for everything that belongs to one curve."""
    return item.study, item.model, item.task, item.train_size, item.metric


Item = TypeVar("Item", bound=OfCurve)


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
        metrics = {(c.model, c.study, c.task, c.train_size, c.metric) for c in curves}
        self.metrics_differ = len(metrics) > len({place[:-1] for place in metrics})
        """Whether some task has scores in two metrics, so that only the metric tells its rows apart."""
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

    def ordered(self, items: Iterable[Item]) -> list[Item]:
        """By name, task, metric and train size."""
        return sorted(
            items,
            key=lambda i: (
                self.rank(i),
                task_order(i.task),
                i.metric,
                i.train_size is None,
                i.train_size or 0,
            ),
        )

    def by_metric(self, items: Iterable[Item]) -> list[tuple[str, list[Item]]]:
        """One list per name, task and metric; the name has the metric only where there are several."""
        groups: dict[tuple[str, str, str], list[Item]] = {}
        for item in self.ordered(items):
            groups.setdefault((self.name(item), item.task, item.metric), []).append(item)
        metrics = Counter((name, task) for name, task, _ in groups)
        return [
            ("_".join((name, task, *([metric] if metrics[name, task] > 1 else []))), own)
            for (name, task, metric), own in groups.items()
        ]

    def panel_label(self, curve: Curve, curves: Sequence[Curve]) -> str:
        """A curve in a panel of its own: its name where there are several, and its place."""
        several = len(self.names(curves)) > 1
        return f"{self.name(curve)} · {place(curve, curves)}" if several else place(curve, curves)

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
