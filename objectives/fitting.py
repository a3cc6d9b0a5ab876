"""How a trial is made to fit into the memory of its devices; none of it changes what is computed.

Not part of a study's spec: workers with different GPUs may fit the same trials differently. Each trial's
record says how it was run.
"""

from __future__ import annotations

from dataclasses import dataclass

from objectives import settings
from objectives.errors import UsageError
from objectives.settings import setting

AUTO = "auto"
DEVICE_PROCESS_BYTES = 700 << 20
"""What a process takes of a GPU beside its tensors: the driver's context, libraries, workspaces."""
DEVICE_WORKERS = "ELSA_DEVICE_WORKERS"
"""Environment variable of a worker: how many of them share its GPU. Unset is 1."""


@dataclass(frozen=True, kw_only=True)
class Fitting:
    micro_batch: int | None = setting(
        None,
        metavar="N|auto",
        help="examples that a process takes through the model at a time; their gradients add up to those of "
        "--batch-size. Halved and tried again where memory runs out",
        default_text="auto: the whole batch",
        least=1,
        most=1_000_000,
        words=(AUTO,),
    )
    gradient_checkpointing: bool = setting(
        False,
        help="compute the tuned layers again in the backward pass instead of keeping what they computed",
    )
    shard: bool = setting(
        False,
        help="share weights, gradients and optimiser state out over the processes of a trial (FSDP2), for "
        "models that outgrow one GPU; needs --processes-per-trial 2 or more",
    )

    def __post_init__(self) -> None:
        settings.check(self)
        if self.micro_batch == AUTO:
            object.__setattr__(self, "micro_batch", None)

    def check_shard(self, processes: int, *, compiled: bool = False, precision: str | None = None) -> None:
        """Refuse `--shard` where there is nothing to share, and with what it has not been built for."""
        if not self.shard:
            return
        if processes == 1:
            raise UsageError("--shard needs several processes: use it with --processes-per-trial 2 or more")
        if compiled:
            raise UsageError("--shard does not run with --compile: leave one of them out")
        if precision == "fp16":
            raise UsageError("--shard does not run with --mixed-precision fp16: use bf16 or no")
