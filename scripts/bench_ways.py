"""The ways of running one cell that bench_training.py compares, each in a process of its own.

Reads cells as JSON lines on stdin and answers each with its seconds, score and peak memory on stdout, so that
the ways can take turns within seconds of each other while only one of them computes.
"""

from __future__ import annotations

import json
import sys
import threading
import time
from pathlib import Path
from typing import Any

import numpy as np

WAYS = {
    "cached": "ours, prefix cached",
    "live": "ours, prefix live",
    "trainer": "Trainer at its best (dynamic padding, grouped by length, no gradient below the depth)",
    "padded": "Trainer padded to the full length",
    "authors": "the authors' way (padded; frozen parameters only left out of the optimiser)",
    "compiled": "ours, prefix cached, tuned layers compiled",
}
USUAL = tuple(name for name in WAYS if name != "compiled")
PARTS = {
    "the layers' matrix products": ("aten::mm", "aten::addmm"),
    "attention's matrix products": ("aten::bmm",),
    "activations, norms and softmax": (
        "aten::gelu",
        "aten::gelu_backward",
        "aten::native_layer_norm",
        "aten::native_layer_norm_backward",
        "aten::_softmax",
        "aten::_softmax_backward_data",
    ),
    "dropout": ("_Dropout", "_DropoutBackward"),
    "clipping and optimiser": ("aten::_foreach_norm", "aten::_foreach_mul_", "Optimizer.step#AdamW.step"),
}
"""What a profile of the training steps calls them; the last two with all that they call."""
WHOLE = ("dropout", "clipping and optimiser")


class Peak:
    """The process's largest private memory, looked at every 5 ms."""

    def __enter__(self) -> Peak:
        from objectives.machine import private_memory_bytes

        self.bytes = 0
        self._stop = threading.Event()

        def watch() -> None:
            while not self._stop.wait(0.005):
                self.bytes = max(self.bytes, private_memory_bytes())

        self._thread = threading.Thread(target=watch, daemon=True)
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self._thread.join()


