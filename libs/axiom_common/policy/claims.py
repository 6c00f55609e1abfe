"""Slots promised to adapters that have waited too long for one.

An adapter that always has requests in flight keeps its slot for ever, and who waits for a slot
would starve. So who waits claims an engine and one adapter on it, the victim. Until the claim ends
the engine takes no new requests of the victim, and none that would need a slot, but the claimant's:
the victim's requests run out, its slot becomes idle, and the claimant is loaded there.

    wants a slot --claimed--> runs out --served, or not renewed for CLAIM_MS--> over

One claim an engine and one an adapter, so at most one adapter of an engine runs out at a time.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass

from axiom_common.model.adapter import AdapterState
from axiom_common.model.decision import Query
from axiom_common.model.ids import EngineAdapter, EngineId
from axiom_common.policy.engine_row import EngineRow

CLAIM_MS = 1_000.0
"""Who still waits renews its claim well within it."""

InFlight = Callable[[EngineId, EngineAdapter], int]
"""Requests of an adapter on an engine, whoever sent them."""


@dataclass(slots=True)
class _Claim:
    adapter: EngineAdapter
    victim: EngineAdapter
    until_ms: float


class Claims:
    """The claims of one gateway."""

    def __init__(self) -> None:
        self._claims: dict[EngineId, _Claim] = {}

    def claim(
        self, query: Query, rows: Iterable[EngineRow], in_flight: InFlight, now_ms: float
    ) -> None:
        """Claim a slot for the query's adapter, or renew its claim. `rows` are all engines.

        The victim is an adapter that has a copy elsewhere, if there is one, then the one with the
        least in flight.
        """
        for claim in self._claims.values():
            if claim.adapter == query.adapter:
                claim.until_ms = now_ms + CLAIM_MS
                return
        of_base = [row for row in rows if row.base_model == query.base_model]
        copies = _copies(of_base)
        options = [
            (copies[victim] < 2, in_flight(row.engine, victim), row.engine, victim)
            for row in of_base
            if row.engine not in self._claims and _may_load(row, query)
            for victim in _resident(row)
        ]
        if options:
            _, _, engine, victim = min(options)
            self._claims[engine] = _Claim(query.adapter, victim, now_ms + CLAIM_MS)

    def end(self, adapter: EngineAdapter) -> None:
        """The adapter was served."""
        self._claims = {e: claim for e, claim in self._claims.items() if claim.adapter != adapter}

    def expire(self, now_ms: float) -> None:
        """Drop what nobody renewed."""
        self._claims = {e: claim for e, claim in self._claims.items() if claim.until_ms > now_ms}

    def closed_to(
        self, adapter: EngineAdapter, holds: Callable[[EngineId], bool]
    ) -> tuple[EngineId, ...]:
        """Engines that take no new requests of an adapter now. `holds`: has it a slot there?"""
        return tuple(
            engine
            for engine, claim in self._claims.items()
            if adapter == claim.victim or (adapter != claim.adapter and not holds(engine))
        )

    def __bool__(self) -> bool:
        """Whether there are any."""
        return bool(self._claims)


def _copies(rows: Iterable[EngineRow]) -> dict[EngineAdapter, int]:
    copies: dict[EngineAdapter, int] = {}
    for row in rows:
        for adapter in _resident(row):
            copies[adapter] = copies.get(adapter, 0) + 1
    return copies


def _resident(row: EngineRow) -> list[EngineAdapter]:
    return [r.adapter for r in row.residents if r.state is AdapterState.RESIDENT]


def _may_load(row: EngineRow, query: Query) -> bool:
    """Whether nothing but the lack of a slot keeps the query's adapter from the engine."""
    return (
        row.refusal is None
        and row.loads_allowed
        and row.max_lora_rank >= max(1, query.rank)
        and query.adapter not in row.failures
        and row.engine not in query.excluded
    )
