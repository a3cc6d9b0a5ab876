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

from study.cli.command import note
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
_READ = (devices.VISIBLE, devices.HIP_VISIBLE, devices.ORDER, "ACCELERATE_USE_CPU", "PATH")
"""Variables that the answer depends on."""
BF16_SINCE = (8, 0)
"""The compute capability of the first NVIDIA GPUs that multiply in bf16."""


@dataclass(frozen=True, kw_only=True)
class Gpu:
    index: str
    """As CUDA_VISIBLE_DEVICES names it."""
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
    """The GPUs and slices of GPUs that workers here would use; those that say nothing are left out."""
    current = os.environ if environment is None else environment
    return list(_describe(tuple((name, current[name]) for name in _READ if name in current)))


@lru_cache
def _describe(variables: tuple[tuple[str, str], ...]) -> list[Gpu]:
    """Once for each environment: where torch has to be asked, that takes as long as loading it."""
    current = dict(variables)
    names = devices.find(current)
    if not names:
        return []
    listing = devices.answer(["nvidia-smi", f"--query-gpu={_QUERY}", "--format=csv,noheader,nounits"])
    if listing is None and not any(name.startswith("MIG-") for name in names):
        found = _asked(names, current)
    else:
        whole = read_listing(listing or "")
        # Of a slice (MIG) nvidia-smi says too little, and a process sees one slice at most.
        found = [gpu for name in names for gpu in chosen(whole, [name]) or _asked([name], current)]
    if len(found) < len(names):
        note(
            f"{len(names) - len(found)} of {len(names)} GPUs here do not say what they are, so that their "
            "precision and memory are not known: name --mixed-precision and --memory-limit"
        )
    return found


def _asked(names: Sequence[str], current: Mapping[str, str]) -> list[Gpu]:
    """What torch says of them, in a process that sees no others and counts them from zero."""
    environment = {devices.ORDER: "PCI_BUS_ID", **os.environ, **current, **devices.only(names, current)}
    answer = devices.answer([sys.executable, "-c", _PROGRAM], environment)
    found = json.loads(answer) if answer else []
    return [
        Gpu(**{**one, "index": name, "capability": tuple(one["capability"])})
        for name, one in zip(names, found, strict=False)
    ]


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
