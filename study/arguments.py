"""The arguments of `launch`, and nothing else, so that its help answers at once."""

from __future__ import annotations

import argparse
import os
import re

from objectives.contract import UsageError
from study.command import Parser, add_storage, new_parser

EXAMPLES = """  elsa launch --demo --task mrpc
  elsa launch --task mrpc --model roberta-base --seeds 5
  elsa launch --task sst2 --model ./my-model --data ./my-data --frozen-layers 0,6-12 --dry-run
  elsa launch --task all --model bert-base,roberta-base --protocol paper --storage postgresql://db/elsa
  elsa launch --task rte --protocol adaptive --confidence 0.95 --budget 60 --workers 4
  elsa launch --task mrpc --storage postgresql://db/elsa --slurm --slurm-workers 16"""

DEFAULT_CACHE = "~/.cache/elsa"
_UNITS = {"": 1, "k": 10**3, "m": 10**6, "g": 10**9, "t": 10**12}


def size_in_bytes(text: str) -> int:
    """`500M`, `20G`, `0`."""
    match = re.fullmatch(r"(\d+(?:\.\d+)?)\s*([kmgt]?)b?", text.strip().lower())
    if not match:
        raise UsageError(f"--cache-budget {text!r}: a number of bytes such as 500M or 20G")
    return int(float(match[1]) * _UNITS[match[2]])


