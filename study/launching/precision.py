"""`--mixed-precision auto`: resolved once, when a study is planned, and fixed in its spec from then on."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from objectives.contract import UsageError
from objectives.recipe import AUTO, Recipe
from study.cli.command import note
from study.workers import gpus

if TYPE_CHECKING:
    from study.launching.arguments import LaunchRequest
    from study.workers.gpus import Gpu

_FIELD = "mixed_precision"


def chosen(recipe: Mapping[str, Any]) -> bool:
    """Whether a person named a precision, and not auto."""
    return recipe.get(_FIELD, AUTO) != AUTO


def resolve_precision(
    request: LaunchRequest, usual: Mapping[str, Any], found: Sequence[Gpu] | None = None
) -> str:
    """The precision that was named, else the protocol's, else what the GPUs of this machine all do well.

    A machine that only plans does not know the others' GPUs: there `auto` is refused, and nothing said is
    float32.
    """
    asked = request.recipe.get(_FIELD)
    if asked is None and _FIELD in usual:
        return str(usual[_FIELD])
    if chosen(request.recipe):
        return str(asked)
    elsewhere = request.slurm.slurm and request.slurm.slurm_gpus != 0
    here = [] if elsewhere else gpus.describe() if found is None else found
    if here or not (elsewhere or request.working.workers == 0):
        return gpus.common_precision(here)
    if asked == AUTO:
        raise UsageError(
            "--mixed-precision auto: this machine does not know the GPUs that will train; name bf16 "
            "(NVIDIA since Ampere, AMD), fp16 or no"
        )
    if elsewhere:
        note("the study trains in float32; for GPUs with bf16 say --mixed-precision bf16, which is faster")
    return Recipe.mixed_precision
