"""The admin REST API, `/admin/v1`: desired state, and what this gateway sees of the fleet.

A write is acknowledged once it is durable in the registry. Its ETag is the record's version there;
If-Match, and If-None-Match with `*`, are honoured. Errors are those of `admin_problems`.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from http import HTTPStatus
from typing import Annotated, Any

from fastapi import APIRouter, Depends, FastAPI, Header, Query, Response

from axiom_common.errors import InvalidInputError, NotFoundError
from axiom_common.model.adapter import AdapterSpec, BaseModelSpec
from axiom_common.model.ids import NodeId, RegionId, public_name, token
from axiom_common.ports.registry import Bucket
from axiom_common.runtime.desired_store import (
    ABSENT,
    ANY_VERSION,
    DesiredStore,
    Outcome,
    Stored,
    Written,
)
from axiom_common.wire import headers, rest, views
from axiom_gateway.admin_bodies import body_of, takes
from axiom_gateway.admin_problems import answer_errors_as_problems
from axiom_gateway.seen import SeenNode, SeenNodes, node_json
from axiom_gateway.watch import EVENT_STREAM, NAMED_MAX, Watches, WatchResponse

_ETAG = re.compile(r'"([0-9]{1,16})"')
_JSON = "application/json"
_ITEMS_A_TURN = 8
_EVENTS: dict[int | str, dict[str, Any]] = {200: {"content": {EVENT_STREAM: {}}}}


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


def admin_app(
    desired: Bucket,
    view: Callable[[], AdminView],
    watches: Watches,
    *more: APIRouter,
) -> FastAPI:
    """The app to mount at /admin/v1. `desired` is the bucket of desired state; `more` are routes of
    other modules."""
    app = FastAPI(
        title="Axiom admin API",
        version="1",
        docs_url=None,
        redoc_url=None,
        redirect_slashes=False,
    )
    store = DesiredStore(desired)
    app.include_router(_adapter_routes(store, view))
    app.include_router(_model_routes(store))
    app.include_router(_view_routes(view, watches))
    for router in more:
        app.include_router(router)
    answer_errors_as_problems(app)
    return app


def _if_version(
    if_match: Annotated[str | None, Header()] = None,
    if_none_match: Annotated[str | None, Header()] = None,
) -> int | None:
    """The record's version that a write is bound to; None without a precondition."""
    if if_none_match is not None:
        if if_none_match != "*" or if_match is not None:
            raise InvalidInputError("If-None-Match takes *, alone", path=headers.IF_NONE_MATCH)
        return ABSENT
    if if_match is None:
        return None
    if if_match == "*":
        return ANY_VERSION
    etag = _ETAG.fullmatch(if_match)
    if etag is None:
        raise InvalidInputError("If-Match takes one ETag or *", path=headers.IF_MATCH)
    return int(etag[1])


IfVersion = Annotated[int | None, Depends(_if_version)]
WatchedNodes = Annotated[tuple[str, ...], Query(max_length=NAMED_MAX)]
Limit = Annotated[int, Query(ge=1, le=rest.PAGE_MAX)]


def _adapter_routes(store: DesiredStore, view: Callable[[], AdminView]) -> APIRouter:
    router = APIRouter(prefix="/adapters", tags=["adapters"])

    async def known(base_model: str) -> bool:
        return base_model in _served(view()) or await store.has_base_model(base_model)

    @router.get("")
    async def list_adapters(limit: Limit = rest.PAGE_MAX, after: str = "") -> rest.AdapterList:
        page = [s.value for s in await store.adapters() if s.value.name > after][: limit + 1]
        models = {spec.base_model for spec in page[:limit]}
        known_models = {model for model in models if await known(model)}
        return rest.AdapterList(
            adapters=tuple(
                rest.Adapter.of(spec, base_model_known=spec.base_model in known_models)
                for spec in page[:limit]
            ),
            next=page[limit - 1].name if len(page) > limit else None,
        )

    @router.get("/{name:path}")
    async def get_adapter(name: str, response: Response) -> rest.Adapter:
        stored = await store.adapter(public_name(name, path="name"))
        if stored is None:
            raise NotFoundError(f"{name!r} is not declared")
        response.headers[headers.ETAG] = _etag(stored)
        spec = stored.value
        return rest.Adapter.of(spec, base_model_known=await known(spec.base_model))

    @router.put("/{name:path}", openapi_extra=takes(rest.AdapterPut))
    async def put_adapter(
        name: str,
        response: Response,
        if_version: IfVersion,
        body: Annotated[rest.AdapterPut, Depends(body_of(rest.AdapterPut))],
    ) -> rest.Adapter:
        wanted = body.to_spec(name)
        # Before the write: what fails after it would hide that it is done.
        base_model_known = await known(wanted.base_model)
        written = await store.put_adapter(wanted, if_version=if_version)
        _tell(written, response)
        return rest.Adapter.of(written.stored.value, base_model_known=base_model_known)

    @router.delete("/{name:path}", status_code=HTTPStatus.NO_CONTENT)
    async def delete_adapter(name: str, if_version: IfVersion) -> None:
        await store.delete_adapter(public_name(name, path="name"), if_version=if_version)

    return router


