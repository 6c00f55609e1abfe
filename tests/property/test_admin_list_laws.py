"""Laws of the admin API's lists: whatever is asked in pages is the whole, told once."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import BaseModel

from axiom_gateway.admin_lists import list_query
from axiom_gateway.admin_objects import page_of


class Item(BaseModel):
    name: str
    size: int | None
    heat: float | None
    hot: bool


NAMES = st.sampled_from([f"{letter}{tail}" for letter in "abcdefgh" for tail in ("", "/x", "0")])
VALUES = st.tuples(
    st.none() | st.integers(-3, 3),
    st.none() | st.floats(-1e3, 1e3, allow_nan=False),
    st.booleans(),
)
ITEMS = st.dictionaries(NAMES, VALUES, max_size=24)
SORTS = st.sampled_from([None, "name", "-name", "size", "-size", "heat", "-heat", "hot", "-hot"])
FILTERS = st.lists(
    st.sampled_from(["size>0", "size=null", "heat<=0", "hot=true", "hot!=true", "name~a"]),
    max_size=2,
)


def items_of(values: dict[str, tuple[int | None, float | None, bool]]) -> dict[str, Item]:
    return {
        name: Item(name=name, size=size, heat=heat, hot=hot)
        for name, (size, heat, hot) in values.items()
    }


def page(
    items: dict[str, Item], filters: list[str], sort: str | None, limit: int, cursor: str | None
) -> tuple[str | None, list[str]]:
    query = list_query(Item, name="l", filters=filters, sort=sort, limit=limit, cursor=cursor)
    told: tuple[str | None, tuple[Any, ...]] = asyncio.run(page_of(query, sorted(items), items.get))
    return told[0], [item.name for item in told[1]]


def kept(item: Item, filters: list[str]) -> bool:
    """What the filters above mean, in other words."""
    meaning = {
        "size>0": item.size is not None and item.size > 0,
        "size=null": item.size is None,
        "heat<=0": item.heat is not None and item.heat <= 0,
        "hot=true": item.hot,
        "hot!=true": not item.hot,
        "name~a": "a" in item.name,
    }
    return all(meaning[text] for text in filters)


def in_order(items: dict[str, Item], filters: list[str], sort: str | None) -> list[str]:
    """The whole list by the plainest means: of each two, which comes first."""
    field = (sort or "name").removeprefix("-")
    names = sorted(name for name, item in items.items() if kept(item, filters))
    known = [name for name in names if getattr(items[name], field) is not None]
    known.sort(key=lambda name: getattr(items[name], field), reverse=bool(sort) and sort[0] == "-")
    return known + [name for name in names if name not in known]


@given(ITEMS, FILTERS, SORTS, st.integers(1, 30))
def test_the_pages_of_any_size_make_up_the_filtered_sorted_list(
    values: dict[str, Any], filters: list[str], sort: str | None, limit: int
) -> None:
    items = items_of(values)
    seen: list[str] = []
    cursor: str | None = None
    for _ in range(len(items) + 1):
        cursor, names = page(items, filters, sort, limit, cursor)
        seen += names
        assert len(names) == limit or cursor is None
        if cursor is None:
            break
    assert cursor is None
    assert seen == in_order(items, filters, sort)


@given(
    ITEMS,
    FILTERS,
    SORTS,
    st.lists(st.tuples(ITEMS, st.lists(NAMES, max_size=6), st.integers(1, 8)), max_size=8),
)
def test_while_others_come_and_go_none_that_stays_is_lost_or_told_twice(
    values: dict[str, Any], filters: list[str], sort: str | None, turns: list[Any]
) -> None:
    items = items_of(values)
    stays = {name for name, item in items.items() if kept(item, filters)}
    seen: list[str] = []
    cursor: str | None = None
    for come, go, limit in [*turns, ({}, [], 1_000)]:
        cursor, names = page(items, filters, sort, limit, cursor)
        seen += names
        if cursor is None:
            break
        stays -= set(go)
        items = {name: item for name, item in items.items() if name not in go}
        items |= {name: item for name, item in items_of(come).items() if name not in items}
    assert cursor is None
    assert stays <= set(seen)
    # One that went and came back is another one.
    gone = {name for _, go, _ in turns for name in go}
    once = [name for name in seen if name not in gone]
    assert len(once) == len(set(once))


@given(ITEMS, SORTS, st.integers(1, 30))
def test_many_items_are_sorted_in_parts_with_the_same_result(
    values: dict[str, Any], sort: str | None, limit: int
) -> None:
    items = items_of(values)
    whole = page(items, [], sort, limit, None)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("axiom_gateway.admin_objects.KEPT_BEYOND", 1)
        assert page(items, [], sort, limit, None) == whole
