"""Every command and Python snippet in the documentation is run, or is in the table of those that are not.

They run in a folder that has files, models and studies under the names that the pages use. The front page's
commands are typed into a shell, in their order; all others run in this process, and so do their workers.
"""

from __future__ import annotations

import io
import os
import re
import runpy
import shlex
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing, redirect_stdout
from pathlib import Path
from random import Random
from typing import Any, NamedTuple
from urllib.request import urlopen

import documented
import own
import pytest
from documented import ROOT
from launches import wait_until, write_table

from objectives.demo import examples as demo
from objectives.demo.language import draw_scene, tell
from objectives.tasks.definition import get_task
from storage.database import Database
from study.__main__ import dispatch
from study.launching import here


class Elsewhere(NamedTuple):
    why: str
    test: str
    """The file that tests what the command does."""


NOT_RUN = {
    "pip install": Elsewhere("downloads packages; their extras are checked", "test_readmes.py"),
    "elsa doctor": Elsewhere("takes half a minute, and is run there in full", "test_doctor.py"),
    "export ELSA_STORAGE=": Elsewhere("SQLite takes the server's place below", "test_storage_contract.py"),
    "elsa launch --task mrpc --slurm": Elsewhere("needs a cluster", "test_slurm.py"),
    "elsa launch --task mrpc --model roberta-large": Elsewhere("needs a cluster", "test_slurm.py"),
    "export CUDA_MPS": Elsewhere("needs a GPU; workers that share one are tested", "test_packing.py"),
    "mkdir -p": Elsewhere("needs a GPU; workers that share one are tested", "test_packing.py"),
    "scripts/workers_over_ssh.sh": Elsewhere("needs hosts", "test_cluster_scripts.py"),
    "bash scripts/test.sh": Elsewhere("runs this test", "test_readmes.py"),
    "pytest ": Elsewhere("names files of this suite", "test_readmes.py"),
    "python scripts/chaos.py": Elsewhere("takes minutes for each database", "test_chaos.py"),
    "python scripts/fuzz.py": Elsewhere("tries at least 400 inputs of each kind", "test_hostile.py"),
    "python scripts/bench_load.py": Elsewhere(
        "with few cells a launch ends before it can be killed; kills and interrupts are tested",
        "test_supervise.py",
    ),
    "python scripts/bench_training.py": Elsewhere(
        "runs there, with a smaller model", "test_bench_training.py"
    ),
    "python scripts/bench_analysis.py": Elsewhere("runs there, with fewer trials", "test_bench_analysis.py"),
    "python scripts/bench_cache.py --checkout": Elsewhere(
        "needs an earlier version; its other way is run here", "test_prefix.py"
    ),
}
"""What cannot run here or is run by another test, by how the command begins."""
SMALL = "--frozen-layers 0,9 --learning-rates 3e-3 --seeds 1 --epochs 1"
"""Added to every launch: 2 cells instead of 120, at a rate at which the demo's thin model learns at once.

With 64 examples it does not, but that is enough where no answer is wanted.
"""
ADDED = {
    "elsa launch --settle": "--recorded trials.csv --study settled --seeds 2",
    "elsa launch --keep models": "--task mrpc --study kept",
    "elsa launch --dry-run": "--task mrpc",
    # The search may spend 55 % of the paper's protocol: of one seed that is less than one run.
    "elsa launch --protocol adaptive": "--task mrpc --seeds 2",
    "elsa launch --task mrpc --protocol adaptive": "--seeds 2",
    "elsa launch --data reviews.csv --track": "--study tracked",
    # The most that the demo's model takes.
    "elsa launch --task sst2 --model ./mpnet-base": "--max-length 48",
    # A path that only a cluster has.
    "elsa launch --task qqp": "--checkpoint-dir checkpoints",
    # A trial in two processes, one cell: each process imports PyTorch.
    "elsa launch --task mnli": "--processes-per-trial 2 --frozen-layers 12",
    "elsa launch --task mnli --processes-per-trial 4 --shard": "--study sharded",
    # Numbers of repeats, examples and cells with which a script takes seconds instead of minutes or hours.
    "elsa simulate": "--repeats 2",
    "python scripts/bench_cache.py --train":
        "--frozen-layers 11,12 --budgets inf --workers 1 --train-examples 40 --width 32 --epochs 1",
    "python scripts/bench_storage.py":
        "--database sqlite --sizes 20 --workers 2 --trials 10 --seconds 1",
    "python scripts/bench_many.py": "--width 32 --tasks 1,3 --repeats 1",
    "python scripts/bench_answer.py":
        "--ways loop --frozen-layers 0,12 --seeds 1 --learning-rates 3e-3, --train-examples 40 --epochs 1",
    "python scripts/compare_prefixes.py": "--tasks sst2 --frozen-layers 12 --seeds 2 --train-size 32",
    "python scripts/make_demo_model.py": "--steps 2 --batch-size 4",
    "python scripts/calibrate.py --repeats": "--repeats 1 --seeds 2 --rates 1",
    "python scripts/judge_search.py --shapes": "--repeats 1 --layers 6",
}  # fmt: skip
"""Added to commands that begin so: what they leave out, and what makes them short."""
FRONT = (ROOT / "README.md").read_text()
TRY, OWN_DATA, MANY = map(documented.in_block, documented.blocks(FRONT, "bash"))
TOPICS = ("business", "entertainment", "politics", "sport", "tech")
ANIMALS = ("dog", "cat", "king", "baker", "boy")


