"""One engine as its agent reports it, for tests that care about a few of its fields."""

from __future__ import annotations

from axiom_common.model.engine import EngineState, EngineStatus
from axiom_common.model.ids import EngineId


def engine_state(engine: str, **changes: object) -> EngineState:
    """A ready engine that says nothing of itself but `changes`."""
    plain: dict[str, object] = {
        "engine": EngineId(engine),
        "url": "http://e",
        "base_model": "base",
        "served_name": "base",
        "status": EngineStatus.READY,
    }
    return EngineState(**(plain | changes))  # type: ignore[arg-type]
