"""The rooms import one way, and what must stay light stays light."""

from __future__ import annotations

import ast
import subprocess
import sys
from pathlib import Path

import pytest

from study.__main__ import COMMANDS

ROOT = Path(__file__).parent.parent
ROOMS = ("study", "storage", "objectives")


def imports(path: Path) -> set[str]:
    found: set[str] = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module:
            found |= {node.module} | {f"{node.module}.{alias.name}" for alias in node.names}
    return found


def all_imports(room: str) -> dict[Path, set[str]]:
    found = {path: imports(path) for path in (ROOT / room).rglob("*.py")}
    assert found
    return found


def roots(names: set[str]) -> set[str]:
    return {name.partition(".")[0] for name in names}


def test_storage_shares_only_the_plain_dataclasses_and_never_imports_torch() -> None:
    for path, names in all_imports("storage").items():
        ours = {name for name in names if roots({name}) <= {"study", "objectives"}}
        assert all(name.startswith("objectives.contract") for name in ours), path
        assert not roots(names) & {"torch", "transformers", "datasets", "accelerate"}, path


def test_objectives_know_nothing_of_optuna_and_databases() -> None:
    for path, names in all_imports("objectives").items():
        assert not roots(names) & {"study", "storage", "optuna", "sqlalchemy"}, path


HEAVY = {
    "torch",
    "transformers",
    "datasets",
    "accelerate",
    "pandas",
    "plotly",
    "sqlalchemy",
    "optuna",
    "scipy",
}


@pytest.mark.parametrize("command", COMMANDS)
def test_help_needs_no_library_and_ends_in_examples(command: str) -> None:
    code = (
        "import atexit, sys; atexit.register(lambda: print(*sys.modules, file=sys.stderr)); "
        f"from study.{command} import main\n"
        "try: main(['--help-all'])\n"
        "except SystemExit as ended: assert not ended.code\n"
        "main(['--help'])"
    )
    answer = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, cwd=ROOT
    )
    assert not HEAVY & set(answer.stderr.split()), "help must answer at once"
    assert "examples:" in answer.stdout
    assert answer.stdout.strip().splitlines()[-1].lstrip().startswith(("elsa", "python"))


def test_rooms_have_no_import_cycles() -> None:
    """Of packages, by what their modules import when they run, inside functions too."""
    edges = {(package(path), imported) for path in modules() for imported in packages_imported(path)}
    edges = {(here, there) for here, there in edges if here != there}
    while leaves := {there for _, there in edges} - {here for here, _ in edges}:
        edges = {(here, there) for here, there in edges if there not in leaves}
    assert not edges, f"packages that import each other: {sorted(edges)}"


def test_no_two_modules_have_the_same_name() -> None:
    names = [path.stem for path in modules() if path.stem != "__init__"]
    assert [name for name in names if names.count(name) > 1] == []


def modules() -> list[Path]:
    return [path for room in ROOMS for path in (ROOT / room).rglob("*.py")]


def package(path: Path) -> str:
    return ".".join(path.parent.relative_to(ROOT).parts)


def packages_imported(path: Path) -> set[str]:
    tree = ast.parse(path.read_text())
    for node in ast.walk(tree):
        if isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING":
            node.body = []
    found = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and node.module and node.module.partition(".")[0] in ROOMS:
            folder = ROOT / node.module.replace(".", "/")
            for name in node.names:
                if (folder / name.name).is_dir():
                    found.add(f"{node.module}.{name.name}")
                else:
                    found.add(node.module if folder.is_dir() else package(folder))
    return found


@pytest.mark.parametrize(
    "module", ["operating_points", "report", "table", "status", "simulate", "workers.worker"]
)
def test_analysis_and_workers_load_without_torch(module: str) -> None:
    code = f"import sys, study.{module}; sys.exit('torch' in sys.modules or 'transformers' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], cwd=ROOT).returncode == 0


def test_only_protocols_know_a_protocols_name() -> None:
    from study import protocols

    # Words that mean something else there: colours, coordinates, the paper's filter, a part of the report.
    elsewhere = {
        "grid": ("study/reporting/",),
        "paper": ("study/reporting/", "study/analysis/"),
        "low-resource": ("study/reporting/content.py",),
    }
    for path in modules():
        where = path.relative_to(ROOT).as_posix()
        if not where.startswith("study/protocols/"):
            texts = {
                node.value for node in ast.walk(ast.parse(path.read_text())) if isinstance(node, ast.Constant)
            }
            named = texts & protocols.known().keys()
            named = {name for name in named if not where.startswith(elsewhere.get(name, ()))}
            assert not named, f"{where} knows {named}"


def test_only_task_files_published_figures_and_the_demo_know_a_tasks_name() -> None:
    from objectives.tasks.definition import shipped, task_key

    may = {"objectives/demo", "study/analysis/published.py", "study/analysis/paper_claims.py"}
    for room in ROOMS:
        for path in (ROOT / room).rglob("*.py"):
            where = path.relative_to(ROOT).as_posix()
            if any(where.startswith(place) for place in may):
                continue
            texts = (
                node.value for node in ast.walk(ast.parse(path.read_text())) if isinstance(node, ast.Constant)
            )
            named = {text for text in texts if isinstance(text, str) and task_key(text) in shipped()}
            assert not named, f"{where} knows {named}"
