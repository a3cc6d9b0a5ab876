"""The `simulate` command: replay a protocol against recorded trial tables, with no training."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from objectives.contract import UsageError
from study.command import new_parser, run

if TYPE_CHECKING:
    from study.protocols.units import Prefix
    from study.recording import Recording
    from study.replay import Replay

EXAMPLES = """  elsa simulate trials.csv --protocol adaptive
  elsa simulate trials.csv --protocol adaptive --workers 8 --repeats 200 --prefix live --json out.json
  elsa simulate trials.csv --protocol paper --threshold 0.95"""
PROTOCOLS = ("adaptive", "grid", "paper")


@dataclass(frozen=True, kw_only=True)
class Pair:
    """One model and task: the exhaustive answer beside the protocol's."""

    recording: Recording
    replays: list[Replay]
    exhaustive_units: float

    @property
    def answers(self) -> dict[int | None, float]:
        """Shares of the repeats by tuned layers, the most frequent first."""
        counts = Counter(_tuned(self.recording, replay.frozen_layers) for replay in self.replays)
        return {answer: count / len(self.replays) for answer, count in counts.most_common()}

    @property
    def exact(self) -> float:
        """Share of the repeats with the very answer of the exhaustive protocol."""
        hits = [replay.frozen_layers == self.recording.answer for replay in self.replays]
        return sum(hits) / len(hits)

    @property
    def agreement(self) -> float:
        """Share of the repeats with an answer that the exhaustive protocol's own 90 % set holds."""
        right = {self.recording.answer, *self.recording.answer_set}
        return sum(replay.frozen_layers in right for replay in self.replays) / len(self.replays)

    @property
    def compute(self) -> float:
        return self.mean("units") / self.exhaustive_units

    def mean(self, name: str) -> float:
        return float(sum(getattr(replay, name) for replay in self.replays) / len(self.replays))


def main(argv: Sequence[str] | None = None) -> int:
    parser = new_parser("simulate", __doc__ or "", EXAMPLES)
    parser.add_argument("table", nargs="+", metavar="TABLE.csv", help="trial tables to replay")
    parser.add_argument("--protocol", default="adaptive", help="adaptive, grid or paper (adaptive)")
    parser.add_argument("--workers", type=int, default=1, metavar="K", help="cells that run at once (1)")
    parser.add_argument(
        "--repeats", type=int, default=50, metavar="R", help="resampled studies per pair (50)"
    )
    parser.add_argument("--prefix", default="cached", choices=("cached", "live"), help="(cached)")
    parser.add_argument("--threshold", type=float, default=0.9, help="share of the full quality (0.9)")
    parser.add_argument("--confidence", type=float, default=0.9, help="where adaptive stops (0.9)")
    parser.add_argument("--seed", type=int, default=0, help="of the resampling (0)")
    parser.add_argument("--json", metavar="OUT", help="write the figures there")
    arguments = parser.parse_args(argv)
    _check(arguments)

    from study.trial_table import load

    pairs = simulate(
        load(arguments.table),
        protocol=arguments.protocol,
        workers=arguments.workers,
        repeats=arguments.repeats,
        prefix=arguments.prefix,
        threshold=arguments.threshold,
        confidence=arguments.confidence,
        seed=arguments.seed,
    )
    print(_text(pairs, arguments))
    if arguments.json:
        Path(arguments.json).write_text(json.dumps(to_json(pairs), indent=2) + "\n")
    return 0


def simulate(
    table: Any,
    *,
    protocol: str = "adaptive",
    workers: int = 1,
    repeats: int = 50,
    prefix: Prefix = "cached",
    threshold: float = 0.9,
    confidence: float = 0.9,
    seed: int = 0,
) -> list[Pair]:
    """Every model and task of a trial table, replayed `repeats` times."""
    from study.recording import recordings
    from study.replay import replay

    pairs = []
    for recording in recordings(table, threshold):
        spec = recording.spec(protocol, threshold=threshold, confidence=confidence, prefix=prefix)
        replays = [replay(recording, spec, repeat=i, workers=workers, seed=seed) for i in range(repeats)]
        units = recording.exhaustive_units(prefix, spec.recipe.epochs)
        pairs.append(Pair(recording=recording, replays=replays, exhaustive_units=units))
    return pairs


