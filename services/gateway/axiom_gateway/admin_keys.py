"""API keys over REST: made, given another role, tenant or secret, withdrawn.

A secret is told in the answer that made it and nowhere else: at rest there is its digest, which is
in no answer. The last admin's key stays, unless this gateway has one of its own.

A write is acknowledged once all gateways of the region go by it. One that they did not confirm in
time is an error, unless its answer has a secret: that would be lost with it. The answer names those
that did not confirm it.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import replace
from http import HTTPStatus
from typing import Any

from fastapi import APIRouter, Depends, Request, Response

from axiom_common.errors import ConflictError, NameTakenError, NotFoundError
from axiom_common.model.access import ApiKey, Role
from axiom_common.model.ids import GatewayId
from axiom_common.runtime.api_secret import new_secret
from axiom_common.runtime.desired_store import ANY_VERSION, TURN_TIMEOUT_S, DesiredStore, Outcome
from axiom_common.wire import headers, rest
from axiom_common.wire.desired import Stored
from axiom_gateway.admin_access import OWN_KEY, Access, Needs, digest_of
from axiom_gateway.admin_bodies import may_take, parsed_body, parsed_if_any, takes
from axiom_gateway.admin_objects import Kind, Name, Objects, add_patch_and_delete, add_reads
from axiom_gateway.admin_problems import AdminError
from axiom_gateway.admin_writes import Write, WriteAsked
from axiom_gateway.everywhere import Confirm, NotEverywhereError, Unconfirmed
from axiom_gateway.known_desired import KnownDesired

KEYS_MAX = 1_000


class LastAdminKeyError(AdminError):
    """Without this key nobody could make keys any more."""

    code = "last-admin-key"
    status = HTTPStatus.CONFLICT

    def __init__(self, name: str) -> None:
        super().__init__(
            f"{name!r} is the last key of an admin: make another one first", path="name"
        )


class Keys(Objects[ApiKey]):
    """What the routes do. `unix_s` is the wall time, `confirm` asks all gateways."""

    def __init__(
        self,
        store: DesiredStore,
        known: KnownDesired,
        access: Access,
        *,
        confirm: Confirm,
        unix_s: Callable[[], float],
    ) -> None:
        super().__init__(_kind(known, access), store, known)
        self._access = access
        self._confirm = confirm
        self._unix_s = unix_s
        self._turn = asyncio.Lock()

    async def put_key(
        self, name: str, body: rest.ApiKeyPut, asked: Write, response: Response
    ) -> rest.DeclaredShape:
        """Make a key, its secret in the answer, or give it another role and tenant."""
        secret = new_secret()
        made = ApiKey(
            name=name,
            role=body.role,
            tenant=body.tenant,
            digest=digest_of(secret),
            created_ms=int(self._unix_s() * 1e3),
        )

        def edit(current: ApiKey | None) -> ApiKey:
            return made if current is None else _changed(current, body)

        shape, outcome = await self.change(name, edit, asked, response)
        unconfirmed = await self._unconfirmed(shape.version, asked)
        if outcome is Outcome.CREATED:
            return shape if asked.dry_run else _telling(shape, secret, unconfirmed, response)
        return shape.model_copy(update={"without": _all_but(unconfirmed, name)})

    async def rotate(self, name: str, asked: Write, response: Response) -> rest.DeclaredShape:
        """Give it another secret, told in the answer; the one before is void."""
        secret = new_secret()

        def edit(current: ApiKey | None) -> ApiKey:
            if current is None:
                raise NotFoundError(f"{name!r} is not declared")
            return replace(current, digest=digest_of(secret))

        shape, _ = await self.change(name, edit, asked, response)
        unconfirmed = await self._unconfirmed(shape.version, asked)
        return shape if asked.dry_run else _telling(shape, secret, unconfirmed, response)

    async def patch(
        self, name: str, patch: Mapping[str, Any], asked: Write, response: Response
    ) -> rest.DeclaredShape:
        """Give it another role or tenant."""
        shape = await super().patch(name, patch, asked, response)
        without = _all_but(await self._unconfirmed(shape.version, asked), name)
        return shape.model_copy(update={"without": without})

    async def change(
        self,
        name: str,
        edit: Callable[[ApiKey | None], ApiKey],
        asked: Write,
        response: Response,
    ) -> tuple[rest.DeclaredShape, Outcome]:
        """As of any object, but an admin's key that was the last one is put back."""
        before: ApiKey | None = None
        after: ApiKey | None = None

        def noted(current: ApiKey | None) -> ApiKey:
            nonlocal before, after
            before, after = current, edit(current)
            return after

        async with self._in_turn():
            changed = await super().change(name, noted, asked, response)
            if not asked.dry_run and _is_admin(before) and not _is_admin(after):
                await self._keep_an_admin(before, ANY_VERSION)
        return changed

    async def delete(self, name: str, asked: Write, response: Response) -> int:
        """As of any object, but an admin's key that was the last one is put back."""
        async with self._in_turn():
            before = await self._store.get(ApiKey, name)
            revision = await super().delete(name, asked, response)
            if before is not None and not asked.dry_run and _is_admin(before.value):
                await self._keep_an_admin(before.value, None)
        if without := _all_but(await self._unconfirmed(revision, asked), name):
            response.headers[headers.WITHOUT] = ", ".join(without)
        return revision

    @asynccontextmanager
    async def _in_turn(self) -> AsyncIterator[None]:
        """One write of keys after the other, each known here before the next looks which admins'
        keys there are; ConflictError when it does not get its turn in time."""
        try:
            async with asyncio.timeout(TURN_TIMEOUT_S):
                await self._turn.acquire()
        except TimeoutError as error:
            raise ConflictError("others keep writing keys") from error
        try:
            yield
        finally:
            self._turn.release()

    async def _unconfirmed(self, revision: int, asked: Write) -> Unconfirmed:
        return Unconfirmed() if asked.dry_run else await self._confirm(revision)

    async def _keep_an_admin(self, before: ApiKey | None, if_version: int | None) -> None:
        """Look again, as another gateway may have taken away another admin's key meanwhile."""
        assert before is not None
        if self._access.has_own:
            return
        for name in _admins_but(before.name, self._known):
            other = await self._store.get(ApiKey, name)
            if other is not None and _is_admin(other.value):
                return
        await self._store.put(before, if_version=if_version)
        raise LastAdminKeyError(before.name)


