"""The variants of the trained memory that a table of ablations compares, and what their systems are called."""

from __future__ import annotations

FULL = "full"
TABLES: dict[str, dict[str, dict[str, bool]]] = {
    "table5": {
        FULL: {},
        "no_semantic": {"semantic": False},
        "no_episodic": {"episodic": False},
        "no_retention": {"retention": False},
        "no_gating": {"gating": False},
    }
}
"""By table and variant, the switches of :class:`~mlmf.config.model.MLMFConfig` that differ from the full memory.

``table5`` is Table V of the MLMF paper: without M_s, without M_e, without L_ret, without the layer gate.
"""
MLMF = "mlmf"
_SYSTEMS = {f"{MLMF}_{variant}": variant for variants in TABLES.values() for variant in variants}


def variant_systems(table: str) -> list[str]:
    """Names of the systems of a table, ``mlmf_full`` first."""
    return [system for system, variant in _SYSTEMS.items() if variant in TABLES[table]]


def variant_of(system: str) -> str | None:
    """Which variant a system is; ``None`` for ``mlmf`` itself and everything that is no trained memory."""
    return _SYSTEMS.get(system)


def base_system(system: str) -> str:
    """``mlmf`` for each of its variants, else the system itself."""
    return MLMF if system in _SYSTEMS else system