def excused(command: str) -> bool:
    return any(command.startswith(row) for row in NOT_RUN)


RUN = [
    command
    for command in documented.commands()
    if not excused(command) and command not in [*TRY, *OWN_DATA, *MANY]
]


def test_what_is_not_run_is_documented_and_tested_elsewhere() -> None:
    for row, (_, test) in NOT_RUN.items():
        assert any(command.startswith(row) for command in documented.commands()), f"{row} is on no page"
        assert (ROOT / "tests" / test).is_file(), test
    for row in ADDED:
        assert any(command.startswith(row) for command in RUN), f"{row} is on no page"


def with_added(command: str) -> str:
    """The command with what this test adds to it; before a redirection."""
    head, *rest = re.split(r"(?= > )", command)
    added = [words for row, words in ADDED.items() if head.startswith(row)]
    if head.startswith("elsa launch"):
        whole = " ".join([head, *added])
        task = re.search(r"--task (mrpc|mnli|qqp|sst2)\b", whole)
        if task and "--demo" not in whole:
            added.insert(0, f"--data glue/{task[1]}")
        if not re.search(r"--spec|--recorded", whole):
            added.insert(0, SMALL if "reviews" in whole else f"{SMALL} --train-size 64")
    return " ".join([head, *added, *rest])


def texts(count: int, labels: Sequence[str], seed: int) -> list[own.Row]:
    """Each begins with a word that gives its label away."""
    draw = Random(seed)
    found = []
    for _ in range(count):
        number = draw.randrange(len(labels))
        text = f"the {ANIMALS[number]} is here . {tell(draw, draw_scene(draw))}"
        found.append({"text": text, "category": labels[number]})
    return found


def make_files(folder: Path) -> None:
    for name in ("bert-base", "roberta-large", "my-model", "minilm", "mpnet-base"):
        shutil.copytree(demo.MODEL_PATH, folder / name)
    (folder / "objectives").symlink_to(ROOT / "objectives")
    own.save(folder / "news.csv", texts(600, TOPICS, seed=1))
    own.save(folder / "reviews.csv", texts(160, ("bad", "good"), seed=2))
    own.save(folder / "topics.csv", texts(60, TOPICS[:3], seed=3))
    priced = [{"text": row["text"], "price": 10.5 + len(row["text"])} for row in texts(60, TOPICS, seed=4)]
    own.save(folder / "prices.csv", priced)
    for name in ("mrpc", "mnli", "qqp", "sst2"):
        task = get_task(name)
        for split in ("train", *task.splits.validation):
            rows = demo.examples(name, str(task.demo), split)[:100]
            own.save(folder / "glue" / name / f"{split}.jsonl", rows)
    for name in ("trials.csv", "LOGS"):
        write_table(folder / name, depths=13, seeds=5)


