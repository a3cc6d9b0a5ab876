"""Saves the run of one trial now and then, and goes on from what an earlier attempt at its cell saved.

All processes of a trial save and restore together; the first one writes the file and decides what is read.
"""

from __future__ import annotations

import json
import time
from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING, Any

from accelerate.utils import broadcast_object_list, gather_object

from objectives.capabilities import capabilities
from objectives.contract import TrialFailed
from objectives.training import state_file
from objectives.training.loop import CHECK_STEPS
from objectives.training.state_file import Unreadable

if TYPE_CHECKING:
    from pathlib import Path

    from accelerate import Accelerator

    from objectives.contract import Attempt, Cell, Report
    from objectives.training.checkpoints import Checkpoints
    from objectives.training.loop import Run

FORMAT = "1"


@dataclass
class Saving:
    checkpoints: Checkpoints
    accelerator: Accelerator
    cell: Cell
    attempt: Attempt
    report: Report
    resumed_step: int | None = None
    """Where this attempt began; None where it began at the start."""
    resumed_seconds: float | None = None
    """The training and evaluation that it did not have to do again."""
    _due: float = field(default=0.0, init=False)
    _warned: bool = field(default=False, init=False)

    def begin(self, run: Run) -> None:
        """Restore the run from the checkpoint that came furthest, if there is one."""
        state = self._shared_state()
        if state is not None:
            run.restore(state["run"] | state["processes"][self.accelerator.process_index])
            progress = run.progress
            self.resumed_step = progress.step
            self.resumed_seconds = progress.train_seconds + progress.evaluation_seconds
            if self.accelerator.is_main_process:
                self.checkpoints.say(
                    f"{self.cell}: goes on from step {progress.step:,} of {run.schedule.total_steps:,}, "
                    f"{self.resumed_seconds:,.0f} s of work saved by a checkpoint"
                )
            for point in progress.curve:
                self.report(point)
        self._wait()

    def _shared_state(self) -> dict[str, Any] | None:
        """The same for all processes; None where there is nothing to go on from."""
        path, state = self._chosen() if self.accelerator.is_main_process else (None, None)
        path = self._agreed(path)
        try:
            return state if path is None or state is not None else state_file.read(path)
        except Unreadable as error:
            raise TrialFailed(f"the checkpoint {path} cannot be read: {error}") from None

    def after_step(self, run: Run) -> None:
        """Save the run where it is time; between two steps, and not after the last one."""
        step = run.progress.step
        if step < run.schedule.total_steps and self._is_time(run):
            self._save(run)
            self._wait()

    def _wait(self) -> None:
        self._due = time.monotonic() + self.checkpoints.every_seconds

    def _is_time(self, run: Run) -> bool:
        due = time.monotonic() >= self._due
        if self.accelerator.num_processes == 1:
            return due
        # All must agree, and agreeing waits for the device: only where the loop waits for it anyway.
        step = run.progress.step
        looked = step % CHECK_STEPS == 0 or step in run.schedule.evaluated()
        return looked and bool(self._agreed(due))

    def _agreed(self, value: Any) -> Any:
        """The first process's value, in all of them."""
        return value if self.accelerator.num_processes == 1 else broadcast_object_list([value])[0]

    def _about(self) -> dict[str, str]:
        return {
            "format": FORMAT,
            "identity": self.checkpoints.identity,
            "cell": json.dumps(asdict(self.cell)),
            "device": capabilities(self.accelerator.device).kind,
            "processes": str(self.accelerator.num_processes),
        }

    def _chosen(self) -> tuple[Path | None, dict[str, Any] | None]:
        """The newest one of this very training that can be read; it says why others are passed over."""
        wanted = self._about()
        for path in self.checkpoints.found(self.cell):
            try:
                about = state_file.read_about(path)
                differs = [
                    f"{key} {about.get(key)}, here {wanted[key]}"
                    for key in wanted
                    if about.get(key) != wanted[key]
                ]
                if not differs:
                    return path, state_file.read(path)
                self.checkpoints.say(f"{path} is of another training ({differs[0]}) and is not used")
            except Unreadable as error:
                self.checkpoints.say(f"{path} cannot be read ({error}) and is not used")
        return None, None

    def _save(self, run: Run) -> None:
        state, own = run.state()
        parts = [own] if self.accelerator.num_processes == 1 else gather_object([own])
        if not self.accelerator.is_main_process:
            return
        if not self.attempt.mine():
            # Somebody else has the cell, or the database is away: the next time may tell.
            return
        path = self.checkpoints.path(self.cell, self.attempt.token, run.progress.step)
        before = self.checkpoints.written(self.cell, self.attempt.token)
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            state_file.write(path, {"run": state, "processes": parts}, self._about())
            for old in before:
                old.unlink(missing_ok=True)
        except OSError as error:
            if not self._warned:
                self.checkpoints.say(f"{path.parent} cannot be written ({error}): the trial goes on without")
            self._warned = True
