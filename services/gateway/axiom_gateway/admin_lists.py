"""The one grammar of lists: `?filter=` `?sort=` `?limit=` `?cursor=`. Pure.

A filter is `FIELD OP VALUE` without blanks, OP one of `FILTER_OPS`; all must hold.
FIELD is a field of the item's shape, dotted into what lies within; of a list within, one element is
enough. A null fits `=null` alone, and `!=` everything but that. Sorted is by one field, `-FIELD`
backwards, nulls last, ties and all else by the item's id. A cursor says behind which item to go on;
it fits the list, the filters and the order that it was given for.
"""

from __future__ import annotations

import base64
import hashlib
import json
import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from http import HTTPStatus
from types import NoneType, UnionType
from typing import Annotated, Any, Union, get_args, get_origin

from pydantic import BaseModel, TypeAdapter, ValidationError

from axiom_common.errors import InvalidInputError
from axiom_common.wire.rest import FILTER_OPS
from axiom_gateway.admin_problems import AdminError

_FILTER = re.compile(rf"([A-Za-z0-9_.-]+?)({'|'.join(FILTER_OPS)})(.*)", re.DOTALL)
_NULL = "null"
_COMPARE: dict[str, Callable[[Any, Any], bool]] = {
    "=": lambda found, wanted: found == wanted,
    "!=": lambda found, wanted: found != wanted,
    "<": lambda found, wanted: found is not None and found < wanted,
    "<=": lambda found, wanted: found is not None and found <= wanted,
    ">": lambda found, wanted: found is not None and found > wanted,
    ">=": lambda found, wanted: found is not None and found >= wanted,
    "~": lambda found, wanted: found is not None and wanted in found,
}
_CURSOR: TypeAdapter[tuple[str, str, str | int | float | bool | None]] = TypeAdapter(
    tuple[str, str, str | int | float | bool | None]
)
DIGEST_CHARS = 16
KINDS_MAX = 512
"""Fields that are kept with their types: of a map, whatever name a client gives is one."""
_ONLY_TEXT = "~"
_ONLY_KNOWN = ("<", "<=", ">", ">=", "~")


class WrongCursorError(AdminError):
    """A cursor that is none, or one of another list, filter or order."""

    code = "wrong-cursor"
    status = HTTPStatus.BAD_REQUEST


@dataclass(frozen=True, slots=True)
class Filter:
    """One condition on an item."""

    path: tuple[str, ...]
    op: str
    wanted: Any

    def holds(self, item: BaseModel) -> bool:
        """Whether any value at the path fulfils it; `!=`: whether all do."""
        compare = _COMPARE[self.op]
        found = (compare(value, self.wanted) for value in _values(item, self.path))
        return all(found) if self.op == "!=" else any(found)


@dataclass(frozen=True, slots=True)
class Order:
    """By one field; `path` empty: by id."""

    path: tuple[str, ...] = ()
    backwards: bool = False


@dataclass(frozen=True, slots=True)
class Position:
    """The last item that was given: its id, and its value in the order's field."""

    id: str
    value: Any = None


@dataclass(frozen=True, slots=True)
class Found:
    """An item that the filters let through, and its value in the order's field."""

    id: str
    value: Any
    item: BaseModel


@dataclass(frozen=True, slots=True)
class ListQuery:
    """What is asked of a list. `digest` stands for all of it but the cursor and the limit."""

    filters: tuple[Filter, ...]
    order: Order
    limit: int
    after: Position | None
    digest: str

    def found(self, id_: str, item: BaseModel) -> Found | None:
        """The item as one of the list from the cursor on; None when it is none of them."""
        if not all(one.holds(item) for one in self.filters):
            return None
        value = _value(item, self.order.path)
        if self.after is not None and not _is_behind(value, id_, self.after, self.order):
            return None
        return Found(id_, value, item)


def list_query(
    shape: type[BaseModel],
    *,
    name: str,
    filters: Sequence[str],
    sort: str | None,
    limit: int,
    cursor: str | None,
) -> ListQuery:
    """Read the parameters for the list `name` of `shape`; InvalidInputError with the parameter as
    path, or WrongCursorError."""
    asked = json.dumps([name, sorted(filters), sort]).encode()
    digest = hashlib.sha256(asked).hexdigest()[:DIGEST_CHARS]
    order = _order(shape, sort)
    return ListQuery(
        filters=tuple(_filter(shape, text) for text in filters),
        order=order,
        limit=limit,
        after=None if cursor is None else _position(cursor, digest, shape, order),
        digest=digest,
    )


def list_fields(shape: type[BaseModel], *, inside: bool) -> list[str]:
    """The fields to filter a list of `shape` by, dotted; not `inside` lists: those to sort it by.
    What maps names to values has one field for each name; `*` stands for it."""
    return [".".join(path) for path, many in _leaves(shape, ()) if inside or not many]


def _leaves(kind: Any, path: tuple[str, ...]) -> Iterator[tuple[tuple[str, ...], bool]]:
    """The single values below: where, and whether there may be many of them."""
    kind, many = _plain(kind)
    if get_origin(kind) is dict:
        below = _leaves(get_args(kind)[1], (*path, "*"))
    elif isinstance(kind, type) and issubclass(kind, BaseModel):
        fields = kind.model_fields.items()
        below = (
            leaf for name, field in fields for leaf in _leaves(field.annotation, (*path, name))
        )
    else:
        below = iter([(path, False)])
    for leaf, inner in below:
        yield leaf, many or inner