def in_this_process(
    studies: Sequence[Any], given: Any, working: Any, places: Any, storage: str, start: Any = here.run_workers
) -> int:
    """What a worker's process does, without the seconds of its start; process groups are started."""
    from study.workers.jobs import load_jobs
    from study.workers.worker import run_worker

    if working.processes_per_trial > 1:
        return int(start(studies, given, working, places, storage))
    with closing(Database.open(storage)) as database:
        jobs = load_jobs(database, [study.name for study in studies], places)
        run_worker(jobs, worker="here", on_event=lambda event: None)
    return 0


def elsa(command: str) -> str:
    """What it prints; into the file behind `>`, too."""
    head, _, target = command.partition(" > ")
    printed = io.StringIO()
    with redirect_stdout(printed):
        assert dispatch(shlex.split(head)[1:]) == 0
    if target:
        Path(target).write_text(printed.getvalue())
    return printed.getvalue()


@pytest.fixture(scope="module")
def settings(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """The environment of a person who has installed the project and is offline."""
    folder = tmp_path_factory.mktemp("bin")
    for name, words in (("elsa", "-m study"), ("python", "")):
        (folder / name).write_text(f'#!/bin/sh\nexec {sys.executable} {words} "$@"\n')
        (folder / name).chmod(0o755)
    return {
        "PATH": f"{folder}:{os.environ['PATH']}",
        "PYTHONPATH": str(ROOT),
        "HF_HUB_OFFLINE": "1",
        "OMP_NUM_THREADS": "1",
    }


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory, settings: dict[str, str]) -> Iterator[Path]:
    """The working folder, with the studies, exports and files that commands start from."""
    folder = tmp_path_factory.mktemp("documented")
    make_files(folder)
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        for name, value in settings.items():
            patch.setenv(name, value)
        patch.setenv("ELSA_CACHE", str(folder / "cache"))
        patch.setenv("ELSA_STORAGE", f"sqlite:///{folder}/studies.db")
        patch.setenv("MLFLOW_TRACKING_URI", f"sqlite:///{folder}/mlflow.db")
        patch.setattr(here, "run_workers", in_this_process)
        elsa(with_added("elsa launch --task mrpc"))
        elsa(with_added("elsa launch --demo --task mrpc"))
        for name in ("reviews", "topics", "prices"):
            elsa(f"elsa launch --data {name}.csv {SMALL} {'--seeds 3' if name == 'reviews' else ''}")
            elsa(f"elsa export {name}-bert-base-grid --frozen-layers 9 --tuned-only --out {name}-delta")
        elsa("elsa export reviews-bert-base-grid --frozen-layers 9 --out reviews")
        elsa("elsa launch --recorded trials.csv --study settled --seeds 2")
        elsa("elsa spec mrpc-demo-grid > study.toml")
        elsa("elsa task --data news.csv > news.toml")
        yield folder


@pytest.fixture
def fresh(place: Path, tmp_path: Path) -> Iterator[Path]:
    """The working folder, whose tables are put back afterwards: a documented command writes trials.csv."""
    shutil.copy(place / "trials.csv", tmp_path)
    yield place
    shutil.copy(tmp_path / "trials.csv", place)


def script(words: Sequence[str]) -> None:
    """Most scripts run in this process; those that measure processes in one of their own."""
    path = str(ROOT / words[0])
    if re.search("bench_(cache|storage|answer)", path):
        subprocess.run([sys.executable, path, *words[1:]], check=True)
        return
    import torch

    threads = torch.get_num_threads()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sys, "argv", [path, *words[1:]])
        patch.syspath_prepend(ROOT / "scripts")
        code: Any = None
        try:
            runpy.run_path(path, run_name="__main__")
        except SystemExit as ended:
            code = ended.code
    torch.set_num_threads(threads)
    assert not code, code


