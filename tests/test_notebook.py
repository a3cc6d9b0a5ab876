"""The notebook in scripts/ runs from top to bottom, and a study shows itself in it."""

from __future__ import annotations

import json
from pathlib import Path

import nbformat
import pytest
from nbclient import NotebookClient

SMALLER = {"frozen_layers=(0, 9, 12)": "frozen_layers=(0, 12)", "seeds=2": "seeds=1"}
"""The notebook's study, with two cells instead of six."""
NOTEBOOK = Path(__file__).resolve().parent.parent / "scripts" / "study.ipynb"


@pytest.mark.slow
def test_the_notebook_runs_and_shows_the_study(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ELSA_CACHE", str(tmp_path / "cache"))
    monkeypatch.delenv("ELSA_STORAGE", raising=False)
    notebook = nbformat.read(NOTEBOOK, as_version=4)
    assert not any(cell.get("outputs") for cell in notebook.cells), "it is kept without its output"
    first = next(cell for cell in notebook.cells if cell.cell_type == "code")
    for words, fewer in SMALLER.items():
        assert words in first.source
        first.source = first.source.replace(words, fewer)
    NotebookClient(notebook, timeout=600, resources={"metadata": {"path": str(tmp_path)}}).execute()
    shown = {cell.source: json.dumps(cell.outputs) for cell in notebook.cells if cell.cell_type == "code"}
    assert "DEMO" in shown["print(study.answer())"]
    assert "DEMO" in shown["study"]
    assert "plotly" in shown["study"]
    assert (tmp_path / "notebook-report" / "report.html").is_file()
    assert (tmp_path / "notebook-model" / "model.safetensors").is_file()
    assert "equivalent" in list(shown.values())[-1]
