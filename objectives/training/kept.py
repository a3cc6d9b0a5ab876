"""Weights that a trial leaves behind, where they are asked for: what it tuned, in one file per trial."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from objectives.contract import Cell
from objectives.private_files import is_own

if TYPE_CHECKING:
    import torch

    from objectives.training.targets import Targets


@dataclass(frozen=True)
class KeptModels:
    """Of one study."""

    folder: Path
    identity: str
    """Of all that a cell's training depends on beside the cell."""
    say: Callable[[str], None]

    def write(
        self, cell: Cell, token: str, tuned: Mapping[str, torch.Tensor], targets: Targets, score: float
    ) -> str | None:
        """The file's path; None where it cannot be written, which is said and costs no trial."""
        from safetensors import SafetensorError
        from safetensors.torch import save_file

        path = self.folder / f"{cell.file_name()}-{token[:12]}.safetensors"
        beside = path.with_name(f".{path.name}.{os.getpid()}")
        about = {"identity": self.identity, "cell": json.dumps(asdict(cell)), "score": repr(score)}
        about |= {"mean": repr(targets.mean), "spread": repr(targets.spread)}
        try:
            self.folder.mkdir(parents=True, exist_ok=True)
            save_file(
                {name: value.detach().cpu().contiguous() for name, value in tuned.items()}, beside, about
            )
            beside.replace(path)
        except (OSError, SafetensorError) as error:
            self.say(f"the weights of {cell} were not kept: {path.parent} cannot be written ({error})")
            return None
        finally:
            beside.unlink(missing_ok=True)
        return str(path)

    def bytes(self) -> int:
        """Of all files of the study."""
        return sum(path.stat().st_size for path in self.folder.glob("*.safetensors"))


@dataclass(frozen=True)
class Kept:
    """A trial's weights, read back."""

    tuned: Mapping[str, torch.Tensor]
    mean: float
    spread: float


def read(path: str, identity: str, cell: Cell, score: float) -> Kept | str:
    """The weights of this very trial; else why they cannot be had, as the end of a sentence."""
    from safetensors import SafetensorError, safe_open

    try:
        if not is_own(Path(path)):
            return "belong to another user"
        with safe_open(path, "pt") as file:
            about = dict(file.metadata() or {})
            wanted = {"identity": identity, "cell": json.dumps(asdict(cell)), "score": repr(score)}
            if any(about.get(key) != value for key, value in wanted.items()):
                return "are of another trial"
            tuned = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
        return Kept(tuned, float(about["mean"]), float(about["spread"]))
    except FileNotFoundError:
        return "are not there"
    except (OSError, SafetensorError, KeyError, ValueError) as error:
        return f"cannot be read ({error})"
