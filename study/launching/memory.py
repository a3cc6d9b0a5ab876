"""The memory that a study's depths need, told before anything is planned, and refused where it cannot fit."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import TYPE_CHECKING

from objectives.contract import UsageError
from objectives.depths import depth_name, freeze_order, ranges
from objectives.fitting import Fitting
from objectives.training.micro_batches import MicroBatches
from study.workers import gpus
from study.workers.jobs import find_model, stored_spec
from study.workers.packing import Need

if TYPE_CHECKING:
    from objectives.pretrained.footprint import Fit, Footprint, Shapes
    from storage.studies import StoredStudy
    from study.launching.arguments import LaunchRequest
    from study.launching.request import StudyRequest
    from study.workers.options import Places, Working


@dataclass(frozen=True, kw_only=True)
class Memory:
    """What a process may hold where the study will run, and how trials are made to fit."""

    limit_bytes: int | None
    """None is without a limit."""
    limit_name: str
    host: bool
    """Whether trials run on a CPU."""
    processes: int
    fitting: Fitting

    @classmethod
    def of(cls, request: LaunchRequest) -> Memory:
        found = [] if request.slurm.slurm else gpus.describe()
        asked = request.launching.memory_limit
        host = not found and not (request.slurm.slurm and request.slurm.slurm_gpus != 0)
        limit, name = asked, "--memory-limit"
        if asked is None and found and request.working.workers != 0:
            smallest = min(found, key=lambda gpu: gpu.memory_bytes)
            share = request.working.workers_per_gpu or 1
            limit, name = (
                smallest.memory_bytes // share,
                f"{smallest.name} / {share}" if share > 1 else smallest.name,
            )
        return cls(
            limit_bytes=limit,
            limit_name=name,
            host=host,
            processes=request.working.processes_per_trial,
            fitting=request.places.fitting,
        )

    def fit(self, request: StudyRequest) -> Fit:
        from objectives.pretrained.footprint import Fit

        recipe = request.spec.recipe
        batches = MicroBatches.of(recipe.batch_size, self.processes, self.fitting.micro_batch)
        return Fit(
            micro_batch=batches.whole,
            cached=recipe.prefix == "cached",
            checkpointing=self.fitting.gradient_checkpointing,
            trained_rows=request.words,
            shards=self.processes if self.fitting.shard else 1,
        )

    def needed(self, request: StudyRequest, fit: Fit) -> Mapping[int, Footprint]:
        """By depth, least frozen first."""
        spec, longest = request.spec, request.longest
        assert longest is not None
        found = _shapes(
            spec.model_path,
            spec.described_task().outputs,
            longest,
            spec.recipe.mixed_precision,
            self.host,
        )
        return {depth: found.footprint(depth, fit) for depth in sorted(spec.every_depth, key=freeze_order)}

    def need(self, study: StoredStudy, request: StudyRequest) -> Need:
        """For `--workers-per-gpu auto`."""

        def largest() -> int | None:
            if request.longest is None:
                return None
            return max(one.total for one in self.needed(request, self.fit(request)).values())

        return Need(
            study=study,
            depths=request.spec.every_depth,
            micro_batch=self.fit(request).micro_batch,
            estimate=largest,
        )

    def lines(self, request: StudyRequest) -> list[str]:
        """For people: what each depth needs."""
        from objectives.pretrained.footprint import TOLERANCE

        fit = self.fit(request)
        where = "on a CPU" if self.host else "on a GPU"
        checkpointed = ", gradient checkpointing" if fit.checkpointing else ""
        sharded = f", sharded over {fit.shards} processes" if fit.shards > 1 else ""
        # Sharded trials were found further off.
        within = "" if sharded else f" to within {TOLERANCE:.0%}"
        lines = [
            f"memory of a process {where} with a micro-batch of {fit.micro_batch} of {request.longest} "
            f"tokens{checkpointed}{sharded}, estimated{within}:"
        ]
        for depth, one in self.needed(request, fit).items():
            lines.append(f"  frozen_layers {depth_name(depth)}: {_gb(one.total)} = {one}")
        return lines

    def check(self, request: StudyRequest) -> None:
        """Refuse a depth that does not fit. A micro-batch that nobody chose is halved until it does."""
        if self.limit_bytes is None or request.longest is None:
            return
        fit = self.fit(request)
        if self.fitting.micro_batch is None:
            fit = replace(fit, micro_batch=1)
        needed = self.needed(request, fit)
        over = [depth for depth, one in needed.items() if one.total > self.limit_bytes]
        if not over:
            return
        worst = needed[over[0]]
        raise UsageError(
            f"{request.name}: --frozen-layers {depth_name(over[0])} needs {_gb(worst.total)} with a "
            f"micro-batch of {fit.micro_batch} ({worst}), and {self.limit_name} has {_gb(self.limit_bytes)}: "
            f"{self._advice(request, fit, over[0])}"
        )

    def _advice(self, request: StudyRequest, fit: Fit, depth: int) -> str:
        """The ways that help, each by itself."""
        limit = self.limit_bytes or 0

        def fits(**changes: object) -> bool:
            return self.needed(request, replace(fit, **changes))[depth].total <= limit  # type: ignore[arg-type]

        ways = []
        smaller = fit.micro_batch // 2
        while smaller and not fits(micro_batch=smaller):
            smaller //= 2
        if smaller:
            ways.append(f"use --micro-batch {smaller}")
        if not fit.checkpointing and fits(checkpointing=True):
            ways.append("use --gradient-checkpointing")
        elif not fit.checkpointing and fits(checkpointing=True, micro_batch=1):
            ways.append("use --gradient-checkpointing with --micro-batch 1")
        if fit.shards == 1 and self.processes > 1 and fits(shards=self.processes):
            ways.append("use --shard")
        if fit.shards > 1 and fit.cached and fits(cached=False):
            ways.append("use --prefix live")
        ways += self._deeper(request, fit)
        return ", or ".join(ways)

    def _deeper(self, request: StudyRequest, fit: Fit) -> list[str]:
        total = request.spec.total_layers
        every = replace(request, spec=replace(request.spec, frozen_layers=tuple(range(total + 1)), extra=()))
        needed = self.needed(every, fit)
        least = next((depth for depth, one in needed.items() if one.total <= (self.limit_bytes or 0)), None)
        if least is None:
            return ["use a device with more memory or a smaller model"]
        return [f"freeze at least {least} layers (--frozen-layers {ranges(range(least, total + 1))})"]


def stored_needs(studies: Sequence[StoredStudy], working: Working, places: Places) -> list[Need]:
    """Of studies whose data were not looked at here: every example is taken to be as long as it may be."""
    from study.launching.request import StudyRequest

    memory = Memory(
        limit_bytes=None,
        limit_name="",
        host=False,
        processes=working.processes_per_trial,
        fitting=places.fitting,
    )
    needs = []
    for study in studies:
        spec, longest = stored_spec(study), None
        if not spec.recorded:
            spec, longest = replace(spec, model_path=find_model(spec, places)), spec.recipe.max_length
        needs.append(memory.need(study, StudyRequest(study.name, spec, longest=longest)))
    return needs


@lru_cache
def _shapes(model_path: str, labels: int, tokens: int, precision: str, host: bool) -> Shapes:
    from objectives.pretrained import footprint
    from objectives.pretrained.models import load_config

    return footprint.shapes(load_config(model_path), labels, tokens=tokens, precision=precision, host=host)


def _gb(size: int) -> str:
    from objectives.pretrained.footprint import gigabytes

    return gigabytes(size)