@pytest.mark.slow
@pytest.mark.parametrize("command", RUN)
def test_a_command_runs(command: str, fresh: Path) -> None:
    whole = with_added(command)
    program, *words = shlex.split(whole)
    if program == "elsa":
        if out := re.match("elsa export .* --out (.*)", whole):
            # Made beforehand for other commands, which may run without this one.
            shutil.rmtree(out[1], ignore_errors=True)
        elsa(whole)
    else:
        assert program == "python", f"{program} is no program that this test runs: add a row to NOT_RUN"
        script(words)


@pytest.mark.slow
def test_a_guess_is_printed_as_the_page_shows_it(place: Path) -> None:
    (block,) = documented.blocks((ROOT / "objectives/tasks/README.md").read_text(), "")
    command, *lines = block.splitlines()
    assert [line for line in lines if line not in elsa(with_added(command[2:])).splitlines()] == []


@pytest.mark.slow
def test_the_task_file_that_is_shown_is_one(place: Path, tmp_path: Path) -> None:
    (shown,) = documented.blocks((ROOT / "objectives/tasks/README.md").read_text(), "toml")
    rows = [
        {"title": "a", "body": row["text"], "category": row["category"], "split": split}
        for split in ("train", "validation", "test")
        for row in texts(40, ("business", "sport"), seed=5)
    ]
    own.save(tmp_path / "news.csv", rows)
    (tmp_path / "news.toml").write_text(shown)
    assert "news" in elsa(f"elsa launch --task {tmp_path}/news.toml {SMALL} --dry-run")


SNIPPETS = documented.blocks((ROOT / "study/models/README.md").read_text(), "python")
FILLED_IN = {
    'base="/models/bert"': 'base="my-model"',
    '{"input_ids": ..., "attention_mask": ...}': "tokens",
    "seeds=3)": "seeds=3, frozen_layers=(0, 9), learning_rates=(3e-3,), epochs=1)",
}
"""A folder that is here, tokens in place of dots, and the settings that make a study small."""


def test_what_is_filled_in_is_in_the_snippets() -> None:
    assert [words for words in FILLED_IN if words not in "".join(SNIPPETS)] == []


@pytest.mark.slow
@pytest.mark.parametrize("snippet", SNIPPETS)
def test_a_snippet_runs(snippet: str, place: Path) -> None:
    from transformers import AutoTokenizer

    for words, filled in FILLED_IN.items():
        snippet = snippet.replace(words, filled)
    tokens = AutoTokenizer.from_pretrained("bert-base")("some text", return_tensors="pt")
    names: dict[str, Any] = {"tokens": {key: tokens[key] for key in ("input_ids", "attention_mask")}}
    exec(snippet, names)
    if "classify" in names:
        assert names["classify"]("some text")[0]["label"] in ("bad", "good")
    if "models" in names:
        found = names["models"].predict(["some text", "another"])
        assert list(found) == ["reviews", "topics", "prices"]
        assert [set(answer) for answer in found["reviews"]] == [{"label", "score"}] * 2


@pytest.mark.slow
def test_a_study_is_opened_from_python(place: Path) -> None:
    from study import Study

    (line,) = re.findall(r"`(Study\.open\(.*?\))`", (ROOT / "study/models/README.md").read_text())
    opened = eval(line.replace("postgresql://...", os.environ["ELSA_STORAGE"]), {"Study": Study})
    assert len(opened.table()) == 6