def first_of(query: ListQuery, found: Sequence[Found]) -> list[Found]:
    """The page, and one more where the list goes on: the first of these, in order."""
    by_id = sorted(found, key=lambda one: one.id)
    known = [one for one in by_id if one.value is not None]
    known.sort(key=lambda one: one.value, reverse=query.order.backwards)
    page = [*known, *(one for one in by_id if one.value is None)]
    return page[: query.limit + 1]


def cursor_behind(query: ListQuery, last: Found) -> str:
    """The cursor of the part that follows this item."""
    told = json.dumps([query.digest, last.id, last.value], ensure_ascii=False)
    return base64.urlsafe_b64encode(told.encode()).decode().rstrip("=")


def _is_behind(value: Any, id_: str, after: Position, order: Order) -> bool:
    if value is None or after.value is None:
        return (value is None, id_) > (after.value is None, after.id)
    if value == after.value:
        return id_ > after.id
    return bool(value < after.value) if order.backwards else bool(value > after.value)


def _filter(shape: type[BaseModel], text: str) -> Filter:
    found = _FILTER.fullmatch(text)
    if found is None:
        raise InvalidInputError(
            "a filter is FIELD, one of = != < <= > >= ~, and a value", path="filter"
        )
    path, op, value = tuple(found[1].split(".")), found[2], found[3]
    kind = _kind(shape, path, parameter="filter")
    if value == _NULL:
        if op in _ONLY_KNOWN:
            raise InvalidInputError(f"nothing is {op} null", path="filter")
        return Filter(path, op, None)
    if op == _ONLY_TEXT:
        if not kind.text:
            raise InvalidInputError(f"{found[1]} is no text to look in", path="filter")
        return Filter(path, op, value)
    try:
        return Filter(path, op, kind.adapter.validate_strings(value))
    except ValidationError as error:
        message = error.errors(include_url=False)[0]["msg"]
        raise InvalidInputError(f"{found[1]}: {message}", path="filter") from error


def _order(shape: type[BaseModel], sort: str | None) -> Order:
    if sort is None:
        return Order()
    path = tuple(sort.removeprefix("-").split("."))
    if _kind(shape, path, parameter="sort").many:
        raise InvalidInputError(f"{'.'.join(path)} has many values", path="sort")
    return Order(path=path, backwards=sort.startswith("-"))


def _position(cursor: str, digest: str, shape: type[BaseModel], order: Order) -> Position:
    try:
        padded = cursor + "=" * (-len(cursor) % 4)
        told = base64.b64decode(padded, altchars=b"-_", validate=True)
        given, id_, value = _CURSOR.validate_json(told)
        if given == digest and value is not None:
            value = _kind(shape, order.path, parameter="sort").adapter.validate_python(value)
    except (ValueError, InvalidInputError) as error:
        raise WrongCursorError("cursor: not one of this API", path="cursor") from error
    if given != digest:
        raise WrongCursorError(
            "cursor: it is of another list, or of other filters or order", path="cursor"
        )
    return Position(id=id_, value=value)


@dataclass(frozen=True, slots=True)
class _Kind:
    """What stands at a path. `text`: it is text; `many`: there may be many values."""

    adapter: TypeAdapter[Any]
    text: bool
    many: bool


@lru_cache(maxsize=KINDS_MAX)
def _kind(shape: type[BaseModel], path: tuple[str, ...], *, parameter: str) -> _Kind:
    kind: Any = shape
    many = False
    for at, name in enumerate(path):
        kind, is_many = _plain(kind)
        many = many or is_many
        if get_origin(kind) is dict:
            kind = get_args(kind)[1]
        elif isinstance(kind, type) and issubclass(kind, BaseModel) and name in kind.model_fields:
            kind = kind.model_fields[name].annotation
        else:
            shown = ".".join(path[: at + 1])[:100]
            known = list_fields(shape, inside=parameter == "filter")
            # Those right in it first: the text may be cut.
            told = ", ".join(sorted(known, key=lambda field: field.count(".")))
            raise InvalidInputError(f"there is no field {shown!r}, but {told}", path=parameter)
    kind, is_many = _plain(kind)
    if get_origin(kind) is dict or (isinstance(kind, type) and issubclass(kind, BaseModel)):
        raise InvalidInputError(f"{'.'.join(path)} is no single value", path=parameter)
    text = isinstance(kind, type) and issubclass(kind, str)
    return _Kind(TypeAdapter(kind), text, many or is_many)


def _plain(kind: Any) -> tuple[Any, bool]:
    """The type without Annotated, None and tuples around it; whether there was a tuple."""
    many = False
    while True:
        origin, args = get_origin(kind), get_args(kind)
        if origin is Annotated:
            kind = args[0]
        elif origin is tuple:
            kind, many = args[0], True
        elif origin in (Union, UnionType):
            kind = next(arg for arg in args if arg is not NoneType)
        else:
            return kind, many


def _values(item: Any, path: tuple[str, ...]) -> Iterator[Any]:
    if isinstance(item, tuple):
        for one in item:
            yield from _values(one, path)
    elif not path:
        yield item
    elif isinstance(item, BaseModel):
        yield from _values(getattr(item, path[0]), path[1:])
    elif isinstance(item, dict):
        yield from _values(item.get(path[0]), path[1:])
    else:
        yield None


def _value(item: BaseModel, path: tuple[str, ...]) -> Any:
    return next(_values(item, path), None) if path else None
