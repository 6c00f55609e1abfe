"""The admin REST API, `/admin/v1`: desired state, and what this gateway sees of the fleet.

A write is acknowledged once it is durable in the registry. Its ETag is the record's version there,
and If-Match is honoured. Every error is a problem document (RFC 9457) with a stable code.

| code | status |
| --- | --- |
| invalid-input (with `path`) | 400 |
| not-found | 404 |
| method-not-allowed | 405 |
| conflict | 409 |
| precondition-failed | 412 |
| too-large | 413 |
| unavailable (with Retry-After) | 503 |
| invalid-message (a stored record does not parse), internal | 500 |
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from http import HTTPStatus
from typing import Annotated, Any, TypeVar

from fastapi import APIRouter, Depends, FastAPI, Header, Query, Request, Response
from fastapi.exceptions import RequestValidationError
from pydantic import BaseModel, ValidationError
from starlette.exceptions import HTTPException

from axiom_common.errors import (
    AxiomError,
    ConflictError,
    InvalidInputError,
    NotFoundError,
    PreconditionError,
    UnavailableError,
)
from axiom_common.model.adapter import AdapterSpec, BaseModelSpec
from axiom_common.model.engine import NodeState
from axiom_common.model.ids import RegionId, public_name
from axiom_common.ports.registry import Bucket
from axiom_common.runtime.desired_store import (
    ANY_VERSION,
    DesiredStore,
    Outcome,
    Stored,
    Written,
)
from axiom_common.wire import headers, rest

RETRY_AFTER_S = 2


@dataclass(frozen=True, slots=True, kw_only=True)
class SeenNode:
    """A node in the gateway's view. `heard_age_ms` None: known from the shadow cache only."""

    state: NodeState
    liveness: str
    heard_age_ms: float | None


@dataclass(frozen=True, slots=True, kw_only=True)
class SeenRegion:
    """One region in the gateway's view. `adapters` counts the declared ones it may serve."""

    nodes: tuple[SeenNode, ...]
    adapters: int
    degraded: tuple[str, ...]
    view_age_ms: float | None


@dataclass(frozen=True, slots=True, kw_only=True)
class AdminView:
    """What the gateway sees, at one moment."""

    regions: Mapping[RegionId, SeenRegion]


class _TooLargeError(AxiomError):
    code = "too-large"


_STATUS: tuple[tuple[type[AxiomError], HTTPStatus], ...] = (
    (InvalidInputError, HTTPStatus.BAD_REQUEST),
    (NotFoundError, HTTPStatus.NOT_FOUND),
    (ConflictError, HTTPStatus.CONFLICT),
    (PreconditionError, HTTPStatus.PRECONDITION_FAILED),
    (_TooLargeError, HTTPStatus.REQUEST_ENTITY_TOO_LARGE),
    (UnavailableError, HTTPStatus.SERVICE_UNAVAILABLE),
)


def admin_app(desired: Bucket, view: Callable[[], AdminView]) -> FastAPI:
    """The app to mount at /admin/v1. `desired` is the bucket of desired state."""
    app = FastAPI(title="Axiom admin API", version="1", docs_url=None, redoc_url=None)
    store = DesiredStore(desired)
    app.include_router(_adapter_routes(store))
    app.include_router(_model_routes(store))
    app.include_router(_view_routes(view))
    app.add_exception_handler(AxiomError, _on_axiom_error)
    app.add_exception_handler(RequestValidationError, _on_invalid_parameter)
    app.add_exception_handler(HTTPException, _on_http_error)
    app.add_exception_handler(Exception, _on_defect)
    return app


_S = TypeVar("_S", bound=BaseModel)


def _body(shape: type[_S]) -> Callable[[Request], Awaitable[_S]]:
    """A dependency that reads the body as JSON of this shape, whatever its content type says."""

    async def read(request: Request) -> _S:
        body = bytearray()
        async for chunk in request.stream():
            body += chunk
            if len(body) > rest.BODY_BYTES_MAX:
                raise _TooLargeError(f"the body is above {rest.BODY_BYTES_MAX} bytes")
        try:
            return shape.model_validate_json(bytes(body))
        except ValidationError as error:
            raise _first(error.errors(include_url=False)) from error

    return read


def _takes(shape: type[BaseModel]) -> dict[str, Any]:
    """The OpenAPI part that `_body` hides from FastAPI."""
    schema = shape.model_json_schema()
    return {"requestBody": {"required": True, "content": {"application/json": {"schema": schema}}}}


def _if_version(if_match: Annotated[str | None, Header()] = None) -> int | None:
    """The record's version that If-Match names; None without the header."""
    if if_match is None:
        return None
    if if_match == "*":
        return ANY_VERSION
    version = if_match.removeprefix('"').removesuffix('"')
    if if_match != f'"{version}"' or not (version.isascii() and version.isdecimal()):
        raise InvalidInputError("If-Match takes one ETag or *", path=headers.IF_MATCH)
    # No record is at version 0, which the store would read as "any".
    return int(version) or -1


IfVersion = Annotated[int | None, Depends(_if_version)]
Limit = Annotated[int, Query(ge=1, le=rest.PAGE_MAX)]