def _model_routes(store: DesiredStore) -> APIRouter:
    router = APIRouter(prefix="/models", tags=["models"])

    @router.get("")
    async def list_models(limit: Limit = rest.PAGE_MAX, after: str = "") -> rest.ModelList:
        page = [s.value.name for s in await store.base_models() if s.value.name > after]
        return rest.ModelList(
            models=tuple(rest.DeclaredModel(name=name) for name in page[:limit]),
            next=page[limit - 1] if len(page) > limit else None,
        )

    @router.get("/{name:path}")
    async def get_model(name: str, response: Response) -> rest.DeclaredModel:
        stored = await store.base_model(public_name(name, path="name"))
        if stored is None:
            raise NotFoundError(f"{name!r} is not declared")
        response.headers[headers.ETAG] = _etag(stored)
        return rest.DeclaredModel(name=stored.value.name)

    @router.put("/{name:path}", openapi_extra=takes(rest.BaseModelPut))
    async def put_model(
        name: str,
        response: Response,
        if_version: IfVersion,
        body: Annotated[rest.BaseModelPut, Depends(body_of(rest.BaseModelPut))],
    ) -> rest.DeclaredModel:
        written = await store.put_base_model(body.to_spec(name), if_version=if_version)
        _tell(written, response)
        return rest.DeclaredModel(name=written.stored.value.name)

    @router.delete("/{name:path}", status_code=HTTPStatus.NO_CONTENT)
    async def delete_model(name: str, if_version: IfVersion) -> None:
        await store.delete_base_model(public_name(name, path="name"), if_version=if_version)

    return router


def _view_routes(view: Callable[[], AdminView], watches: Watches) -> APIRouter:
    router = APIRouter(tags=["view"])

    @router.get("/nodes", response_model=views.NodeList)
    async def list_nodes() -> Response:
        return await _list(b"nodes", (node_json(seen) for seen in _all(watches.nodes)))

    @router.get("/nodes/{node}", response_model=views.NodeView)
    async def get_node(node: str) -> Response:
        seen = watches.nodes.seen_node(NodeId(token(node, path="node")))
        if seen is None:
            raise NotFoundError(f"no node {node!r} is known")
        return Response(node_json(seen), media_type=_JSON)

    @router.get("/engines", response_model=views.EngineList)
    async def list_engines() -> Response:
        engines = (
            views.EngineView.of(seen.state, engine).model_dump_json().encode()
            for seen in _all(watches.nodes)
            for engine in sorted(seen.state.engines, key=lambda e: e.engine)
        )
        return await _list(b"engines", engines)

    @router.get("/watch", response_class=Response, status_code=200, responses=_EVENTS)
    async def watch(node: WatchedNodes = ()) -> Response:
        return WatchResponse(watches, [NodeId(token(name, path="node")) for name in node])

    @router.get("/status")
    async def status() -> rest.Status:
        regions = sorted(view().regions.items())
        return rest.Status(regions={name: _region(seen) for name, seen in regions})

    return router


async def _list(name: bytes, items: Iterable[bytes]) -> Response:
    """An object of one list. Others get their turn on the way: of a large region it is long."""
    made: list[bytes] = []
    for item in items:
        made.append(item)
        if len(made) % _ITEMS_A_TURN == 0:
            await asyncio.sleep(0)
    return Response(b'{"%b":[%b]}' % (name, b",".join(made)), media_type=_JSON)


def _etag(stored: Stored[AdapterSpec] | Stored[BaseModelSpec]) -> str:
    return f'"{stored.version}"'


def _tell(written: Written[AdapterSpec] | Written[BaseModelSpec], response: Response) -> None:
    response.headers[headers.ETAG] = _etag(written.stored)
    response.headers[headers.OUTCOME] = written.outcome
    if written.outcome is Outcome.CREATED:
        response.status_code = HTTPStatus.CREATED


def _served(view: AdminView) -> set[str]:
    """The base models of all engines seen."""
    return {model for region in view.regions.values() for model in region.base_models}


def _all(nodes: SeenNodes) -> Iterator[SeenNode]:
    """Each node as it is when its turn comes, by name."""
    for name in sorted(nodes.node_names()):
        seen = nodes.seen_node(name)
        if seen is not None:
            yield seen


def _region(seen: SeenRegion) -> rest.RegionStatus:
    return rest.RegionStatus(
        nodes=seen.nodes,
        engines=seen.engines,
        adapters=seen.adapters,
        degraded=seen.degraded,
        view_age_ms=seen.view_age_ms,
    )
