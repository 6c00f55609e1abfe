"""Continuous batching in one line: how the requests that run together slow each other down."""

from __future__ import annotations

from axiom_common.model.engine import EngineState

LOAD_FACTOR = 3.0
"""TPOT in a full batch over TPOT of a lone request: 2 to 3.5 on common engines."""


def load_slowdown(running: int, max_num_seqs: int) -> float:
    """The factor on each step with `running` requests: linear from 1, LOAD_FACTOR when full."""
    return 1.0 + (LOAD_FACTOR - 1.0) * min(1.0, running / max_num_seqs)


def unloaded_tpot_ms(state: EngineState, tpot_ms: float | None) -> float | None:
    """The TPOT that the engine would show if nothing else ran on it; None if it is not known."""
    if tpot_ms is None:
        return None
    return tpot_ms / load_slowdown(state.running, state.limits.max_num_seqs)
