"""Decisions as a fleet hands them over, made by hand."""

from __future__ import annotations

from collections.abc import Mapping

from axiom_common.model.decision import LoadKind
from axiom_common.model.ids import EngineId
from axiom_common.model.reason import Reason
from axiom_common.policy.decided import Decided, packed
from axiom_common.policy.view import REASONS, Seen


def seen(engine: str) -> Seen:
    """A candidate with a figure of everything."""
    return Seen(EngineId(engine), 1_500, 3, 2, (1.0,) * 6, *(0.5,) * 9)


def decided(
    *shown: str,
    booking: int = 0,
    load: LoadKind = LoadKind.NONE,
    refusals: Mapping[Reason, int] | None = None,
) -> Decided:
    """The first of the engines `shown` won."""
    counts = [(refusals or {}).get(reason, 0) for reason in REASONS]
    parts = packed(500.0, 2_000, counts, [seen(engine) for engine in shown])
    engine = EngineId(shown[0]) if shown else None
    return Decided("axiom", engine, load, booking, False, parts)
