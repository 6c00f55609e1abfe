"""The admin REST API, `/admin/v1`: its parts put together.

Every request has a key (`admin_access`), every route a role. Errors are those of `admin_problems`.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from fastapi import APIRouter, FastAPI, Security
from fastapi.security import HTTPBearer

from axiom_common.runtime.desired_store import DesiredStore
from axiom_gateway.admin_access import Access, authenticated, require_roles
from axiom_gateway.admin_declared import adapters, base_models
from axiom_gateway.admin_objects import Objects, add_patch_and_delete, add_put, add_reads
from axiom_gateway.admin_openapi import add_openapi
from axiom_gateway.admin_problems import answer_errors_as_problems
from axiom_gateway.admin_seen import AdminView, add_seen
from axiom_gateway.asgi import App
from axiom_gateway.known_desired import KnownDesired
from axiom_gateway.watch import Watches

AddRoutes = Callable[[APIRouter], None]


@dataclass(frozen=True, slots=True, kw_only=True)
class AdminParts:
    """What the API tells of and writes to. `more`: routes of other modules."""

    store: DesiredStore
    known: KnownDesired
    access: Access
    view: Callable[[], AdminView]
    watches: Watches
    more: tuple[AddRoutes, ...] = ()


def admin_app(parts: AdminParts) -> App:
    """The app to mount at /admin/v1; SettingsError when a route of it names no role."""
    app = FastAPI(
        title="Axiom admin API",
        version="1",
        openapi_url=None,
        docs_url=None,
        redoc_url=None,
        redirect_slashes=False,
        dependencies=[Security(HTTPBearer(auto_error=False))],
    )

    def served() -> frozenset[str]:
        return parts.view().base_models

    kinds: list[Any] = [base_models(), adapters(parts.known, served)]
    for kind in kinds:
        objects = Objects(kind, parts.store, parts.known)
        add_reads(app.router, objects)
        add_put(app.router, objects)
        add_patch_and_delete(app.router, objects)
    add_seen(app.router, parts.view, parts.watches)
    for add in parts.more:
        add(app.router)
    add_openapi(app)
    require_roles(app)
    answer_errors_as_problems(app)
    return authenticated(app, parts.access)
