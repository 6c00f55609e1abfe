"""What this gateway sees of the fleet, over REST: nodes, engines, the stream of changes, status."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Annotated, Any

from fastapi import APIRouter, Depends, Query, Request, Response
from starlette.convertors import StringConvertor, register_url_convertor

from axiom_common.errors import NotFoundError
from axiom_common.model.access import Role
from axiom_common.model.ids import EngineId, NodeId, RegionId, node_of, token
from axiom_common.wire import rest, views
from axiom_gateway.admin_access import Needs, caller
from axiom_gateway.admin_objects import AskedList, page_of, page_response
from axiom_gateway.admin_parameters import engine_in_path
from axiom_gateway.admin_problems import NotThereError
from axiom_gateway.seen import SeenNodes, node_json, node_view
from axiom_gateway.watch import EVENT_STREAM, NAMED_MAX, Watches, WatchResponse

WatchedNodes = Annotated[tuple[str, ...], Query(max_length=NAMED_MAX)]
_JSON = "application/json"
_EVENTS: dict[int | str, dict[str, Any]] = {200: {"content": {EVENT_STREAM: {}}}}


class WithoutVerb(StringConvertor):
    """In a path: what has no verb at its end."""

    regex = "[^/:]+"


register_url_convertor("without_verb", WithoutVerb())


@dataclass(frozen=True, slots=True, kw_only=True)
class SeenRegion:
    """One region in the gateway's view. `adapters` counts the declared ones it may serve,
    `base_models` are those of its engines."""

    nodes: int
    engines: int
    adapters: int
    base_models: frozenset[str]
    degraded: tuple[str, ...]
    view_age_ms: float | None


@dataclass(frozen=True, slots=True, kw_only=True)
class AdminView:
    """What the gateway sees, at one moment."""

    regions: Mapping[RegionId, SeenRegion]

    @property
    def base_models(self) -> frozenset[str]:
        """Those of all engines seen."""
        return frozenset().union(*(region.base_models for region in self.regions.values()))

    @property
    def staleness_ms(self) -> float:
        """How long ago the region was heard last; 0 while nothing was, as nothing is told then."""
        ages = (region.view_age_ms for region in self.regions.values())
        return max((age for age in ages if age is not None), default=0.0)


def add_seen(router: APIRouter, view: Callable[[], AdminView], watches: Watches) -> None:
    """Add the routes."""
    nodes = watches.nodes
    needs: list[Any] = [Depends(Needs(Role.VIEWER))]

    @router.get(
        "/nodes", response_model=rest.Page[views.NodeView], dependencies=needs, tags=["nodes"]
    )
    async def list_nodes(asked: AskedList) -> Response:
        def shape(name: str) -> views.NodeView | None:
            return node_view(nodes, NodeId(name))

        query = asked.of(views.NodeView, "nodes")
        cursor, items = await page_of(query, sorted(nodes.node_names()), shape)
        return _page(items, cursor, view())

    @router.get("/nodes/{node}", response_model=views.NodeView, dependencies=needs, tags=["nodes"])
    async def get_node(node: str) -> Response:
        seen = nodes.seen_node(NodeId(token(node, path="node")))
        if seen is None:
            raise NotFoundError(f"no node {node!r} is known")
        return Response(node_json(seen), media_type=_JSON)

    @router.get(
        "/engines", response_model=rest.Page[views.EngineView], dependencies=needs, tags=["engines"]
    )
    async def list_engines(asked: AskedList) -> Response:
        query = asked.of(views.EngineView, "engines")
        cursor, items = await page_of(query, _engine_ids(nodes), lambda id_: _engine(nodes, id_))
        return _page(items, cursor, view())

    @router.get(
        "/engines/{engine:without_verb}",
        response_model=views.EngineView,
        dependencies=needs,
        tags=["engines"],
    )
    async def get_engine(engine: str) -> Response:
        seen = _engine(nodes, engine_in_path(engine))
        if seen is None:
            raise NotFoundError(f"no engine {engine!r} is known")
        return Response(seen.model_dump_json(), media_type=_JSON)

    @router.get(
        "/watch",
        response_class=Response,
        status_code=200,
        responses=_EVENTS,
        dependencies=needs,
        tags=["nodes"],
    )
    async def watch(request: Request, node: WatchedNodes = ()) -> Response:
        named = [NodeId(token(name, path="node")) for name in node]
        for name in named:
            if nodes.seen_node(name) is None:
                raise NotThereError(f"no node {name!r} is known", path="node")
        return WatchResponse(watches, named, caller(request))

    @router.get("/status", dependencies=needs, tags=["status"])
    async def status() -> rest.Status:
        seen = view()
        regions = sorted(seen.regions.items())
        shown = {str(name): _region(region) for name, region in regions}
        return rest.Status(regions=shown, staleness_ms=seen.staleness_ms)


def _engine_ids(nodes: SeenNodes) -> list[str]:
    seen = (nodes.seen_node(name) for name in nodes.node_names())
    return sorted(engine.engine for node in seen if node for engine in node.state.engines)


def _engine(nodes: SeenNodes, id_: str) -> views.EngineView | None:
    seen = nodes.seen_node(node_of(EngineId(id_)))
    if seen is None:
        return None
    found = (engine for engine in seen.state.engines if engine.engine == id_)
    return next(
        (
            views.EngineView.of(seen.state, engine, seen.use(engine), seen.heard_age_ms)
            for engine in found
        ),
        None,
    )


def _page(items: Any, cursor: str | None, view: AdminView) -> Response:
    return page_response(rest.Page[Any](items=items, next=cursor, staleness_ms=view.staleness_ms))


def _region(seen: SeenRegion) -> rest.RegionStatus:
    return rest.RegionStatus(
        nodes=seen.nodes,
        engines=seen.engines,
        adapters=seen.adapters,
        degraded=seen.degraded,
        view_age_ms=seen.view_age_ms,
    )
