"""Who may use the admin API: each request has a key, each route a role that the key must grant.

The key is looked at before the route: who has none learns nothing, not even which paths there are.
A route without a role is a defect that keeps the gateway from starting.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable, Mapping, Sequence
from http import HTTPStatus
from typing import Final

from fastapi import FastAPI, Request
from fastapi.routing import APIRoute
from starlette.requests import HTTPConnection
from starlette.routing import BaseRoute

from axiom_common.errors import AxiomError, SettingsError, UnavailableError
from axiom_common.model.access import ApiKey, Role
from axiom_common.runtime.settings import SECRET_MAX
from axiom_common.wire import headers
from axiom_gateway.admin_problems import AdminError, UnauthenticatedError, problem_of
from axiom_gateway.asgi import App, Receive, Scope, Send

OWN_KEY = "admin-key-file"
"""What the key is called that a gateway has from its settings."""
_GIVEN = re.compile(rf"bearer +([!-~]{{1,{SECRET_MAX}}}) *", re.IGNORECASE)
HEARD_MAX = 1024
HEARD_BYTES_MAX = 256
"""Headers of /v1 that are remembered with their keys: how many, how long each."""
_KEY = "axiom.key"
"""In the scope of a request: the ApiKey that it came with."""


class ForbiddenError(AdminError):
    """The key does not grant this."""

    code = "forbidden"
    status = HTTPStatus.FORBIDDEN


def digest_of(secret: str) -> str:
    """What is kept of a secret. It is 256 bits of chance, so that a plain hash can't be reversed by
    trying."""
    return hashlib.sha256(secret.encode(errors="surrogateescape")).hexdigest()


def _secret_in(authorization: Sequence[str]) -> str | None:
    given = _GIVEN.fullmatch(authorization[0]) if len(authorization) == 1 else None
    return None if given is None else given[1]


class Access:
    """The keys in force. `known`: whether all of them were told yet. `admin_secret` is that of an
    admin's key which the registry does not know."""

    def __init__(self, known: Callable[[], bool], *, admin_secret: str | None = None) -> None:
        self._known = known
        self._own: dict[str, ApiKey] = {}
        if admin_secret is not None:
            digest = digest_of(admin_secret)
            self._own[digest] = ApiKey(name=OWN_KEY, role=Role.ADMIN, digest=digest)
        self._by_digest = self._own
        self._heard: dict[bytes, ApiKey | None] = {}

    def keys_changed(self, keys: Mapping[str, ApiKey]) -> None:
        """These are all keys from now on."""
        self._by_digest = {key.digest: key for key in keys.values()} | self._own
        self._heard.clear()

    @property
    def has_own(self) -> bool:
        """Whether there is a key that the registry does not know."""
        return bool(self._own)

    def key_in(self, authorization: Sequence[str]) -> ApiKey:
        """The key in a request's Authorization headers, of which there must be one.
        UnauthenticatedError when it is none, UnavailableError while that can't be known."""
        secret = _secret_in(authorization)
        if secret is None:
            raise UnauthenticatedError(
                "a key is needed: Authorization: Bearer SECRET", path=headers.AUTHORIZATION
            )
        key = self._by_digest.get(digest_of(secret))
        if key is not None:
            return key
        if not self._known():
            raise UnavailableError("which keys there are is not known yet")
        raise UnauthenticatedError("the key is not valid", path=headers.AUTHORIZATION)

    def key_of(self, authorization: bytes) -> ApiKey | None:
        """The key in an Authorization header, None for another word. Most clients send the same one
        again and again: then it costs a look-up."""
        if authorization in self._heard:
            return self._heard[authorization]
        secret = _secret_in([authorization.decode("latin-1")])
        key = None if secret is None else self._by_digest.get(digest_of(secret))
        if len(authorization) <= HEARD_BYTES_MAX:
            if len(self._heard) >= HEARD_MAX:
                self._heard.clear()
            self._heard[authorization] = key
        return key

    def grants(self, key: ApiKey, needed: Role) -> bool:
        """Whether a key that a request came with grants this still."""
        now = self._by_digest.get(key.digest)
        return now is not None and now.role.grants(needed)


class Needs:
    """A dependency of a route: the role that its caller must have."""

    def __init__(self, role: Role) -> None:
        self.role = role

    async def __call__(self, request: Request) -> None:
        """ForbiddenError when the caller's key grants less."""
        key = caller(request)
        if not key.role.grants(self.role):
            raise ForbiddenError(
                f"this needs the role {self.role}, {key.name!r} has {key.role}",
                path=headers.AUTHORIZATION,
            )


def caller(request: HTTPConnection) -> ApiKey:
    """The key that a request came with."""
    key = request.scope[_KEY]
    assert isinstance(key, ApiKey)
    return key


def role_of(route: APIRoute) -> Role | None:
    """The role that a route names."""
    roles = [
        dependant.call.role
        for dependant in route.dependant.dependencies
        if isinstance(dependant.call, Needs)
    ]
    return roles[0] if len(roles) == 1 else None


def require_roles(app: FastAPI) -> None:
    """SettingsError when a route names no role."""
    for route in app.routes:
        if not isinstance(route, APIRoute) or role_of(route) is None:
            raise SettingsError(f"admin API: the route {getattr(route, 'path', route)} has no role")


class Authenticated:
    """`app` for those with a key, who may then do what their key grants. `routes` are its own."""

    def __init__(self, app: App, access: Access, routes: Sequence[BaseRoute] = ()) -> None:
        self.routes: Final = routes
        self._app = app
        self._access = access

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one request."""
        given = HTTPConnection(scope).headers.getlist(headers.AUTHORIZATION)
        try:
            key = self._access.key_in(given)
        except AxiomError as error:
            await problem_of(error, scope)(scope, receive, send)
            return
        await self._app({**scope, _KEY: key}, receive, send)
