"""Files in, :class:`mlmf.types.Conversation` records out: LOCCO, LoCoMo, MSC and people's own dialogues."""

from __future__ import annotations

from mlmf.data.dates import parse_date
from mlmf.data.jsonl import dump_jsonl, load_jsonl
from mlmf.data.locco import load_locco, load_probes, period_of, with_probes
from mlmf.data.locomo import CATEGORY_NAMES, load_locomo
from mlmf.data.msc import load_msc
from mlmf.data.tasks import LoadedData, load_task

__all__ = [
    "CATEGORY_NAMES",
    "LoadedData",
    "dump_jsonl",
    "load_jsonl",
    "load_locco",
    "load_locomo",
    "load_msc",
    "load_probes",
    "load_task",
    "parse_date",
    "period_of",
    "with_probes",
]