def add_keys(router: APIRouter, keys: Keys) -> None:
    """Add the routes."""
    needs: list[Any] = [Depends(Needs(Role.ADMIN))]
    kind = keys.kind

    # Before the routes of one key, whose names may have any end.
    @router.post(
        "/keys/{name:path}:rotate",
        response_model=kind.shown,
        dependencies=needs,
        tags=[kind.path],
        openapi_extra=may_take(rest.KeyRotatePost),
    )
    async def rotate(name: Name, asked: WriteAsked, request: Request, response: Response) -> Any:
        await parsed_if_any(request, rest.KeyRotatePost)
        return await keys.rotate(name, asked, response)

    add_reads(router, keys)

    @router.put(
        "/keys/{name:path}",
        response_model=kind.shown,
        responses={HTTPStatus.CREATED: {"model": kind.shown}},
        dependencies=needs,
        tags=[kind.path],
        openapi_extra=takes(kind.body),
    )
    async def put(name: Name, asked: WriteAsked, request: Request, response: Response) -> Any:
        body = await parsed_body(request, rest.ApiKeyPut)
        body.name_like(name)
        return await keys.put_key(name, body, asked, response)

    add_patch_and_delete(router, keys)


def _kind(known: KnownDesired, access: Access) -> Kind[ApiKey]:
    def value(_: str, body: Any, current: ApiKey | None) -> ApiKey:
        assert isinstance(body, rest.ApiKeyPut)
        assert current is not None
        body.name_like(current.name)
        return _changed(current, body)

    def shape(stored: Stored[ApiKey], staleness_ms: float) -> rest.ApiKeyView:
        return rest.ApiKeyView.of(stored, staleness_ms=staleness_ms)

    def guard(name: str, wanted: ApiKey | None) -> None:
        if name == OWN_KEY:
            raise NameTakenError(f"{name!r} is what a gateway calls its own key", path="name")
        if _is_admin(wanted) or access.has_own:
            return
        others = _admins_but(name, known)
        if not others and _is_admin(_key(known, name)):
            raise LastAdminKeyError(name)

    return Kind(
        path="keys",
        of=ApiKey,
        body=rest.ApiKeyPut,
        shown=rest.ApiKeyView,
        read=Role.ADMIN,
        write=Role.ADMIN,
        count_max=KEYS_MAX,
        value=value,
        shape=shape,
        guard=guard,
    )


def _changed(key: ApiKey, body: rest.ApiKeyPut) -> ApiKey:
    return replace(key, role=body.role, tenant=body.tenant)


def _key(known: KnownDesired, name: str) -> ApiKey | None:
    stored = known.one(ApiKey, name)
    return stored.value if stored is not None else None


def _admins_but(name: str, known: KnownDesired) -> list[str]:
    keys = (stored.value for stored in known.stored(ApiKey))
    return [key.name for key in keys if key.name != name and _is_admin(key)]


def _is_admin(key: ApiKey | None) -> bool:
    return key is not None and key.role is Role.ADMIN


def _all_but(unconfirmed: Unconfirmed, name: str) -> tuple[GatewayId, ...]:
    """All confirmed a key's change but these, for whom nobody waits; else NotEverywhereError."""
    if unconfirmed.late:
        raise NotEverywhereError(f"the change of the key {name!r}", unconfirmed.late)
    return unconfirmed.missing


def _telling(
    shape: rest.DeclaredShape, secret: str, unconfirmed: Unconfirmed, response: Response
) -> rest.DeclaredShape:
    """The answer with the secret, which nobody on the way may keep."""
    response.headers[headers.CACHE_CONTROL] = "no-store"
    return shape.model_copy(update={"secret": secret, "without": unconfirmed.names})
