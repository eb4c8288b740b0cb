"""The notebooks run from top to bottom, with an untrained number of steps: what they show is looked at by people."""

from __future__ import annotations

from pathlib import Path

import nbformat
import pytest
from nbclient import NotebookClient

NOTEBOOKS = Path(__file__).parents[1] / "notebooks"


def run(name: str) -> tuple[str, int]:
    """Execute a notebook; returns what it printed and how many pictures it shows."""
    notebook = nbformat.read(NOTEBOOKS / name, as_version=4)
    NotebookClient(notebook, timeout=900, kernel_name="python3", resources={"metadata": {"path": NOTEBOOKS}}).execute()
    outputs = [output for cell in notebook.cells if cell.cell_type == "code" for output in cell.outputs]
    shown = [output.get("data", {}) for output in outputs]
    # tables are shown, the rest is printed
    texts = [
        output.get("text", "") or data.get("text/markdown", "") or data.get("text/plain", "")
        for output, data in zip(outputs, shown, strict=True)
    ]
    return "".join(texts), sum("image/png" in data for data in shown)


@pytest.mark.slow
def test_quickstart_runs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MLMF_NOTEBOOK_STEPS", "4")
    printed, _ = run("01_quickstart.ipynb")
    assert "an untrained memory changes nothing: True" in printed
    assert "step    4  gates open" in printed
    assert "no_memory" in printed and "mlmf" in printed
    assert printed.rstrip().splitlines()[-1].startswith("True ")


@pytest.mark.slow
def test_inside_memory_runs_without_a_checkpoint(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("MLMF_NOTEBOOK_STEPS", "4")
    monkeypatch.setenv("MLMF_NOTEBOOK_CHECKPOINT", str(tmp_path / "none"))
    printed, pictures = run("02_inside_memory.ipynb")
    assert "a random model after 4 steps" in printed
    assert "sessions remembered" in printed and printed.count("mean drift") == 2
    assert pictures == 5  # layers, slots, gates, graph, drift


@pytest.mark.slow
def test_results_runs_without_results(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("MLMF_NOTEBOOK_RESULTS", raising=False)
    printed, pictures = run("03_results.ipynb")
    assert "| recent_window |" in printed and "A[1,1]" in printed and "Paired tests" in printed
    assert pictures >= 5
