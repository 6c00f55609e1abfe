"""The admin API's own description: OpenAPI 3.1, at `/admin/v1/openapi.json`."""

from __future__ import annotations

from typing import Any

from fastapi import Depends, FastAPI
from fastapi.openapi.utils import get_openapi

from axiom_common.model.access import Role
from axiom_gateway.admin_access import Needs


def add_openapi(app: FastAPI) -> None:
    """Add the route; what it tells is made when it is first asked for."""

    @app.router.get(
        "/openapi.json", dependencies=[Depends(Needs(Role.VIEWER))], include_in_schema=False
    )
    async def openapi() -> dict[str, Any]:
        if app.openapi_schema is None:
            app.openapi_schema = openapi_of(app)
        return app.openapi_schema


def openapi_of(app: FastAPI) -> dict[str, Any]:
    """The description of all routes."""
    told = get_openapi(title=app.title, version=app.version, routes=app.routes)
    told["servers"] = [{"url": "/admin/v1"}]
    schemas = told.setdefault("components", {}).setdefault("schemas", {})
    for path in told["paths"].values():
        for operation in path.values():
            for content in operation.get("requestBody", {}).get("content", {}).values():
                # Bodies that handlers read by themselves bring the shapes within them along.
                schemas |= content["schema"].pop("$defs", {})
    return told
