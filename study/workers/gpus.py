"""What the GPUs of a machine are: name, memory, driver, and the precision that suits them.

Asked of nvidia-smi, or of torch in a process of its own, so that no memory of a GPU is taken for asking.
"""

from __future__ import annotations

import csv
import json
import os
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache

from study.workers import devices

_QUERY = "index,uuid,name,memory.total,compute_cap,driver_version"
_PROGRAM = """
import json, torch
found = []
for index in range(torch.cuda.device_count()):
    about = torch.cuda.get_device_properties(index)
    found.append({"index": str(index), "uuid": str(getattr(about, "uuid", "")), "name": about.name,
                  "memory_bytes": about.total_memory, "capability": [about.major, about.minor],
                  "driver": torch.version.hip or torch.version.cuda or "", "rocm": bool(torch.version.hip)})
print(json.dumps(found))
"""
_READ = (devices.VISIBLE, "ACCELERATE_USE_CPU", "PATH")
"""Variables that the answer depends on."""
BF16_SINCE = (8, 0)
"""The compute capability of the first NVIDIA GPUs that multiply in bf16."""


@dataclass(frozen=True, kw_only=True)
class Gpu:
    index: str
    uuid: str = ""
    name: str
    memory_bytes: int
    capability: tuple[int, int]
    """NVIDIA's compute capability; of ROCm, AMD's."""
    driver: str = ""
    rocm: bool = False

    @property
    def precision(self) -> str:
        """What `--mixed-precision auto` is on it: fp16, which overflows, is nobody's default."""
        return "bf16" if self.rocm or self.capability >= BF16_SINCE else "no"

    def __str__(self) -> str:
        return f"{self.name}, {self.memory_bytes / 2**30:.0f} GiB"


def describe(environment: Mapping[str, str] | None = None) -> list[Gpu]:
    """The GPUs that workers here would use; slices of GPUs are left out, whose size nobody says."""
    current = os.environ if environment is None else environment
    return list(_describe(tuple((name, current[name]) for name in _READ if name in current)))


@lru_cache
def _describe(variables: tuple[tuple[str, str], ...]) -> list[Gpu]:
    """Once for each environment: where there is no nvidia-smi, asking takes as long as loading torch."""
    names = devices.find(dict(variables))
    if not names:
        return []
    answer = devices.answer(["nvidia-smi", f"--query-gpu={_QUERY}", "--format=csv,noheader,nounits"])
    if answer is not None:
        return chosen(read_listing(answer), names)
    # Here they are counted from zero among those that are visible.
    answer = devices.answer([sys.executable, "-c", _PROGRAM])
    found = json.loads(answer) if answer else []
    return [Gpu(**{**one, "capability": tuple(one["capability"])}) for one in found]


def read_listing(text: str) -> list[Gpu]:
    """Of `nvidia-smi --query-gpu`, a GPU a line; what it does not know it calls [N/A]."""
    found = []
    for row in csv.reader(text.splitlines(), skipinitialspace=True):
        index, uuid, name, mebibytes, capability, driver = (cell.strip() for cell in row)
        major, _, minor = capability.partition(".")
        if mebibytes.isdigit() and major.isdigit() and minor.isdigit():
            found.append(
                Gpu(
                    index=index,
                    uuid=uuid,
                    name=name,
                    memory_bytes=int(mebibytes) << 20,
                    capability=(int(major), int(minor)),
                    driver=driver,
                )
            )
    return found


def chosen(found: Sequence[Gpu], names: Sequence[str]) -> list[Gpu]:
    """Those that CUDA_VISIBLE_DEVICES names, by index or by the beginning of an id, in its order."""
    return [gpu for name in names for gpu in found if name == gpu.index or gpu.uuid.startswith(name)]


def common_precision(found: Sequence[Gpu]) -> str:
    """That suits all of them; `no` where there is none."""
    return "bf16" if {gpu.precision for gpu in found} == {"bf16"} else "no"
