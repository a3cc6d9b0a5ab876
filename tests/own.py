"""Small data sets of people's own: classes, labels and numbers in files of every kind."""

from __future__ import annotations

import csv
import json
import random
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import tiny

TOPICS = ("business", "politics", "sport", "tech", "weather")
Row = dict[str, Any]


def news(count: int, seed: int = 1, topics: Sequence[str] = TOPICS) -> list[Row]:
    """The first word says the topic."""
    draw = random.Random(seed)
    found = []
    for _ in range(count):
        number = draw.randrange(len(topics))
        words = [tiny.WORDS[number], *draw.choices(tiny.WORDS[10:], k=draw.randint(3, 9))]
        found.append({"text": " ".join(words), "category": topics[number]})
    return found


def tagged(count: int, seed: int = 1) -> list[Row]:
    """Every topic's word that occurs is one of the tags."""
    draw = random.Random(seed)
    found = []
    for _ in range(count):
        tags = [i for i in range(len(TOPICS)) if draw.random() < 0.3]
        words = [tiny.WORDS[i] for i in tags] + draw.choices(tiny.WORDS[10:], k=draw.randint(3, 9))
        draw.shuffle(words)
        found.append({"text": " ".join(words), "tags": [TOPICS[i] for i in tags]})
    return found


def priced(count: int, seed: int = 1) -> list[Row]:
    """More of the first words, a higher price: of tens of thousands."""
    draw = random.Random(seed)
    found = []
    for _ in range(count):
        dear = draw.randint(0, 8)
        words = [tiny.WORDS[0]] * dear + draw.choices(tiny.WORDS[10:], k=9 - dear)
        draw.shuffle(words)
        found.append({"description": " ".join(words), "price": 20_000 + 9_000 * dear + draw.gauss(0, 500)})
    return found


def save(path: Path, rows: Sequence[Row]) -> str:
    """As the ending says; lists in a CSV file are JSON."""
    path.parent.mkdir(parents=True, exist_ok=True)
    if path.suffix == ".jsonl":
        path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    elif path.suffix == ".json":
        path.write_text(json.dumps(list(rows)))
    elif path.suffix == ".parquet":
        import pandas as pd

        pd.DataFrame(list(rows)).to_parquet(path)
    else:
        with path.open("w", newline="") as file:
            writer = csv.DictWriter(file, list(rows[0]), delimiter="\t" if path.suffix == ".tsv" else ",")
            writer.writeheader()
            for row in rows:
                writer.writerow({k: json.dumps(v) if isinstance(v, list) else v for k, v in row.items()})
    return str(path)


def study(*arguments: str, **keeping: Any) -> str:
    """Plan the study that `launch` is asked for and run its cells in this process; its name."""
    from storage.database import Database
    from study import launch
    from study.cli.command import storage_url
    from study.workers.jobs import load_jobs
    from study.workers.options import Caching, Keeping, Places
    from study.workers.worker import run_worker

    assert launch.main([*arguments, "--workers", "0"]) == 0
    database = Database.open(storage_url(None))
    try:
        names = database.study_names()
        places = Places(caching=Caching(cache_dir="cache"), keeping=Keeping(**keeping))
        run_worker(load_jobs(database, names, places), worker="here", on_event=lambda event: None)
        return names[-1]
    finally:
        database.close()
