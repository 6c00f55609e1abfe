"""What the scheduler planned for each node, over REST, beside what the node's agent made of it.

Plans are read from the registry when they are asked for: nobody else in a gateway needs them.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from fastapi import APIRouter, Depends, Response

from axiom_common.errors import NotFoundError, UnavailableError, WireError
from axiom_common.model.access import Role
from axiom_common.model.ids import NodeId, RegionId, token
from axiom_common.model.plan import Plan
from axiom_common.ports.clock import Clock
from axiom_common.ports.registry import Bucket
from axiom_common.wire import keys, rest
from axiom_common.wire.schemas import PlanRecord, decode
from axiom_common.wire.views import NodePlanView
from axiom_gateway.admin_access import Needs
from axiom_gateway.admin_objects import AskedList, page_of, page_response
from axiom_gateway.seen import SeenNodes

READS_AT_ONCE = 16
KEPT_MAX = 4_096


@dataclass(frozen=True, slots=True)
class _Read:
    """A node's plan as it was read; None: it had none."""

    plan: Plan | None
    at_ms: float


class PlanDesk:
    """Reads plans, and keeps what it read for when the registry is away."""

    def __init__(self, bucket: Bucket, nodes: SeenNodes, clock: Clock, region: RegionId) -> None:
        self.nodes = nodes
        self._bucket = bucket
        self._clock = clock
        self._region = region
        self._kept: dict[NodeId, _Read] = {}

    async def read(self, nodes: Sequence[NodeId]) -> float:
        """Read the plans of these; how old the oldest of them is then, in ms. UnavailableError when
        the registry is away and one of them was never read."""
        turns = asyncio.Semaphore(READS_AT_ONCE)

        async def one(node: NodeId) -> None:
            async with turns:
                await self._read(node)

        missed: UnavailableError | None = None
        for found in await asyncio.gather(*map(one, nodes), return_exceptions=True):
            if isinstance(found, UnavailableError):
                missed = found
            elif found is not None:
                raise found
        if missed is None:
            return 0.0
        if any(node not in self._kept for node in nodes):
            raise missed
        now_ms = self._clock.now_ms()
        return max((now_ms - self._kept[node].at_ms for node in nodes), default=0.0)

    def shape(self, node: NodeId, staleness_ms: float) -> NodePlanView | None:
        """A plan that was read; None when the node has none."""
        read = self._kept.get(node)
        if read is None or read.plan is None:
            return None
        seen = self.nodes.seen_node(node)
        status = seen.state.plan if seen is not None else None
        return NodePlanView.of(read.plan, status, staleness_ms=staleness_ms)

    async def _read(self, node: NodeId) -> None:
        entry = await self._bucket.get(keys.plan_key(self._region, node))
        plan: Plan | None = None
        if entry is not None and entry.value is not None:
            try:
                plan = decode(entry.value, PlanRecord).plan
            except WireError as error:
                raise WireError(f"the plan of {node!r} does not parse: {error}") from error
        self._kept.pop(node, None)
        self._kept[node] = _Read(plan, self._clock.now_ms())
        while len(self._kept) > KEPT_MAX:
            del self._kept[next(iter(self._kept))]


def add_plan(router: APIRouter, desk: PlanDesk) -> None:
    """Add the routes."""
    needs: list[Any] = [Depends(Needs(Role.VIEWER))]

    @router.get("/plan", response_model=rest.Page[NodePlanView], dependencies=needs, tags=["plan"])
    async def list_plans(asked: AskedList) -> Response:
        query = asked.of(NodePlanView, "plan")
        nodes = sorted(desk.nodes.node_names())
        if query.after is not None and not query.order.path:
            nodes = [node for node in nodes if node > query.after.id]
        # Only where nothing is left out can it be known which of them are on the page.
        whole = bool(query.filters or query.order.path)
        wanted = nodes if whole else nodes[: query.limit + 1]
        staleness_ms = await desk.read(wanted)
        cursor, items = await page_of(
            query, wanted, lambda node: desk.shape(NodeId(node), staleness_ms)
        )
        page = rest.Page[Any](items=items, next=cursor, staleness_ms=staleness_ms)
        return page_response(page)

    @router.get("/plan/{node}", response_model=NodePlanView, dependencies=needs, tags=["plan"])
    async def get_plan(node: str) -> NodePlanView:
        name = NodeId(token(node, path="node"))
        if desk.nodes.seen_node(name) is None:
            raise NotFoundError(f"no node {node!r} is known")
        found = desk.shape(name, await desk.read([name]))
        if found is None:
            raise NotFoundError(f"nothing is planned for {node!r}")
        return found
