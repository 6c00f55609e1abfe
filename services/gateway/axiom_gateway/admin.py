"""The admin REST API, `/admin/v1`: its parts put together.

Every request has a key (`admin_access`), every route a role. Errors are those of `admin_problems`.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from fastapi import APIRouter, Depends, FastAPI, Security
from fastapi.security import HTTPBearer

from axiom_common.drivers.system_clock import unix_s
from axiom_common.ports.registry import Bucket
from axiom_common.runtime.desired_store import DesiredStore
from axiom_gateway.admin_access import Access, Authenticated, require_roles
from axiom_gateway.admin_declared import adapters, base_models, profiles
from axiom_gateway.admin_idempotency import Idempotent
from axiom_gateway.admin_keys import Keys, add_keys
from axiom_gateway.admin_objects import Objects, add_patch_and_delete, add_put, add_reads
from axiom_gateway.admin_openapi import add_openapi
from axiom_gateway.admin_parameters import only_known_parameters
from axiom_gateway.admin_problems import answer_errors_as_problems
from axiom_gateway.admin_seen import AdminView, add_seen
from axiom_gateway.everywhere import Confirm, Unconfirmed
from axiom_gateway.known_desired import KnownDesired
from axiom_gateway.watch import Watches


async def alone(_: int) -> Unconfirmed:
    """How a gateway without peers confirms a revision."""
    return Unconfirmed()


AddRoutes = Callable[[APIRouter], None]


@dataclass(frozen=True, slots=True, kw_only=True)
class AdminParts:
    """What the API tells of and writes to. `requests` keeps the answers to writes that may be sent
    again; `confirm` asks all gateways; `unix_s` is the wall time; `more`: routes of others."""

    store: DesiredStore
    known: KnownDesired
    access: Access
    view: Callable[[], AdminView]
    watches: Watches
    requests: Bucket
    confirm: Confirm = alone
    unix_s: Callable[[], float] = unix_s
    more: tuple[AddRoutes, ...] = ()


def admin_app(parts: AdminParts) -> Authenticated:
    """The app to mount at /admin/v1; SettingsError when a route of it names no role."""
    app = FastAPI(
        title="Axiom admin API",
        version="1",
        openapi_url=None,
        docs_url=None,
        redoc_url=None,
        redirect_slashes=False,
        dependencies=[Security(HTTPBearer(auto_error=False)), Depends(only_known_parameters)],
    )

    def served() -> frozenset[str]:
        return parts.view().base_models

    kinds: list[Any] = [base_models(parts.known), adapters(parts.known, served), profiles()]
    for kind in kinds:
        objects = Objects(kind, parts.store, parts.known)
        add_reads(app.router, objects)
        add_put(app.router, objects)
        add_patch_and_delete(app.router, objects)
    add_keys(
        app.router,
        Keys(
            parts.store,
            parts.known,
            parts.access,
            confirm=parts.confirm,
            unix_s=parts.unix_s,
        ),
    )
    add_seen(app.router, parts.view, parts.watches)
    for add in parts.more:
        add(app.router)
    add_openapi(app)
    require_roles(app)
    answer_errors_as_problems(app)
    app.add_middleware(Idempotent, routes=app.routes, bucket=parts.requests)
    return Authenticated(app, parts.access, app.routes)
