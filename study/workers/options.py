"""How workers run on a machine: the settings that `work` and `launch` share."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ClassVar, Literal

from objectives import settings
from objectives.fitting import AUTO, Fitting
from objectives.paths import path_text
from objectives.settings import setting
from study.cli import lists
from study.cli.files import check_folder
from study.workers.trackers import TRACKERS, check_names

DEFAULT_CACHE = "~/.cache/elsa"


@dataclass(frozen=True, kw_only=True)
class Working:
    workers: int | None = setting(
        None,
        metavar="K",
        help="worker processes on this machine",
        default_text="one per GPU, else 1",
        least=0,
        most=4096,
        everyday=True,
    )
    workers_per_gpu: int | None = setting(
        None,
        metavar="W|auto",
        help="workers per GPU; useful for small trials",
        default_text="auto: as many as its memory holds, at most 4",
        least=1,
        most=64,
        words=(AUTO,),
    )
    processes_per_trial: int = setting(
        1, metavar="P", help="processes, each with a GPU of its own, that train one trial", least=1, most=1024
    )
    trial_timeout: float | None = setting(
        None,
        metavar="SECONDS",
        help="end a trial that runs longer than this and try it again",
        default_text="20 times what other trials of its depth took, at least an hour; 24 hours "
        "where none has finished",
        above=0,
        most=31_536_000,
    )
    join_only: bool = setting(False, help="run the trials that wait and never plan new ones")

    def __post_init__(self) -> None:
        settings.check(self)
        if self.workers_per_gpu == AUTO:
            object.__setattr__(self, "workers_per_gpu", None)


@dataclass(frozen=True, kw_only=True)
class Caching(settings.Checked):
    cache_dir: str = setting(
        DEFAULT_CACHE,
        metavar="DIR",
        help="folder for tokens, states of frozen layers and logs",
        read=path_text,
        env="ELSA_CACHE",
    )
    cache_budget: int | None = setting(
        None,
        metavar="SIZE",
        help="most disk space for states of frozen layers, such as 20G",
        default_text="a quarter of the free disk",
        read=lists.size_in_bytes,
        least=0,
    )


@dataclass(frozen=True, kw_only=True)
class Keeping:
    """What trials leave behind beside their record."""

    keep: Literal["nothing", "models"] = setting(
        "nothing",
        help="keep the tuned weights of every trial, so that `elsa export` need not train one again; a "
        "trial with nothing frozen takes the size of the model",
    )
    models_dir: str | None = setting(
        None,
        metavar="DIR",
        help="folder for the weights of --keep models",
        read=path_text,
        default_text="models in the folder of --cache-dir",
        env="ELSA_MODELS",
    )
    checkpoint_every: float | None = setting(
        None,
        metavar="MINUTES",
        help="save a running trial this often; after a crash, the next try goes on from there",
        default_text="never",
        above=0,
        most=100_000,
    )
    checkpoint_dir: str | None = setting(
        None,
        metavar="DIR",
        help="folder for checkpoints, one that all workers see",
        read=path_text,
        default_text="checkpoints in the folder of --cache-dir",
        env="ELSA_CHECKPOINTS",
    )

    track: tuple[str, ...] = setting(
        (),
        metavar="NAME,...",
        help=f"send every trial to trackers: {', '.join(TRACKERS)}",
        read=lists.names,
    )
    track_dir: str = setting(
        "tracking", metavar="DIR", help="folder for the files of trackers that write any", read=path_text
    )

    def __post_init__(self) -> None:
        settings.check(self)
        check_names(self.track)

    def track_folder(self) -> Path:
        return Path(self.track_dir).expanduser().absolute()

    def models_folder(self, caching: Caching) -> Path:
        return Path(self.models_dir or f"{caching.cache_dir}/models").expanduser().absolute()

    def checkpoint_folder(self, caching: Caching) -> Path:
        return Path(self.checkpoint_dir or f"{caching.cache_dir}/checkpoints").expanduser().absolute()


@dataclass(frozen=True, kw_only=True)
class Answering(settings.Checked):
    """How a recorded study answers its cells."""

    recorded_delay: float = setting(
        0.0, metavar="SECONDS", help="time that each recorded cell takes", least=0, most=86_400
    )
    recorded_failure_rate: float = setting(
        0.0,
        metavar="P",
        help="probability that a replayed cell fails, drawn for every attempt",
        least=0,
        below=1,
    )


@dataclass(frozen=True, kw_only=True)
class Places:
    """Where this machine keeps models, data and caches, and how trials fit into its memory."""

    models: tuple[str, ...] = ()
    data: tuple[str, ...] = ()
    caching: Caching = field(default_factory=Caching)
    keeping: Keeping = field(default_factory=Keeping)
    fitting: Fitting = field(default_factory=Fitting)
    answering: Answering = field(default_factory=Answering)

    GROUPS: ClassVar[dict[str, type]] = {
        "caching": Caching,
        "keeping": Keeping,
        "fitting": Fitting,
        "answering": Answering,
    }

    @classmethod
    def of(cls, given: Callable[[type], dict[str, Any]], **found: Any) -> Places:
        """From what was given of each group of settings."""
        return cls(**found, **{name: group(**given(group)) for name, group in cls.GROUPS.items()})

    def check(self) -> None:
        """Refuse folders that cannot be written, before anything is trained for them."""
        keeping = self.keeping
        check_folder(self.caching.cache_dir, "--cache-dir")
        if keeping.keep == "models":
            check_folder(keeping.models_folder(self.caching), "--models-dir")
        if keeping.checkpoint_every is not None:
            check_folder(keeping.checkpoint_folder(self.caching), "--checkpoint-dir")
        if keeping.track:
            check_folder(keeping.track_folder(), "--track-dir")
