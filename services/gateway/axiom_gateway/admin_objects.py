"""Declared objects over REST: one grammar for every kind of them.

    GET    /KIND            a page (`admin_lists`)
    GET    /KIND/{name}     one, with its ETag
    PUT    /KIND/{name}     make it, or make it so
    PATCH  /KIND/{name}     change some fields (merge patch)
    DELETE /KIND/{name}     withdraw it

To change what exists takes If-Match. A write is acknowledged once it is durable, and this gateway
has taken it over itself. Reads go on while the registry is away, and say how old they are.
"""

from __future__ import annotations

import asyncio
from bisect import bisect_right
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from http import HTTPStatus
from typing import Annotated, Any, Generic

from fastapi import APIRouter, Depends, Query, Request, Response
from pydantic import BaseModel, ConfigDict, Field

from axiom_common.errors import NameTakenError, NotFoundError, UnavailableError
from axiom_common.model.access import Role
from axiom_common.model.ids import public_name
from axiom_common.runtime.desired_store import DesiredStore, Outcome
from axiom_common.wire import headers, rest
from axiom_common.wire.desired import Stored, T
from axiom_gateway.admin_access import Needs
from axiom_gateway.admin_bodies import parsed_body, patch_in, takes, takes_patch
from axiom_gateway.admin_lists import ListQuery, cursor_behind, list_query, sorted_page
from axiom_gateway.admin_problems import AdminError
from axiom_gateway.admin_writes import Write, WriteAsked, etag_of, merged, tell
from axiom_gateway.known_desired import KnownDesired

ITEMS_A_TURN = 64


class TooManyError(AdminError):
    """There are as many of a kind as there may be."""

    code = "too-many"
    status = HTTPStatus.CONFLICT


class ListAsked(BaseModel):
    """The parameters of every list; others are refused."""

    model_config = ConfigDict(extra="forbid")

    filter: list[Annotated[str, Field(max_length=rest.FILTER_MAX)]] = Field(
        default=[], max_length=rest.FILTERS_MAX
    )
    sort: Annotated[str, Field(max_length=200)] | None = None
    limit: Annotated[int, Field(ge=1, le=rest.PAGE_MAX)] = rest.PAGE_DEFAULT
    cursor: Annotated[str, Field(max_length=rest.CURSOR_MAX)] | None = None

    def of(self, shape: type[BaseModel], name: str) -> ListQuery:
        """The query that these parameters ask of the list `name`."""
        return list_query(
            shape,
            name=name,
            filters=self.filter,
            sort=self.sort,
            limit=self.limit,
            cursor=self.cursor,
        )


AskedList = Annotated[ListAsked, Query()]


@dataclass(frozen=True, slots=True, kw_only=True)
class Kind(Generic[T]):
    """One kind of declared objects. `count_max` bounds how many there may be.

    `value` makes a value of a name, a body and what stands there now, or raises; `shape` what
    people see of a stored one, with its staleness. `built_in` are shown with the others. `guard` is
    asked before one is changed into a value, or withdrawn (None); it raises to refuse.
    """

    path: str
    of: type[T]
    body: type[rest.Body]
    shown: type[rest.DeclaredShape]
    read: Role
    write: Role
    count_max: int
    value: Callable[[str, Any, T | None], T]
    shape: Callable[[Stored[T], float], rest.DeclaredShape]
    built_in: tuple[Stored[T], ...] = ()
    guard: Callable[[str, T | None], None] = lambda _name, _value: None


