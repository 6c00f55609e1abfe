"""What the scheduler knows of its region: nodes, who is silent, and whether that is enough to plan.

Telemetry and the gateways ask a node for its whole state when a change was lost, and the answer
comes to all; so this fold asks nobody: a placement has that much time.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping

from axiom_common.model.adapter import AdapterSpec
from axiom_common.model.engine import EngineState, NodeState
from axiom_common.model.engine_order import EngineOrder, OrderKind
from axiom_common.model.ids import NodeId, RegionId
from axiom_common.model.plan import Plan
from axiom_common.model.reason import Reason
from axiom_common.state.hearing import Hearing
from axiom_common.state.liveness import DEAD_MS, Liveness
from axiom_common.state.region_view import Outcome, RegionView, Report
from axiom_scheduler.planner import Snapshot


class SchedulerState:
    """The fold. Times are of the process's own clock, in ms; how long somebody was silent, and what
    depends on it, is measured while this process could hear (`Hearing`)."""

    def __init__(
        self, region: RegionId, *, started_ms: float, settle_ms: float, forget_ms: float
    ) -> None:
        self._region = region
        self._view = RegionView(region)
        self._hearing = Hearing(started_ms)
        self._liveness = Liveness()
        self._heard_ms: dict[NodeId, float] = {}
        self._silent: set[NodeId] = set()
        self._leaving: dict[NodeId, float] = {}
        self._settle_at_ms = started_ms + settle_ms
        self._forget_ms = forget_ms
        self._never_heard_are_gone_ms = started_ms + forget_ms
        self._swept_ms = started_ms
        self.frozen = False

    @property
    def nodes(self) -> int:
        """How many nodes are known."""
        return len(self._view)

    def report(self, report: Report, now_ms: float) -> bool:
        """Fold a report from the bus; whether a placement could come out differently now.

        An agent that ends may be back in a moment, as another version of it. So its node is silent
        as long after its last word as one that died without; but it is nobody's mass silence.
        """
        before = self._view.node(report.node)
        change = self._view.apply(report, now_ms)
        if change.outcome in (Outcome.STALE, Outcome.NO_ROOM):
            return False
        if before is None and change.outcome is not Outcome.APPLIED:
            # Nothing is known of it but a part.
            return False
        if change.outcome is Outcome.LEFT:
            self._liveness.forget(report.node)
            self._leaving[report.node] = self._hearing.listened_ms(now_ms)
            return False
        self._leaving.pop(report.node, None)
        self._heard(report.node, now_ms)
        came_back = report.node in self._silent
        self._silent.discard(report.node)
        known = {e.engine: _facts(e) for e in before.engines} if before else {}
        news = any(known.get(e.engine) != _facts(e) for e in change.changed)
        return news or came_back or bool(change.removed)

    def bootstrap(self, nodes: Iterable[NodeState], now_ms: float) -> None:
        """Fold what the shadow cache holds. A node counts as heard then, and has to prove it."""
        for node in nodes:
            self._view.apply(node, now_ms)
            if self._view.node(node.node) is not None and node.node not in self._heard_ms:
                self._heard(node.node, now_ms)

    def sweep(self, now_ms: float, *, connected: bool) -> bool:
        """Judge nodes by their silence; whether a placement could come out differently now.

        To be called each `hearing.TICK_MS`; `connected` tells whether the bus is there.
        """
        self._hearing.tick(now_ms, connected=connected)
        listened_ms = self._hearing.listened_ms(now_ms)
        sweep = self._liveness.sweep(listened_ms)
        self.frozen = sweep.frozen or self._hearing.deaf
        left = [n for n, since_ms in self._leaving.items() if listened_ms - since_ms >= DEAD_MS]
        for node in left:
            del self._leaving[node]
        self._silent.update(sweep.dead, left)
        forgotten = [
            node for node in self._silent if listened_ms - self._heard_ms[node] >= self._forget_ms
        ]
        for node in forgotten:
            self._view.forget(node, now_ms)
            self._silent.discard(node)
            del self._heard_ms[node]
        grace_ended = self._swept_ms < self._never_heard_are_gone_ms <= listened_ms
        self._swept_ms = listened_ms
        return grace_ended or bool(sweep.dead or left or forgotten)

    def settled(self, planned: Collection[NodeId], now_ms: float) -> bool:
        """Whether enough was heard to plan: all nodes that have a plan, or time enough to.

        A scheduler that plans at once on the first reports would take all other nodes for lost.
        """
        heard = all(self._view.node(node) is not None for node in planned)
        return self._hearing.listened_ms(now_ms) >= self._settle_at_ms or (bool(planned) and heard)

    def gone(self, planned: Collection[NodeId], now_ms: float) -> tuple[NodeId, ...]:
        """Nodes with a plan that do not exist any more: forgotten, or never heard in that time."""
        if self._hearing.listened_ms(now_ms) < self._never_heard_are_gone_ms:
            return ()
        return tuple(sorted(node for node in planned if self._view.node(node) is None))

    def snapshot(
        self,
        adapters: Mapping[str, AdapterSpec],
        plans: Mapping[NodeId, Plan],
        orders: Iterable[EngineOrder],
        *,
        revision_floor: int,
    ) -> Snapshot:
        """What to plan on. `orders` are those of engines in all regions."""
        return Snapshot(
            region=self._region,
            adapters=dict(adapters),
            revision_floor=revision_floor,
            nodes=self._view.nodes(),
            silent=frozenset(self._silent),
            draining=frozenset(
                order.engine
                for order in orders
                if order.region == self._region and order.kind is OrderKind.DRAIN
            ),
            plans=dict(plans),
        )

    def unacknowledged(self, plans: Mapping[NodeId, Plan]) -> dict[NodeId, Reason | None]:
        """Nodes that do not carry out their plan; with the reason if they refused it."""
        found: dict[NodeId, Reason | None] = {}
        for name, plan in plans.items():
            node = self._view.node(name)
            status = node.plan if node is not None else None
            if status is None or (status.fence, status.revision) != (plan.fence, plan.revision):
                found[name] = None
            elif not status.accepted:
                found[name] = status.reason
        return found

    def _heard(self, node: NodeId, now_ms: float) -> None:
        listened_ms = self._hearing.listened_ms(now_ms)
        self._liveness.heard(node, listened_ms)
        self._heard_ms[node] = listened_ms


def _facts(engine: EngineState) -> tuple[object, ...]:
    """The part of an engine's state that a placement depends on."""
    return (engine.base_model, engine.status, engine.limits, engine.registered)
