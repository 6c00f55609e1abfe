"""Watches this node's plan in the registry and keeps the one that holds."""

from __future__ import annotations

from collections.abc import Callable

from axiom_common.errors import WireError
from axiom_common.model.ids import NodeId, RegionId
from axiom_common.ports.registry import Bucket, Entry
from axiom_common.runtime.logging import Log
from axiom_common.wire import keys
from axiom_common.wire.schemas import PlanRecord, decode
from axiom_node_agent.metrics import AgentMetrics
from axiom_node_agent.reconciler import PlanBook, judged


class PlanWatch:
    """`book` is the only copy of the plan; `on_change` is called after each plan seen."""

    def __init__(
        self,
        region: RegionId,
        node: NodeId,
        on_change: Callable[[], None],
        metrics: AgentMetrics,
        log: Log,
    ) -> None:
        self.book = PlanBook()
        self._key = keys.plan_key(region, node)
        self._region = region
        self._node = node
        self._on_change = on_change
        self._metrics = metrics
        self._log = log

    async def follow(self, bucket: Bucket) -> None:
        """Take plans as they come, until cancelled."""
        async for entry in bucket.watch(key=self._key):
            if entry is not None:
                self._see(entry)

    def _see(self, entry: Entry) -> None:
        if entry.lost:
            # Nobody withdrew it, so it holds until another one comes.
            return
        if entry.value is None:
            # Nothing is wanted any more. What is loaded stays, and so does the fence.
            self.book = PlanBook(fence_max=self.book.fence_max)
            self._on_change()
            return
        try:
            plan = decode(entry.value, PlanRecord).plan
            if (plan.region, plan.node) != (self._region, self._node):
                raise WireError(f"a plan for {plan.region}.{plan.node} under {self._key}")
        except WireError as error:
            self._metrics.invalid_messages.labels("plan").inc()
            self._log.warning("plan not readable", once_a_minute="plan", cause=str(error))
            return
        self.book = judged(self.book, plan)
        status = self.book.status
        if status is not None and status.reason is not None:
            self._metrics.plan_refusals.labels(status.reason).inc()
            self._log.warning("plan refused", reason=status.reason, revision=plan.revision)
        self._on_change()
