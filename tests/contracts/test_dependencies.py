"""What ``pip install mlmf`` brings is enough to import every module of it."""

from __future__ import annotations

import ast
import importlib.metadata
import re
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]


def normal(package: str) -> str:
    return re.sub(r"[-_.]+", "-", package).lower()


def test_every_package_imported_at_the_top_is_a_core_dependency() -> None:
    """A module that needs an extra must import it where it is used."""
    project = (ROOT / "pyproject.toml").read_text(encoding="utf-8")
    listed = re.search(r"^dependencies = \[\n(.*?)^\]", project, re.MULTILINE | re.DOTALL)
    assert listed is not None
    core = {normal(name) for name in re.findall(r'^ +"([\w.-]+)', listed[1], re.MULTILINE)}
    assert {"torch", "transformers", "huggingface-hub"} <= core
    providers = importlib.metadata.packages_distributions()
    missing = set()
    for file in (ROOT / "mlmf").rglob("*.py"):
        for statement in ast.parse(file.read_text(encoding="utf-8")).body:
            names = [alias.name for alias in statement.names] if isinstance(statement, ast.Import) else []
            if isinstance(statement, ast.ImportFrom) and statement.module:
                names = [statement.module]
            for name in {name.partition(".")[0] for name in names} - {"mlmf", *sys.stdlib_module_names}:
                if not core & {normal(package) for package in providers.get(name, [])}:
                    missing.add(f"{file.name}: {name}")
    assert not missing