def to_json(pairs: Sequence[Pair]) -> dict[str, Any]:
    return {
        "pairs": [_pair_json(pair) for pair in pairs],
        "agreement": _mean([pair.agreement for pair in pairs]),
        "exact": _mean([pair.exact for pair in pairs]),
        "compute": _mean([pair.compute for pair in pairs]),
        "idle": _mean([pair.mean("idle") for pair in pairs]),
    }


def _pair_json(pair: Pair) -> dict[str, Any]:
    recording = pair.recording
    return {
        "model": recording.model,
        "task": recording.task,
        "train_size": recording.train_size,
        "exhaustive_tuned_layers": _tuned(recording, recording.answer),
        "exhaustive_set": sorted(recording.total_layers - max(n, 0) for n in recording.answer_set),
        "answers": {str(tuned): share for tuned, share in pair.answers.items()},
        "agreement": pair.agreement,
        "exact": pair.exact,
        "compute": pair.compute,
        "cells": pair.mean("cells"),
        "idle": pair.mean("idle"),
        "substituted_cells": pair.mean("substituted"),
    }


def _tuned(recording: Recording, frozen_layers: int | None) -> int | None:
    return None if frozen_layers is None else recording.total_layers - max(frozen_layers, 0)


def _mean(values: Sequence[float]) -> float:
    return sum(values) / len(values)


def _check(arguments: Any) -> None:
    if arguments.protocol not in PROTOCOLS:
        raise UsageError(f"--protocol {arguments.protocol!r} cannot be replayed: use {', '.join(PROTOCOLS)}")
    for name in ("workers", "repeats"):
        if getattr(arguments, name) < 1:
            raise UsageError(f"--{name} {getattr(arguments, name)}: at least 1")
    for name in ("threshold", "confidence"):
        if not 0 < getattr(arguments, name) <= 1:
            raise UsageError(f"--{name} {getattr(arguments, name):g} is no share: use 0.9 for 90 %")


def _text(pairs: Sequence[Pair], arguments: Any) -> str:
    """A table for people: tuned layers, exhaustive and found."""
    from study.recording import SET_SHARE

    figures = to_json(pairs)
    head = ("model", "task", "exhaustive", "agree", "exact", "cells", "compute", "idle")
    lines = ["{:<16}{:<10}{:>10}  {:>6} {:>6} {:>6} {:>8} {:>6}  answers".format(*head)]
    for pair, row in zip(pairs, figures["pairs"], strict=True):
        answers = " ".join(f"{tuned}:{share:.0%}" for tuned, share in row["answers"].items())
        task = pair.recording.task + (f"/{row['train_size']}" if row["train_size"] else "")
        lines.append(
            f"{row['model']:<16}{task:<10}{row['exhaustive_tuned_layers']!s:>10}  {row['agreement']:>6.1%} "
            f"{row['exact']:>6.1%} {row['cells']:>6.1f} {row['compute']:>8.1%} {row['idle']:>6.1%}  {answers}"
        )
    lines.append(
        f"{arguments.protocol}, {len(pairs)} pairs x {arguments.repeats} repeats, prefix {arguments.prefix}, "
        f"{arguments.workers} worker{'s' * (arguments.workers > 1)}: agreement {figures['agreement']:.1%} "
        f"(worst {min(pair.agreement for pair in pairs):.1%}) with the exhaustive answer's own "
        f"{SET_SHARE:.0%} set, {figures['exact']:.1%} with the very answer "
        f"(worst {min(pair.exact for pair in pairs):.1%}); compute {figures['compute']:.1%} of the "
        f"exhaustive protocol (worst {max(pair.compute for pair in pairs):.1%}), in tuned layers"
    )
    return "\n".join(lines)


if __name__ == "__main__":
    run(main)
