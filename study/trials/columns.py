"""A trial table's columns as arrays, with what the analysis must know of each row.

It marks rows (identical, usable, of a search, contradicted); it drops none.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

import numpy as np

from study.trials.trial_table import ORIGIN

if TYPE_CHECKING:
    import pandas as pd
    from numpy.typing import NDArray

SEARCH_SUFFIX = "-search"
"""Rows of such a protocol chose a learning rate; scores come from other rows of that rate, if any."""
DIVERGED = re.compile(r"diverg|\bnan\b|\binf|not finite|non-finite", re.IGNORECASE)
"""In the reason of a failure: the run went astray, rather than its machine."""


class Columns:
    """The table's columns as arrays, with identical rows marked."""

    def __init__(self, table: pd.DataFrame):
        import pandas as pd

        self.table = table
        size = table["train_size"].astype("Float64").fillna(-1).to_numpy(dtype=float)
        keys = pd.DataFrame({name: table[name].to_numpy() for name in ("model", "task")} | {"size": size})
        keys["metric"] = _filled_metric(table)
        self.keys = keys
        # Two studies of the same task may differ in recipe or protocol: their runs are never pooled.
        keys["study"] = _text(table, "study").to_numpy()
        self.group = keys.groupby([*keys.columns], sort=False).ngroup().to_numpy()
        self.protocol = _text(table, "protocol").to_numpy()
        self.depth = table["frozen_layers"].to_numpy(dtype=np.int64)
        self.depth_order = np.where(self.depth == -1, 0.5, self.depth.astype(float))
        self.rate = rounded_rate(table["learning_rate"].to_numpy(dtype=float))
        self.seed = table["seed"].to_numpy(dtype=np.int64)
        self.score = table["score"].to_numpy(dtype=float)
        self.state = table["state"].to_numpy(dtype=str)
        self.layers = table["total_layers"].to_numpy(dtype=np.int64)
        self.search = _text(table, "protocol").str.endswith(SEARCH_SUFFIX).to_numpy()
        self.selection = _floats(table, "selection_score")
        self.error = _floats(table, "score_error")
        self.chance = _floats(table, "chance")
        self.demo = _text(table, "demo").str.lower().isin(("true", "1", "1.0")).to_numpy()
        self.says_diverged = _text(table, "reason").str.contains(DIVERGED).to_numpy()
        self.contradicted = self._contradicted()
        self.identical = self._identical()
        self.complete = (self.state == "COMPLETE") & ~self.identical
        self.usable = self.complete & np.isfinite(self.score)

    def _identical(self) -> NDArray[np.bool_]:
        """Rows that repeat the run of an earlier row, as a study's export does beside the study itself.

        Rows alike in every column are one. So are complete runs of one study with the same cell, seed and
        score, whatever their trial number and other columns say: the same seed trains the same model. Not
        where seeds contradict themselves, though: there two trials may score alike and still be two runs,
        as two failures of one cell are. These are one only with the same trial number. A trial that
        was still going when it was exported, and is final elsewhere, is not another one either.
        """
        alike = self.table.drop(columns=[ORIGIN], errors="ignore").duplicated().to_numpy()
        trial = _text(self.table, "trial").str.removesuffix(".0").to_numpy()
        numbered = trial != ""
        by_seed = (self.state == "COMPLETE") & ~self.contradicted
        runs = self._cells().assign(
            search=self.search,
            state=self.state,
            score=np.round(self.score, 12),
            trial=np.where(by_seed, "", trial),
        )
        again = (by_seed | numbered) & runs.duplicated().to_numpy()
        final = (self.state == "COMPLETE") | (self.state == "FAIL")
        place = self._cells().assign(trial=trial)
        of_trial = place.groupby([*place.columns], sort=False).ngroup().to_numpy()
        return alike | again | (numbered & ~final & np.isin(of_trial, of_trial[final]))

    def _cells(self) -> pd.DataFrame:
        import pandas as pd

        names = ("group", "layers", "depth", "rate", "seed")
        return pd.DataFrame({name: getattr(self, name) for name in names})

    def _contradicted(self) -> NDArray[np.bool_]:
        """Rows of studies in which the same cell and seed was run twice with different scores."""
        scored = (self.state == "COMPLETE") & np.isfinite(self.score)
        runs = self._cells()[["group", "depth", "rate", "seed"]].assign(score=np.round(self.score, 9))[scored]
        scores = runs.groupby(["group", "depth", "rate", "seed"], sort=False)["score"]
        twice = (scores.transform("min") != scores.transform("max")).to_numpy()
        study = _text(self.table, "study")
        # A named study is one wherever it was read from; tables that name none are each their own.
        source = study.where(study != "", "\n" + _text(self.table, ORIGIN)).to_numpy(dtype=object)
        return np.isin(source, np.unique(source[scored][twice]))


def rounded_rate(rates: NDArray[np.float64]) -> NDArray[np.float64]:
    """One value per rate however it was written: 3.0000000000000004e-05 is 3e-05."""
    values, inverse = np.unique(rates, return_inverse=True)
    return np.array([float(f"{value:.6g}") for value in values])[inverse]


def _filled_metric(table: pd.DataFrame) -> NDArray[Any]:
    """A trial that failed before it measured anything belongs to its task's metric."""
    metric = table["metric"].to_numpy(dtype=object)
    empty = metric == ""
    if empty.any():
        named = table[~empty].drop_duplicates(["model", "task"]).set_index(["model", "task"])["metric"]
        for i in np.flatnonzero(empty):
            metric[i] = named.get((table["model"].iloc[i], table["task"].iloc[i]), "")
    return metric


def _text(table: pd.DataFrame, name: str) -> pd.Series[str]:
    import pandas as pd

    if name not in table.columns:
        return pd.Series("", index=table.index)
    column = table[name]
    return column.astype(object).where(column.notna(), "").astype(str)


def _floats(table: pd.DataFrame, name: str) -> NDArray[np.float64]:
    import pandas as pd

    if name not in table.columns:
        return np.full(len(table), np.nan)
    return pd.to_numeric(table[name], errors="coerce").to_numpy(dtype=float)