def _adapter_routes(store: DesiredStore) -> APIRouter:
    router = APIRouter(prefix="/adapters", tags=["adapters"])

    @router.get("")
    async def list_adapters(limit: Limit = rest.PAGE_MAX, after: str = "") -> rest.AdapterList:
        page = [s.value for s in await store.adapters() if s.value.name > after][: limit + 1]
        return rest.AdapterList(
            adapters=tuple(rest.Adapter.of(spec) for spec in page[:limit]),
            next=page[limit - 1].name if len(page) > limit else None,
        )

    @router.get("/{name:path}")
    async def get_adapter(name: str, response: Response) -> rest.Adapter:
        stored = await store.adapter(public_name(name, path="name"))
        if stored is None:
            raise NotFoundError(f"no adapter {name!r}")
        response.headers[headers.ETAG] = _etag(stored)
        return rest.Adapter.of(stored.value)

    @router.put("/{name:path}", openapi_extra=_takes(rest.AdapterPut))
    async def put_adapter(
        name: str,
        response: Response,
        if_version: IfVersion,
        body: Annotated[rest.AdapterPut, Depends(_body(rest.AdapterPut))],
    ) -> rest.Adapter:
        written = await store.put_adapter(body.to_spec(name), if_version=if_version)
        _tell(written, response)
        return rest.Adapter.of(written.stored.value)

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
            raise NotFoundError(f"no base model {name!r}")
        response.headers[headers.ETAG] = _etag(stored)
        return rest.DeclaredModel(name=stored.value.name)

    @router.put("/{name:path}", openapi_extra=_takes(rest.BaseModelPut))
    async def put_model(
        name: str,
        response: Response,
        if_version: IfVersion,
        body: Annotated[rest.BaseModelPut, Depends(_body(rest.BaseModelPut))],
    ) -> rest.DeclaredModel:
        written = await store.put_base_model(body.to_spec(name), if_version=if_version)
        _tell(written, response)
        return rest.DeclaredModel(name=written.stored.value.name)

    @router.delete("/{name:path}", status_code=HTTPStatus.NO_CONTENT)
    async def delete_model(name: str, if_version: IfVersion) -> None:
        await store.delete_base_model(public_name(name, path="name"), if_version=if_version)

    return router


def _view_routes(view: Callable[[], AdminView]) -> APIRouter:
    router = APIRouter(tags=["view"])

    @router.get("/nodes")
    async def list_nodes() -> rest.NodeList:
        return rest.NodeList(
            nodes=tuple(
                rest.NodeView.of(seen.state, liveness=seen.liveness, heard_age_ms=seen.heard_age_ms)
                for seen in _seen_nodes(view())
            )
        )

    @router.get("/engines")
    async def list_engines() -> rest.EngineList:
        return rest.EngineList(
            engines=tuple(
                rest.EngineView.of(seen.state, engine)
                for seen in _seen_nodes(view())
                for engine in sorted(seen.state.engines, key=lambda e: e.engine)
            )
        )

    @router.get("/status")
    async def status() -> rest.Status:
        regions = sorted(view().regions.items())
        return rest.Status(regions={name: _region(seen) for name, seen in regions})

    return router


def _etag(stored: Stored[AdapterSpec] | Stored[BaseModelSpec]) -> str:
    return f'"{stored.version}"'


def _tell(written: Written[AdapterSpec] | Written[BaseModelSpec], response: Response) -> None:
    response.headers[headers.ETAG] = _etag(written.stored)
    response.headers[headers.OUTCOME] = written.outcome
    if written.outcome is Outcome.CREATED:
        response.status_code = HTTPStatus.CREATED


def _seen_nodes(view: AdminView) -> list[SeenNode]:
    nodes = [node for region in view.regions.values() for node in region.nodes]
    return sorted(nodes, key=lambda seen: (seen.state.region, seen.state.node))


def _region(seen: SeenRegion) -> rest.RegionStatus:
    return rest.RegionStatus(
        nodes=len(seen.nodes),
        engines=sum(len(node.state.engines) for node in seen.nodes),
        adapters=seen.adapters,
        degraded=seen.degraded,
        view_age_ms=seen.view_age_ms,
    )


def _first(errors: list[Any]) -> InvalidInputError:
    """The first of pydantic's errors, and how many more there are."""
    found = errors[0]
    path = ".".join(str(part) for part in found["loc"]) or None
    more = f" (and {len(errors) - 1} more)" if len(errors) > 1 else ""
    return InvalidInputError(f"{path or 'body'}: {found['msg']}{more}", path=path)


def _problem(code: str, status: int, detail: str, *, path: str | None = None) -> Response:
    problem = rest.Problem(
        type=f"urn:axiom:problem:{code}",
        title=HTTPStatus(status).phrase,
        status=status,
        detail=detail,
        code=code,
        path=path,
    )
    response = Response(
        problem.model_dump_json(exclude_none=True), status, media_type=rest.PROBLEM_MEDIA_TYPE
    )
    if status == HTTPStatus.SERVICE_UNAVAILABLE:
        response.headers[headers.RETRY_AFTER] = str(RETRY_AFTER_S)
    return response


async def _on_axiom_error(_: Request, error: Exception) -> Response:
    assert isinstance(error, AxiomError)
    status = next(
        (status for kind, status in _STATUS if isinstance(error, kind)),
        HTTPStatus.INTERNAL_SERVER_ERROR,
    )
    path = error.path if isinstance(error, InvalidInputError) else None
    return _problem(error.code, status, str(error), path=path)


async def _on_invalid_parameter(request: Request, error: Exception) -> Response:
    assert isinstance(error, RequestValidationError)
    # The first part of the location says where the parameter stood: "query", "path".
    errors = [{**found, "loc": found["loc"][1:]} for found in error.errors()]
    return await _on_axiom_error(request, _first(errors))


async def _on_http_error(_: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)
    code = HTTPStatus(error.status_code).phrase.lower().replace(" ", "-")
    return _problem(code, error.status_code, str(error.detail))


async def _on_defect(_: Request, error: Exception) -> Response:
    """Tells no more than that it is our fault; the server logs the exception."""
    del error
    return _problem("internal", HTTPStatus.INTERNAL_SERVER_ERROR, "a defect of the gateway")