class Objects(Generic[T]):
    """What the routes of a kind do."""

    def __init__(self, kind: Kind[T], store: DesiredStore, known: KnownDesired) -> None:
        self.kind: Kind[T] = kind
        self._store = store
        self._known = known
        self._built_in: dict[str, Stored[T]] = {
            stored.value.name: stored for stored in kind.built_in
        }

    async def page(self, query: ListQuery) -> rest.Page[Any]:
        """A part of all of the kind."""
        staleness_ms = self._known.staleness_ms()
        stored = {one.value.name: one for one in self._known.stored(self.kind.of)}

        all_: dict[str, Stored[T]] = self._built_in | stored

        def shape(name: str) -> BaseModel:
            return self.kind.shape(all_[name], staleness_ms)

        cursor, items = await page_of(query, sorted(all_), shape)
        return rest.Page[Any](items=items, next=cursor, staleness_ms=staleness_ms)

    async def get(self, name: str, response: Response) -> rest.DeclaredShape:
        """One of them; NotFoundError."""
        try:
            stored = await self._store.get(self.kind.of, name)
            self._known.reached()
        except UnavailableError as error:
            self._known.missed(error)
            known = self._known.stored(self.kind.of)
            stored = next((one for one in known if one.value.name == name), None)
        staleness_ms = self._known.staleness_ms()
        stored = stored or self._built_in.get(name)
        if stored is None:
            raise NotFoundError(f"{name!r} is not declared")
        response.headers[headers.ETAG] = etag_of(stored.version)
        return self.kind.shape(stored, staleness_ms)

    async def put(
        self, name: str, wanted: rest.Body, asked: Write, response: Response
    ) -> tuple[rest.DeclaredShape, Outcome]:
        """Make it, or make it so; what stands then, and what was done."""
        return await self.change(
            name, lambda current: self.kind.value(name, wanted, current), asked, response
        )

    async def patch(
        self, name: str, patch: Mapping[str, Any], asked: Write, response: Response
    ) -> rest.DeclaredShape:
        """Change some fields; NotFoundError when there is nothing to change."""

        def edit(current: T | None) -> T:
            if current is None:
                raise NotFoundError(f"{name!r} is not declared")
            shown = self.kind.shape(Stored(current, 0), 0.0)
            return self.kind.value(name, merged(shown, patch, self.kind.body), current)

        shape, _ = await self.change(name, edit, asked, response)
        return shape

    async def delete(self, name: str, asked: Write) -> None:
        """Withdraw it; NotFoundError."""
        self._refuse_built_in(name)
        self.kind.guard(name, None)
        revision = await self._store.delete(
            self.kind.of, name, if_version=asked.if_version, dry_run=asked.dry_run
        )
        await self._known.settled(revision)

    async def change(
        self, name: str, edit: Callable[[T | None], T], asked: Write, response: Response
    ) -> tuple[rest.DeclaredShape, Outcome]:
        """Make it what `edit` makes of what stands; what stands then, and what was done."""
        public_name(name, path="name")
        self._refuse_built_in(name)

        def guarded(current: T | None) -> T:
            value = edit(current)
            self.kind.guard(name, value)
            if current is None and len(self._known.stored(self.kind.of)) >= self.kind.count_max:
                raise TooManyError(f"there are {self.kind.count_max} {self.kind.path} already")
            return value

        written = await self._store.change(
            self.kind.of, name, guarded, if_version=asked.if_version, dry_run=asked.dry_run
        )
        await self._known.settled(written.stored.version)
        tell(written.outcome, written.stored.version, response)
        return self.kind.shape(written.stored, 0.0), written.outcome

    def _refuse_built_in(self, name: str) -> None:
        if name in self._built_in:
            raise NameTakenError(f"{name!r} is built in", path="name")


async def page_of(
    query: ListQuery, ids: Sequence[str], shape: Callable[[str], BaseModel | None]
) -> tuple[str | None, tuple[BaseModel, ...]]:
    """The cursor behind the page, and its items: of all `ids`, in order, those that the filters let
    through. One whose `shape` is None is gone by now. Others get their turn on the way."""
    by_id = not query.order.path
    if by_id and query.after is not None:
        ids = ids[bisect_right(ids, query.after.id) :]
    found: dict[str, BaseModel] = {}
    for count, id_ in enumerate(ids, start=1):
        item = shape(id_)
        if item is not None and all(one.holds(item) for one in query.filters):
            found[id_] = item
        if by_id and len(found) > query.limit:
            break
        if count % ITEMS_A_TURN == 0:
            await asyncio.sleep(0)
    page = list(found) if by_id else sorted_page(query, found)
    more = len(page) > query.limit
    page = page[: query.limit]
    cursor = cursor_behind(query, page[-1], found[page[-1]]) if more else None
    return cursor, tuple(found[id_] for id_ in page)


def add_reads(router: APIRouter, objects: Objects[T]) -> None:
    """Add GET of the list and of one."""
    kind = objects.kind
    needs: list[Any] = [Depends(Needs(kind.read))]
    page: Any = rest.Page[kind.shown]  # type: ignore[name-defined]  # made at run time

    @router.get(f"/{kind.path}", response_model=page, dependencies=needs, tags=[kind.path])
    async def list_(asked: AskedList) -> Response:
        return page_response(await objects.page(asked.of(kind.shown, kind.path)))

    @router.get(_one(kind), response_model=kind.shown, dependencies=needs, tags=[kind.path])
    async def get(name: str, response: Response) -> Any:
        return await objects.get(public_name(name, path="name"), response)


def add_put(router: APIRouter, objects: Objects[T]) -> None:
    """Add PUT."""
    kind = objects.kind

    @router.put(
        _one(kind),
        response_model=kind.shown,
        dependencies=[Depends(Needs(kind.write))],
        tags=[kind.path],
        openapi_extra=takes(kind.body),
    )
    async def put(name: str, asked: WriteAsked, request: Request, response: Response) -> Any:
        body = await parsed_body(request, kind.body)
        shape, _ = await objects.put(name, body, asked, response)
        return shape


def add_patch_and_delete(router: APIRouter, objects: Objects[T]) -> None:
    """Add PATCH and DELETE."""
    kind = objects.kind
    needs: list[Any] = [Depends(Needs(kind.write))]

    @router.patch(
        _one(kind),
        response_model=kind.shown,
        dependencies=needs,
        tags=[kind.path],
        openapi_extra=takes_patch(kind.body),
    )
    async def patch(name: str, asked: WriteAsked, request: Request, response: Response) -> Any:
        return await objects.patch(name, await patch_in(request), asked, response)

    @router.delete(
        _one(kind), status_code=HTTPStatus.NO_CONTENT, dependencies=needs, tags=[kind.path]
    )
    async def delete(name: str, asked: WriteAsked) -> None:
        await objects.delete(public_name(name, path="name"), asked)


def page_response(page: rest.Page[Any]) -> Response:
    """A page as an answer, its items not looked at once more."""
    return Response(page.model_dump_json(), media_type="application/json")


def _one(kind: Kind[T]) -> str:
    return f"/{kind.path}/{{name:path}}"
