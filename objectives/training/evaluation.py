"""What a model answers to every evaluated split, and the metrics of these answers; two separate steps."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from accelerate.utils import gather_object
from numpy.typing import NDArray

from objectives.contract import TrialFailed
from objectives.tasks import metrics
from objectives.training.splits import SELECTION, TEST, Splits

if TYPE_CHECKING:
    from accelerate import Accelerator

    from objectives.tasks.definition import Task
    from objectives.training.batches import Batch, Loader

Logits = Mapping[str, NDArray[Any]]
"""By split: examples x labels, in the order of the split's examples."""


@dataclass
class Evaluation:
    task: Task
    splits: Splits
    loader: Loader
    accelerator: Accelerator
    forward: Callable[[Any, Batch], torch.Tensor]

    def predict(self, model: Any, *names: str) -> Logits:
        """The logits of all examples, whole in every process: of these splits, or of all evaluated ones."""
        model.eval()
        found = {name: self._predict(model, name) for name in names or self.splits.evaluated()}
        for name, logits in found.items():
            if not np.isfinite(logits).all():
                raise TrialFailed(f"diverged: predictions on {name} are not finite", retry=False)
        return found

    def _predict(self, model: Any, name: str) -> NDArray[np.float32]:
        # The unwrapped model: evaluation needs no gradient exchange, and ranks may differ in batches.
        bare = self.accelerator.unwrap_model(model)
        split = self.splits[name]
        # What FSDP2 puts together in inference mode could not be trained with afterwards.
        with torch.no_grad() if self.loader.together else torch.inference_mode():
            outputs = [(batch.rows, self.forward(bare, batch)) for batch in self.loader.evaluation(split)]
        pairs = [(rows, output.cpu().numpy()) for rows, output in outputs]
        if self.accelerator.num_processes > 1:
            pairs = gather_object(pairs)
        logits = np.empty((len(split.encoded), pairs[0][1].shape[1]), dtype=np.float32)
        for rows, block in pairs:
            logits[rows] = block
        return logits

    def scores(self, outputs: Logits) -> dict[str, float]:
        """All metrics on all splits; those of the selection and the test split carry its name."""
        scores = self._of({n: v for n, v in outputs.items() if n not in (SELECTION, TEST)})
        for name in (SELECTION, TEST):
            if name in outputs:
                held = self._of({name: outputs[name]})
                scores |= {f"{name}_{metric}": value for metric, value in held.items()}
        return scores

    def _of(self, outputs: Mapping[str, NDArray[Any]]) -> dict[str, float]:
        labels = {name: self.splits[name].encoded.labels for name in outputs}
        return metrics.evaluate(self.task, outputs, labels)
