"""What the scheduler planned for each node, over REST, beside what the node's agent made of it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from fastapi import APIRouter, Depends, Response

from axiom_common.errors import NotFoundError
from axiom_common.model.access import Role
from axiom_common.model.ids import NodeId, token
from axiom_common.wire import rest
from axiom_common.wire.views import NodePlanView
from axiom_gateway.admin_access import Needs
from axiom_gateway.admin_objects import AskedList, page_of, page_response
from axiom_gateway.plan_feed import PlanFeed
from axiom_gateway.seen import SeenNodes


@dataclass(frozen=True, slots=True, kw_only=True)
class PlanDesk:
    """Shows the plans of the nodes that are seen."""

    feed: PlanFeed
    nodes: SeenNodes

    def shape(self, node: NodeId) -> NodePlanView | None:
        """A node's plan; None when it has none."""
        plan = self.feed.plan(node)
        if plan is None:
            return None
        seen = self.nodes.seen_node(node)
        status = seen.state.plan if seen is not None else None
        return NodePlanView.of(plan, status, staleness_ms=self.feed.staleness_ms())


def add_plan(router: APIRouter, desk: PlanDesk) -> None:
    """Add the routes."""
    needs: list[Any] = [Depends(Needs(Role.VIEWER))]

    @router.get("/plan", response_model=rest.Page[NodePlanView], dependencies=needs, tags=["plan"])
    async def list_plans(asked: AskedList) -> Response:
        query = asked.of(NodePlanView, "plan")
        nodes = sorted(desk.nodes.node_names())
        cursor, items = await page_of(query, nodes, lambda node: desk.shape(NodeId(node)))
        staleness_ms = desk.feed.staleness_ms()
        return page_response(rest.Page[Any](items=items, next=cursor, staleness_ms=staleness_ms))

    @router.get("/plan/{node}", response_model=NodePlanView, dependencies=needs, tags=["plan"])
    async def get_plan(node: str) -> NodePlanView:
        name = NodeId(token(node, path="node"))
        if desk.nodes.seen_node(name) is None:
            raise NotFoundError(f"no node {node!r} is known")
        found = desk.shape(name)
        if found is None:
            raise NotFoundError(f"nothing is planned for {node!r}")
        return found