def make_parser() -> Parser:
    parser = new_parser(
        "launch",
        "Plan a study of freeze depths, fine-tune every cell, and end with operating points and a report.\n"
        "Run it again to resume; run it elsewhere on the same storage to join.",
        EXAMPLES,
    )
    what = parser.add_argument_group("what is studied")
    what.add_argument("--task", help="a GLUE task, a list of them, or all")
    what.add_argument(
        "--model", action="append", help="hub name, folder, or bert-base, roberta-large, ... (bert-base)"
    )
    what.add_argument(
        "--data", metavar="FOLDER", help="train and validation files (default: GLUE from the hub)"
    )
    what.add_argument("--demo", action="store_true", help="the embedded tiny model and language, no network")
    what.add_argument("--study", metavar="NAME", help="the study's name (default: task-model-protocol)")
    add_storage(what)  # type: ignore[arg-type]
    what.add_argument("--out", metavar="DIR", default="report", help="where the report goes (report)")

    grid = parser.add_argument_group("the grid (lists and ranges: 0,6-12)")
    grid.add_argument(
        "--protocol", default="grid", help="grid, paper, low-resource or adaptive (grid)", metavar="NAME"
    )
    grid.add_argument("--frozen-layers", metavar="LIST", help="-1 embeddings only, 0 none, n ... (0,L/2-L)")
    grid.add_argument("--learning-rates", metavar="LIST", help="(1e-5-5e-5)")
    grid.add_argument("--seeds", metavar="N|LIST", help="N is the seeds 1 to N (3)")
    grid.add_argument("--train-sizes", metavar="LIST", help="low-resource: numbers of training examples")
    grid.add_argument("--threshold", type=float, help="adaptive: share of full quality (0.9)")
    grid.add_argument("--confidence", type=float, help="adaptive: stop at this probability (0.9)")
    grid.add_argument(
        "--budget",
        metavar="N",
        help="adaptive: most cells (60), or full fine-tunings' worth of work (40units); "
        "without it, 45%% of what the paper's protocol costs",
    )

    recipe = parser.add_argument_group(
        "how a trial trains",
        "in brackets what the grid takes; --dry-run shows what other protocols do",
    )
    recipe.add_argument("--epochs", type=float, help="(3)")
    recipe.add_argument("--batch-size", type=int, help="examples per step over all processes (16)")
    recipe.add_argument("--max-length", type=int, help="tokens (128)")
    recipe.add_argument("--optimizer", choices=("adam", "adamw"), help="(adamw)")
    recipe.add_argument("--weight-decay", type=float, help="(0)")
    recipe.add_argument("--warmup", type=float, metavar="EPOCHS", help="epochs of linear warm-up (0)")
    recipe.add_argument("--max-grad-norm", type=float, help="gradients are clipped to this norm (1)")
    recipe.add_argument("--evaluations-per-epoch", type=int, help="(1)")
    recipe.add_argument(
        "--score", choices=("last", "best"), help="which evaluation is the trial's score (last)"
    )
    recipe.add_argument("--mixed-precision", choices=("no", "bf16", "fp16"), help="(no)")
    recipe.add_argument(
        "--compile", action="store_true", default=None, help="torch.compile the tuned layers (GPUs)"
    )
    recipe.add_argument(
        "--prefix", choices=("cached", "live"), help="run frozen layers once, or in every step (cached)"
    )
    recipe.add_argument(
        "--no-group-by-length", action="store_true", help="draw batches without regard to length"
    )
    recipe.add_argument(
        "--selection-split", type=float, metavar="SHARE", help="train share to select rates on"
    )

    running = parser.add_argument_group(
        "running it",
        "--max-retries, --heartbeat and --grace stay with the study: who joins it leaves them out",
    )
    running.add_argument("--dry-run", action="store_true", help="print cells, steps and time; write nothing")
    running.add_argument("--workers", type=int, metavar="K", help="worker processes (one per GPU, else 1)")
    running.add_argument("--workers-per-gpu", type=int, default=1, metavar="W", help="pack small trials (1)")
    running.add_argument(
        "--processes-per-trial", type=int, default=1, metavar="P", help="processes that train one trial (1)"
    )
    running.add_argument(
        "--extend", action="store_true", help="let the study's lists of depths, rates and seeds grow to these"
    )
    running.add_argument("--join-only", action="store_true", help="run what waits; never plan")
    running.add_argument("--max-retries", type=int, help="of a trial that failed or was lost (2)")
    running.add_argument("--retry-failed", action="store_true", help="begin again the cells given up earlier")
    running.add_argument(
        "--accept-failed", action="store_true", help="exit with 0 although cells ended without a result"
    )
    running.add_argument("--heartbeat", type=float, metavar="SECONDS", help="of a worker (15)")
    running.add_argument("--grace", type=float, metavar="SECONDS", help="silence of the lost (60)")
    running.add_argument(
        "--cache-dir",
        default=os.environ.get("ELSA_CACHE", DEFAULT_CACHE),
        help=f"tokens and prefix states ($ELSA_CACHE, else {DEFAULT_CACHE})",
    )
    running.add_argument(
        "--cache-budget", type=size_in_bytes, metavar="SIZE", help="(a quarter of the free disk)"
    )
    running.add_argument("--joined", action="store_true", help=argparse.SUPPRESS)
    running.add_argument("--worker-name", help=argparse.SUPPRESS)
    running.add_argument("--rank", type=int, help=argparse.SUPPRESS)

    slurm = parser.add_argument_group("on a Slurm cluster")
    slurm.add_argument("--slurm", action="store_true", help="plan here, run the workers as a Slurm job array")
    slurm.add_argument(
        "--slurm-workers", type=int, default=1, metavar="N", help="jobs, each with a worker (1)"
    )
    slurm.add_argument("--slurm-partition", metavar="NAME")
    slurm.add_argument("--slurm-time", metavar="TIME", help="of one job; it is requeued after it (24:00:00)")
    slurm.add_argument(
        "--slurm-gpus", type=int, metavar="G", help="GPUs of each worker (one per process); 0 is the CPU"
    )
    slurm.add_argument(
        "--slurm-cpus", type=int, metavar="C", help="CPU cores of each worker (4 per process or GPU)"
    )
    slurm.add_argument(
        "--slurm-option", action="append", default=[], metavar="KEY=VALUE", help="any other option of sbatch"
    )
    slurm.add_argument("--wait", action="store_true", help="stay until all cells are done, then report")

    recorded = parser.add_argument_group("answering from a trial table instead of training")
    recorded.add_argument(
        "--recorded", metavar="TABLE.csv", help="answer its cells, for tests and simulation"
    )
    recorded.add_argument("--recorded-delay", type=float, default=0.0, metavar="SECONDS", help="per cell (0)")
    recorded.add_argument("--recorded-failure-rate", type=float, default=0.0, metavar="P", help="(0)")
    return parser
