"""What those hold of this node who heard each of its reports: from it follows what to tell next.

Fulls and deltas tell slow facts, and each is the base of what follows. A beat tells figures as they
are, and of everything else that a beat may tell what has moved since its base, again and again: who
lost some beats is right again with the next.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from axiom_common.model.adapter import ResidencySource
from axiom_common.model.engine import EngineState, GpuState, PlanStatus
from axiom_common.model.ids import EngineAdapter, EngineId
from axiom_common.ports.gpu import urgent
from axiom_common.state.region_view import EngineBeat, order_of

GPUS_AGAIN_MS = 1_000.0

Order = tuple[EngineAdapter, ...]


@dataclass(slots=True)
class _Told:
    """One engine: its slow facts, the residents as they were sent with them, and the order that the
    last beat told. `moved`: since then a beat told another order."""

    essence: object
    base_order: Order
    order: Order
    moved: bool = False


class Told:
    """What was told in one incarnation. `base` numbers the last full or delta; 0: none yet."""

    def __init__(self) -> None:
        self.base = 0
        self._engines: dict[EngineId, _Told] = {}
        self._gpus: tuple[GpuState, ...] = ()
        self._gpus_moved = False
        self._gpus_ms = 0.0
        self._plan: PlanStatus | None = None

    def lacks_the_whole(self, engines: Sequence[EngineState], plan: PlanStatus | None) -> bool:
        """Whether only a full report can tell what is: at first, and when engines came or went, or
        the plan went."""
        return (
            self.base == 0
            or self._engines.keys() != {e.engine for e in engines}
            or (plan is None and self._plan is not None)
        )

    def changes(self, engines: Iterable[EngineState]) -> tuple[EngineState, ...]:
        """The engines of which others hold other slow facts."""
        told = self._engines
        return tuple(e for e in engines if told[e.engine].essence != essence(e))

    def plan_changed(self, plan: PlanStatus | None) -> bool:
        """Whether others know of another plan."""
        return plan != self._plan

    def gpus_changed(self, gpus: tuple[GpuState, ...]) -> bool:
        """Whether a GPU has news that can't wait."""
        return gpus is not self._gpus and _urgent(gpus) != _urgent(self._gpus)

    def exact_order_moved(self, engines: Iterable[EngineState]) -> bool:
        """Whether an engine that tells its order itself has another one than others hold."""
        return any(
            self._order(e) != self._engines[e.engine].order
            for e in engines
            if e.residents and e.residents[0].source is ResidencySource.EXTENSION
        )

    def told_whole(
        self,
        seq: int,
        engines: Iterable[tuple[EngineState, EngineState]],
        *,
        gpus: tuple[GpuState, ...] | None,
        plan: PlanStatus | None,
        full: bool,
    ) -> None:
        """A full or a delta went out: of each engine (as it is, as it was sent)."""
        told = {}
        for whole, sent in engines:
            order = tuple(resident.adapter for resident in sent.residents)
            told[whole.engine] = _Told(essence(whole), order, order)
        self._engines = told if full else self._engines | told
        self.base = seq
        self._plan = plan
        if gpus is not None:
            self._gpus, self._gpus_moved = gpus, False

    def beat_of(self, engines: Iterable[EngineState]) -> tuple[EngineBeat, ...]:
        """What a beat tells of engines whose slow facts are told."""
        beats = []
        for engine in engines:
            told, order = self._engines[engine.engine], self._order(engine)
            told.order = order
            told.moved = told.moved or order != told.base_order
            beats.append(
                EngineBeat(
                    engine.engine,
                    engine.figures,
                    order_of(order) if told.moved else None,
                    engine.ranks,
                )
            )
        return tuple(beats)

    def beat_gpus(self, gpus: tuple[GpuState, ...], now_ms: float) -> tuple[GpuState, ...] | None:
        """The GPUs that a beat tells, None while others hold them."""
        changed = gpus is not self._gpus and gpus != self._gpus
        again = self._gpus_moved and now_ms - self._gpus_ms >= GPUS_AGAIN_MS
        if not changed and not again:
            return None
        self._gpus, self._gpus_moved, self._gpus_ms = gpus, True, now_ms
        return gpus

    def _order(self, engine: EngineState) -> Order:
        """The order now of the residents that were sent: a report may have left some out."""
        sent = frozenset(self._engines[engine.engine].base_order)
        return tuple(r.adapter for r in engine.residents if r.adapter in sent)


def essence(state: EngineState) -> object:
    """What of an engine is told at once when it changes; all else can wait for the beat."""
    return (
        state.status,
        state.base_model,
        state.served_name,
        state.limits,
        state.registered,
        {
            r.adapter: (r.state, r.source, None if r.in_flight is None else r.in_flight > 0)
            for r in state.residents
        },
        {failure.adapter for failure in state.failures},
    )


def _urgent(gpus: tuple[GpuState, ...]) -> object:
    return [(gpu.index, urgent(gpu)) for gpu in gpus]
