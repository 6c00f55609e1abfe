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
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from http import HTTPStatus
from typing import Annotated, Any, Generic, TypeVar

from fastapi import APIRouter, Depends, Header, Path, Query, Request, Response
from pydantic import BaseModel, Field

from axiom_common.errors import NameTakenError, NotFoundError, UnavailableError
from axiom_common.model.access import Role
from axiom_common.model.ids import NAME_MAX, NAME_PATTERN
from axiom_common.runtime.desired_store import DesiredStore, Outcome
from axiom_common.wire import headers, rest
from axiom_common.wire.desired import Stored, T
from axiom_gateway.admin_access import Needs
from axiom_gateway.admin_bodies import parsed_body, patch_in, takes, takes_patch
from axiom_gateway.admin_lists import Found, ListQuery, cursor_behind, first_of, list_query
from axiom_gateway.admin_problems import AdminError
from axiom_gateway.admin_writes import Write, WriteAsked, etag_of, merged, names_etag, tell
from axiom_gateway.known_desired import KnownDesired

_R = TypeVar("_R")
ITEMS_A_TURN = 64
KEPT_BEYOND = 1_024
"""Items beside those of the page that wait to be sorted."""


class TooManyError(AdminError):
    """There are as many of a kind as there may be."""

    code = "too-many"
    status = HTTPStatus.CONFLICT


class ListAsked(BaseModel):
    """The parameters of every list."""

    filter: list[Annotated[str, Field(max_length=rest.FILTER_MAX)]] = Field(
        default=[], max_length=rest.FILTERS_MAX
    )
    sort: Annotated[str, Field(max_length=200)] | None = None
    limit: Annotated[int, Field(ge=1, le=rest.PAGE_MAX)] = rest.PAGE_DEFAULT
    cursor: (
        Annotated[
            str,
            Field(max_length=rest.CURSOR_MAX, json_schema_extra={"pattern": "^[A-Za-z0-9_-]*$"}),
        ]
        | None
    ) = None

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
Name = Annotated[str, Path(pattern=f"^{NAME_PATTERN}$", max_length=NAME_MAX)]
"""In a path: what people declared it as, slashes included."""


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
        self._built_in: dict[str, Stored[T]] = {one.value.name: one for one in kind.built_in}

    async def page(self, query: ListQuery) -> rest.Page[Any]:
        """A part of all of the kind."""
        staleness_ms = self._known.staleness_ms()
        names: Sequence[str] = self._known.names(self.kind.of)
        if self._built_in:
            names = sorted({*names, *self._built_in})

        def shape(name: str) -> BaseModel | None:
            found = self._seen(name)
            return self.kind.shape(found, staleness_ms) if found is not None else None

        cursor, items = await page_of(query, names, shape)
        return rest.Page[Any](items=items, next=cursor, staleness_ms=staleness_ms)

    async def get(self, name: str, response: Response) -> rest.DeclaredShape:
        """One of them; NotFoundError."""
        stored: Stored[T] | None = self._built_in.get(name)
        if stored is None:
            try:
                stored = await self._store.get(self.kind.of, name)
                self._known.reached()
            except UnavailableError:
                self._known.missed()
                if not self._known.synced:
                    raise
                stored = self._seen(name)
        if stored is None:
            raise NotFoundError(f"{name!r} is not declared")
        response.headers[headers.ETAG] = etag_of(stored.version)
        return self.kind.shape(stored, self._known.staleness_ms())

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

    async def delete(self, name: str, asked: Write, response: Response) -> int:
        """Withdraw it; NotFoundError. The registry's revision after it."""
        del response  # of those kinds that have something to say
        self._refuse_built_in(name)
        self.kind.guard(name, None)
        revision = await self._written(
            self._store.delete(
                self.kind.of, name, if_version=asked.if_version, dry_run=asked.dry_run
            )
        )
        await self._known.settled(revision)
        return revision

    async def change(
        self, name: str, edit: Callable[[T | None], T], asked: Write, response: Response
    ) -> tuple[rest.DeclaredShape, Outcome]:
        """Make it what `edit` makes of what stands; what stands then, and what was done."""
        self._refuse_built_in(name)

        def guarded(current: T | None) -> T:
            value = edit(current)
            self.kind.guard(name, value)
            if current is None and len(self._known.names(self.kind.of)) >= self.kind.count_max:
                raise TooManyError(
                    f"there are {self.kind.count_max} {self.kind.path} already", path="name"
                )
            return value

        written = await self._written(
            self._store.change(
                self.kind.of, name, guarded, if_version=asked.if_version, dry_run=asked.dry_run
            )
        )
        await self._known.settled(written.stored.version)
        tell(written.outcome, written.stored.version, response)
        return self.kind.shape(written.stored, 0.0), written.outcome

    async def _written(self, write: Awaitable[_R]) -> _R:
        """What a write gives, noting whether the registry answers."""
        try:
            done = await write
        except UnavailableError:
            self._known.missed()
            raise
        self._known.reached()
        return done

    def _seen(self, name: str) -> Stored[T] | None:
        """One, as far as it is known here."""
        return self._built_in.get(name) or self._known.one(self.kind.of, name)

    def _refuse_built_in(self, name: str) -> None:
        if name in self._built_in:
            raise NameTakenError(f"{name!r} is built in", path="name")


