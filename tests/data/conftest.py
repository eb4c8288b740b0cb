"""Files that may not ship with the package: tests that read them are skipped where they are absent."""

from __future__ import annotations

from pathlib import Path

import pytest

from mlmf.data.locomo import HOW_TO_GET_LOCOMO, LOCOMO_FILE, load_locomo
from mlmf.data.msc import HOW_TO_GET_MSC
from mlmf.errors import UserError
from mlmf.paths import find_data
from mlmf.types import Conversation


def found_or_skip(relative: str, how_to_get: str) -> Path:
    """A file of the data folder, or the end of the test where there is none."""
    try:
        return find_data(relative, how_to_get)
    except UserError as error:
        pytest.skip(str(error))


@pytest.fixture(scope="session")
def locomo_file() -> Path:
    return found_or_skip(LOCOMO_FILE, HOW_TO_GET_LOCOMO)


@pytest.fixture(scope="session")
def locomo(locomo_file: Path) -> dict[str, Conversation]:
    return {conversation.id: conversation for conversation in load_locomo(locomo_file)}


@pytest.fixture(scope="session")
def msc_file() -> Path:
    return found_or_skip("msc/dialogue_session_3_valid.jsonl", HOW_TO_GET_MSC)
