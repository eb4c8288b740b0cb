"""The notebook runs from top to bottom, with an untrained number of steps: what it shows is looked at by people."""

from __future__ import annotations

from pathlib import Path

import nbformat
import pytest
from nbclient import NotebookClient

NOTEBOOK = Path(__file__).parents[1] / "notebooks" / "01_quickstart.ipynb"


@pytest.mark.slow
def test_quickstart_runs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MLMF_NOTEBOOK_STEPS", "4")
    notebook = nbformat.read(NOTEBOOK, as_version=4)
    NotebookClient(
        notebook, timeout=900, kernel_name="python3", resources={"metadata": {"path": NOTEBOOK.parent}}
    ).execute()
    outputs = [output for cell in notebook.cells if cell.cell_type == "code" for output in cell.outputs]
    # tables are shown, the rest is printed
    printed = "".join(output.get("text", "") or output.get("data", {}).get("text/plain", "") for output in outputs)
    assert "an untrained memory changes nothing: True" in printed
    assert "step    4  gates open" in printed
    assert "no_memory" in printed and "mlmf" in printed
    assert printed.rstrip().splitlines()[-1].startswith("True ")
