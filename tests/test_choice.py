"""Which run of a study is exported."""

from __future__ import annotations

import pytest
import stored

from objectives.contract import TrialRecord
from storage.database import Database
from study.models.choice import Wanted, choose
from study.protocols.plan import plan_study
from study.trials.sources import read_studies


@pytest.mark.parametrize("best", [False, True])
def test_the_seeds_of_a_rate_search_are_not_exported(sqlite_url: str, best: bool) -> None:
    """They are not in the scores, and the best of them is the luckiest."""
    spec = stored.make_spec(
        protocol="paper",
        frozen_layers=(0, 3),
        learning_rates=(1e-4,),
        seeds=(1, 2, 3),
        protocol_settings=(("search_seeds", (4, 5, 6)),),
    )
    database = Database.open(sqlite_url, create=True)
    study = stored.create(database, spec=spec)
    for _ in range(2):
        while (claim := study.claim("w")) is not None:
            claim.finish(TrialRecord(metric="f1", score=0.7 + 0.01 * claim.cell.seed))
        plan_study(study, spec)
    chosen = choose(read_studies([study]), spec, study.trials(), Wanted(frozen_layers=0, best=best))
    assert (chosen.cell.seed, chosen.runs) == (3 if best else 2, 3)
    assert "3 seeds" in chosen.why
    asked = choose(read_studies([study]), spec, study.trials(), Wanted(frozen_layers=0, seed=5))
    assert asked.cell.seed == 5
    database.close()