class Ours:
    def __init__(self, settings: dict[str, Any], way: str):
        from objectives.contract import Recipe
        from objectives.data.task_data import load_data
        from objectives.prefix.prefix_cache import PrefixCache
        from objectives.tasks.definition import get_task
        from objectives.training.finetune import FineTuning

        self.objective = FineTuning(
            data=load_data(get_task(settings["task"]), settings["data"]),
            model_path=settings["model"],
            model_fingerprint="bench",
            recipe=Recipe(
                epochs=settings["epochs"],
                batch_size=settings["batch_size"],
                max_length=settings["max_length"],
                prefix="live" if way == "live" else "cached",
                compile=way == "compiled",
            ),
            cache=PrefixCache(Path(settings["cache"])),
        )

    def mean_length(self) -> float:
        return float(self.objective._splits["train"].encoded.lengths.mean())

    def step(self, cell: dict[str, Any], epochs: int = 2) -> dict[str, float]:
        """Seconds of one training step, the mean over the batches of whole epochs once it is warm."""
        from objectives.contract import Cell

        examples = len(self.objective._splits["train"].encoded)
        steps = epochs * -(-examples // self.objective.recipe.batch_size)
        return {"seconds": self.objective.time_steps(Cell(**cell), steps)[0]}

    def run(self, cell: dict[str, Any]) -> dict[str, float]:
        from objectives.contract import Cell

        record = self.objective(Cell(**cell), lambda point: None)
        return {
            "score": record.score,
            "train_seconds": record.train_seconds or 0.0,
            "prefix_seconds": record.prefix_seconds or 0.0,
        }

    def profile(self, cell: dict[str, Any]) -> dict[str, float]:
        """Seconds of the first epoch's steps by what they were spent on."""
        from torch.profiler import ProfilerActivity, profile

        profiler = profile(activities=[ProfilerActivity.CPU])
        evaluation = self.objective._training.evaluation
        predict = evaluation.predict
        seconds = 0.0

        def stop(model: Any) -> Any:
            nonlocal seconds
            if not seconds:
                seconds = time.perf_counter() - started
                profiler.stop()
            return predict(model)

        evaluation.predict = stop  # type: ignore[method-assign, assignment]
        profiler.start()
        started = time.perf_counter()
        try:
            self.run(cell)
        finally:
            evaluation.predict = predict  # type: ignore[method-assign, assignment]
        events = {event.key: event for event in profiler.key_averages()}
        parts = {
            part: sum(
                (events[name].cpu_time_total if part in WHOLE else events[name].self_cpu_time_total) / 1e6
                for name in names
                if name in events
            )
            for part, names in PARTS.items()
        }
        return {**parts, "copies, additions and Python": seconds - sum(parts.values())}


class WithTrainer:
    def __init__(self, settings: dict[str, Any], *, padded: bool, authors: bool):
        from transformers import AutoModelForSequenceClassification, AutoTokenizer

        from objectives.data.task_data import load_data
        from objectives.tasks.definition import get_task

        self.settings, self.padded, self.authors = settings, padded, authors
        self.task = get_task(settings["task"])
        data = load_data(self.task, settings["data"])
        self.tokenizer = AutoTokenizer.from_pretrained(settings["model"])
        self.labels = 1 if self.task.regression else len(self.task.labels)
        self.model = AutoModelForSequenceClassification.from_pretrained(
            settings["model"], num_labels=self.labels
        )
        self.weights = {name: value.clone() for name, value in self.model.state_dict().items()}
        self.train, self.validation = (
            split.map(self._tokenise, batched=True, remove_columns=list(self.task.text))
            for split in (data.train, data.validation[self.task.validation[0]])
        )

    def _tokenise(self, rows: dict[str, list[str]]) -> Any:
        texts = [rows[column] for column in self.task.text]
        padding = "max_length" if self.padded else False
        limit = self.settings["max_length"]
        return self.tokenizer(*texts, truncation=True, max_length=limit, padding=padding)

    def run(self, cell: dict[str, Any]) -> dict[str, float]:
        import torch
        from transformers import DataCollatorWithPadding, Trainer, TrainingArguments

        from objectives.pretrained.stack import find_layers
        from objectives.tasks import metrics

        self.model.load_state_dict(self.weights)
        stack = find_layers(self.model)
        stack.freeze(cell["frozen_layers"])
        tuned = [parameter for parameter in self.model.parameters() if parameter.requires_grad]
        if self.authors:
            self.model.requires_grad_(True)
        optimizer = torch.optim.AdamW(tuned, lr=cell["learning_rate"], weight_decay=0.0, fused=True)
        settings = self.settings

        def compute(prediction: Any) -> dict[str, float]:
            logits = np.asarray(prediction.predictions)
            name = self.task.validation[0]
            return metrics.evaluate(self.task, {name: logits}, {name: prediction.label_ids})

        trainer = Trainer(
            model=self.model,
            args=TrainingArguments(
                output_dir=settings["cache"],
                num_train_epochs=settings["epochs"],
                per_device_train_batch_size=settings["batch_size"],
                per_device_eval_batch_size=64,
                learning_rate=cell["learning_rate"],
                seed=cell["seed"],
                eval_strategy="epoch",
                save_strategy="no",
                logging_strategy="no",
                report_to="none",
                disable_tqdm=True,
                use_cpu=True,
                train_sampling_strategy="random" if self.padded else "group_by_length",
            ),
            train_dataset=self.train,
            eval_dataset=self.validation,
            data_collator=DataCollatorWithPadding(self.tokenizer),
            compute_metrics=compute,
            optimizers=(optimizer, None),
        )
        trainer.train()
        scores = [entry for entry in trainer.state.log_history if f"eval_{self.task.metric}" in entry]
        return {"score": scores[-1][f"eval_{self.task.metric}"]}


def serve(way: str, settings: dict[str, Any]) -> None:
    import torch
    import transformers

    from objectives import machine

    transformers.utils.logging.set_verbosity_error()
    torch.set_num_threads(settings["threads"])
    runner: Ours | WithTrainer
    if way in ("cached", "live", "compiled"):
        runner = Ours(settings, way)
    else:
        runner = WithTrainer(settings, padded=way != "trainer", authors=way == "authors")
    answers = sys.stdout
    sys.stdout = sys.stderr
    mean_length = runner.mean_length() if isinstance(runner, Ours) else 0.0
    print(json.dumps({"mean_length": mean_length}), file=answers, flush=True)
    for line in sys.stdin:
        request = json.loads(line)
        machine.give_back_memory()
        look = request.pop("look", None)
        if look:
            assert isinstance(runner, Ours)
            print(json.dumps(getattr(runner, look)(request)), file=answers, flush=True)
            continue
        with Peak() as peak:
            started = time.perf_counter()
            result = runner.run(request)
            seconds = time.perf_counter() - started
        print(json.dumps({**result, "seconds": seconds, "peak": peak.bytes}), file=answers, flush=True)


if __name__ == "__main__":
    serve(sys.argv[1], json.loads(sys.argv[2]))
