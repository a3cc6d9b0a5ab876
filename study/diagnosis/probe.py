"""What a process finds out about its own device: tiny trials of the demo model, and how fast products are.

python -m study.diagnosis.probe '{"task": "device"}' prints one JSON object. In a process of its own, so that
neither a crash nor memory that is not given back ends or falsifies the other checks.
"""

from __future__ import annotations

import json
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

if TYPE_CHECKING:
    from objectives.data.task_data import TaskData

DEPTH, RATE, EXAMPLES = 6, 1e-3, 64
MARK = "@found "
"""Begins the line with the answer; libraries may print others."""
_LAYER = {"hidden_size": 768, "num_attention_heads": 12, "intermediate_size": 3072}
STATE_BYTES = 4 * _LAYER["hidden_size"]
"""Of a token's state of BERT-base, in float32."""
_TOKENS = (8, 128)


def about_device(precisions: Sequence[str] | None = None, product_size: int | None = None) -> dict[str, Any]:
    """A trial in each precision, cached against live, and the speed of products and of a layer."""
    import torch
    from accelerate import PartialState
    from accelerate.utils import parse_flag_from_env

    from objectives.capabilities import capabilities

    can = capabilities(PartialState(parse_flag_from_env("ACCELERATE_USE_CPU")).device)
    ways = can.precisions if precisions is None else precisions
    with tempfile.TemporaryDirectory() as folder:
        trials = {way: tried(lambda w=way: _trial(Path(folder), w)) for way in ways}  # type: ignore[misc]
        live = tried(lambda: _trial(Path(folder), "no", prefix="live"))
    size = product_size or (256 if can.is_host else 4096)
    return {
        "device": can.name,
        "memory_bytes": can.total_bytes(),
        "threads": torch.get_num_threads(),
        "trials": trials,
        "live": live,
        "products": {way: tried(lambda w=way: _products(can.device, w, size)) for way in ways},  # type: ignore[misc]
        "layer": tried(lambda: _layer(can.device)),
    }


def tried(work: Callable[[], dict[str, Any]]) -> dict[str, Any]:
    try:
        return work()
    except Exception as error:
        return {"error": f"{type(error).__name__}: {error}"[:400]}


def in_group() -> dict[str, Any]:
    """The live trial, as one of several processes."""
    with tempfile.TemporaryDirectory() as folder:
        return tried(lambda: _trial(Path(folder), "no", prefix="live"))


@cache
def _examples() -> TaskData:
    from objectives.data.task_data import DEMO, load_data
    from objectives.tasks.definition import shipped

    return load_data(next(iter(shipped().values())), DEMO)


def _trial(folder: Path, precision: Any, prefix: Literal["cached", "live"] = "cached") -> dict[str, Any]:
    from objectives.contract import Cell, Recipe
    from objectives.data.task_data import DEMO
    from objectives.demo.examples import MODEL_PATH
    from objectives.prefix.prefix_cache import PrefixCache
    from objectives.training.finetune import FineTuning

    objective = FineTuning(
        data=_examples(),
        model_path=str(MODEL_PATH),
        model_fingerprint=DEMO,
        recipe=Recipe(epochs=2, max_length=48, mixed_precision=precision, prefix=prefix, accuracy=True),
        cache=PrefixCache(folder, None, lambda text: print(text, file=sys.stderr)),
        largest_train_size=EXAMPLES,
    )
    began = time.perf_counter()
    record = objective(Cell(DEPTH, RATE, 1, EXAMPLES), lambda point: None)
    return {
        "losses": [point.train_loss for point in record.curve],
        "seconds": round(time.perf_counter() - began, 3),
        "examples_per_second": record.examples_per_second,
        "peak_memory_bytes": record.peak_memory_bytes,
        "processes": record.processes,
        "device": record.device,
    }


def _products(device: Any, precision: str, size: int) -> dict[str, Any]:
    """TFLOP/s of square products; reading one value waits for the device."""
    import torch

    from objectives.capabilities import capabilities

    capabilities(device).prepare()
    dtype = {"no": torch.float32, "bf16": torch.bfloat16, "fp16": torch.float16}[precision]
    left = torch.ones((size, size), dtype=dtype).to(device)
    seconds = _best(lambda: float((left @ left)[0, 0]))
    return {"tflops": round(2 * size**3 / seconds / 1e12, 4)}


def _layer(device: Any) -> dict[str, Any]:
    """Seconds that one layer of BERT-base takes for a token, forward only."""
    import torch
    from transformers import BertConfig, BertModel

    config = BertConfig(**_LAYER, num_hidden_layers=1, vocab_size=8)
    model = BertModel(config, add_pooling_layer=False).to(device).eval()
    inputs = torch.randn((*_TOKENS, config.hidden_size)).to(device)
    with torch.inference_mode():
        seconds = _best(lambda: float(model(inputs_embeds=inputs).last_hidden_state[0, 0, 0]))
    return {"seconds_per_token": seconds / (_TOKENS[0] * _TOKENS[1])}


def _best(work: Callable[[], float], times: int = 3) -> float:
    """After one to warm up."""
    found = []
    for _ in range(times + 1):
        began = time.perf_counter()
        work()
        found.append(time.perf_counter() - began)
    return min(found[1:])


def main(text: str) -> None:
    from objectives.data.hub import quiet_libraries

    quiet_libraries()
    asked = json.loads(text)
    kinds: dict[str, Callable[..., dict[str, Any]]] = {"device": about_device, "group": in_group}
    print(MARK + json.dumps(kinds[asked.pop("task")](**asked)), flush=True)


if __name__ == "__main__":
    main(sys.argv[1])