async def page_of(
    query: ListQuery, ids: Sequence[str], shape: Callable[[str], BaseModel | None]
) -> tuple[str | None, tuple[BaseModel, ...]]:
    """The cursor behind the page, and its items, of all `ids`, which are in order. One whose
    `shape` is None is gone by now. Others get their turn on the way."""
    by_id = not query.order.path
    start = bisect_right(ids, query.after.id) if by_id and query.after is not None else 0
    found: list[Found] = []
    # A copy, as items come and go in between.
    for count, id_ in enumerate(ids[start:], start=1):
        item = shape(id_)
        if item is not None and (one := query.found(id_, item)) is not None:
            found.append(one)
        if by_id and len(found) > query.limit:
            break
        if len(found) > query.limit + KEPT_BEYOND:
            found = first_of(query, found)
        if count % ITEMS_A_TURN == 0:
            await asyncio.sleep(0)
    page = first_of(query, found)
    cursor = cursor_behind(query, page[query.limit - 1]) if len(page) > query.limit else None
    return cursor, tuple(one.item for one in page[: query.limit])


def add_reads(router: APIRouter, objects: Objects[T]) -> None:
    """Add GET of the list and of one."""
    kind = objects.kind
    needs: list[Any] = [Depends(Needs(kind.read))]
    page: Any = rest.Page[kind.shown]  # type: ignore[name-defined]  # made at run time

    @router.get(f"/{kind.path}", response_model=page, dependencies=needs, tags=[kind.path])
    async def list_(asked: AskedList) -> Response:
        return page_response(await objects.page(asked.of(kind.shown, kind.path)))

    @router.get(_one(kind), response_model=kind.shown, dependencies=needs, tags=[kind.path])
    async def get(
        name: Name, response: Response, if_none_match: Annotated[str | None, Header()] = None
    ) -> Any:
        shape = await objects.get(name, response)
        etag = response.headers[headers.ETAG]
        if if_none_match is not None and names_etag(if_none_match, etag):
            return Response(status_code=HTTPStatus.NOT_MODIFIED, headers={headers.ETAG: etag})
        return shape


def add_put(router: APIRouter, objects: Objects[T]) -> None:
    """Add PUT."""
    kind = objects.kind

    @router.put(
        _one(kind),
        response_model=kind.shown,
        responses={HTTPStatus.CREATED: {"model": kind.shown}},
        dependencies=[Depends(Needs(kind.write))],
        tags=[kind.path],
        openapi_extra=takes(kind.body),
    )
    async def put(name: Name, asked: WriteAsked, request: Request, response: Response) -> Any:
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
    async def patch(name: Name, asked: WriteAsked, request: Request, response: Response) -> Any:
        return await objects.patch(name, await patch_in(request), asked, response)

    @router.delete(
        _one(kind), status_code=HTTPStatus.NO_CONTENT, dependencies=needs, tags=[kind.path]
    )
    async def delete(name: Name, asked: WriteAsked, response: Response) -> None:
        await objects.delete(name, asked, response)


def page_response(page: rest.Page[Any]) -> Response:
    """A page as an answer, its items not looked at once more."""
    return Response(page.model_dump_json(), media_type="application/json")


def _one(kind: Kind[T]) -> str:
    return f"/{kind.path}/{{name:path}}"