def typed(command: str, folder: Path, settings: Mapping[str, str]) -> str:
    """What a command prints in a shell."""
    done = subprocess.run(
        ["bash", "-c", command], cwd=folder, env=settings, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, f"{command}\n{done.stdout[-2000:]}{done.stderr[-2000:]}"
    return done.stdout


@pytest.fixture
def shell(tmp_path: Path, settings: dict[str, str]) -> dict[str, str]:
    make_files(tmp_path)
    return {**os.environ, **settings, "ELSA_CACHE": str(tmp_path / "cache")}


@pytest.mark.slow
def test_install_and_try(tmp_path: Path, shell: dict[str, str]) -> None:
    """With one rate, two depths and seeds, on a part of the data; the answer has the lines of the page."""
    shell.pop("ELSA_STORAGE", None)
    (command,) = (command for command in TRY if not excused(command))
    words = "--frozen-layers 0,6 --learning-rates 1e-3 --seeds 2 --epochs 2 --train-size 600"
    said = typed(f"{command} {words}", tmp_path, shell)
    (shown, *_) = documented.blocks(FRONT, "")
    assert "DEMO · Fine-tune" in shown
    assert "DEMO · Fine-tune" in said
    for name in re.findall(r"^  (\S.*?)  ", shown, re.MULTILINE):
        assert re.search(rf"^  {name}  ", said, re.MULTILINE), name
    assert (tmp_path / "report" / "mrpc-demo-grid" / "report.html").is_file()


@pytest.mark.slow
def test_your_data_in_a_tuned_model_out(tmp_path: Path, shell: dict[str, str]) -> None:
    """The two studies with fewer cells; a quick look has its own seeds and depths otherwise."""
    from transformers import pipeline

    shell.pop("ELSA_STORAGE", None)
    quick, study, export = OWN_DATA
    assert "QUICK" in typed(f"{quick} {SMALL} --train-size 64", tmp_path, shell)
    typed(f"{study} {SMALL}", tmp_path, shell)
    typed(export, tmp_path, shell)
    assert '`pipeline("text-classification", "model")`' in FRONT
    (answer,) = pipeline("text-classification", str(tmp_path / "model"))("the king is here .")
    assert answer["label"] in TOPICS


@pytest.mark.slow
def test_many_workers(tmp_path: Path, shell: dict[str, str]) -> None:
    """On SQLite, with one worker of the launch and one that joins, where the page has 8 and a GPU each."""
    shell["ELSA_STORAGE"] = f"sqlite:///{tmp_path}/studies.db"
    launch, work, watch, dashboard = (command for command in MANY if not excused(command))
    words = f"{launch} --data glue/mrpc {SMALL} --seeds 2 --train-size 64 --workers 1"
    launcher = subprocess.Popen(
        ["bash", "-c", f"exec {words}"], cwd=tmp_path, env=shell, stdout=subprocess.PIPE, text=True
    )
    wait_until((tmp_path / "cache" / "logs").exists, "workers are started")
    typed(work, tmp_path, shell)
    said, _ = launcher.communicate(timeout=600)
    assert launcher.returncode == 0, said
    with closing(Database.open(shell["ELSA_STORAGE"])) as database:
        trials = database.study("mrpc-bert-base-grid").trials()
    assert [trial.state for trial in trials] == ["COMPLETE"] * 4
    assert "4 done" in until_interrupted(watch, "4 done", tmp_path, shell)
    # A free port: 8080 may be taken.
    said = until_interrupted(f"{dashboard} --port 0", "http://", tmp_path, shell)
    assert "read-only" in said


def until_interrupted(command: str, line: str, folder: Path, settings: Mapping[str, str]) -> str:
    """What it prints up to a line; then Ctrl-C, which ends it."""
    running = subprocess.Popen(
        ["bash", "-c", f"exec {command}"], cwd=folder, env=settings, stdout=subprocess.PIPE, text=True
    )
    assert running.stdout is not None
    with running:
        said = ""
        while line not in said:
            said += running.stdout.readline()
        if address := re.search(r"http://\S+", said):
            with urlopen(address[0]) as page:
                assert page.status == 200
        running.send_signal(signal.SIGINT)
    assert running.returncode in (0, 130), said
    return said
