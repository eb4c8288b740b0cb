"""The keys that answers are scored against: the published one, and for LoCoMo the audited one beside it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Literal

from mlmf.data.locomo_audit import AUDIT_FILE, HOW_TO_GET_AUDIT, AuditCounts, apply_audit, load_audit
from mlmf.paths import find_data, sha256_of
from mlmf.types import Conversation

KeySetting = Literal["raw", "audited", "both"]


@dataclass(frozen=True, slots=True)
class AnswerKey:
    """Conversations whose questions carry the gold side that counts."""

    name: Literal["raw", "audited"]
    conversations: tuple[Conversation, ...]
    counts: AuditCounts | None = None
    """What the audit changed; null for the published key."""
    audit_sha256: str | None = None

    def describe(self) -> dict[str, Any]:
        """For the results: ``audit_sha256`` and the counts, or null for the published key."""
        counts = None if self.counts is None else asdict(self.counts)
        return {"audit_sha256": self.audit_sha256, "audit": counts}


def answer_keys(
    setting: KeySetting, task: str, conversations: Sequence[Conversation], audit_file: str | None = None
) -> list[AnswerKey]:
    """The keys to score a task with, the published one first. Tasks other than LoCoMo have that one alone.

    Raises:
        UserError: the audit is wanted and not there, or does not fit the data.
    """
    raw = AnswerKey("raw", tuple(conversations))
    if setting == "raw" or task != "locomo":
        return [raw]
    path = Path(audit_file) if audit_file else find_data(AUDIT_FILE, HOW_TO_GET_AUDIT)
    corrected, counts = apply_audit(conversations, load_audit(path))
    audited = AnswerKey("audited", corrected, counts, sha256_of(path))
    return [audited] if setting == "audited" else [raw, audited]
