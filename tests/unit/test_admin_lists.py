"""Lists: what a filter, an order and a cursor are, and what they are not."""

from __future__ import annotations

import base64
import json
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from tests.admin_parts import VIEW, admin_api, problem

from axiom_cli.commands.options import Filters
from axiom_common.errors import InvalidInputError
from axiom_common.model.engine import EngineState, EngineStatus, NodeState
from axiom_common.model.ids import EngineId, NodeId, RegionId
from axiom_common.wire import rest, views
from axiom_common.wire.examples import ADAPTER, NODE_VIEW
from axiom_common.wire.rest import FILTER_OPS
from axiom_gateway.admin_lists import _COMPARE, WrongCursorError, list_fields, list_query
from axiom_gateway.admin_openapi import ABOUT

ADAPTERS = {
    "a": {"base_model": "llama", "rank": 8, "path": "/x=1", "tenant": "acme"},
    "b": {"base_model": "llama", "rank": 16, "path": "/y"},
    "c": {"base_model": "qwen", "rank": 8, "path": "/z", "size_bytes": 5},
    "team/d": {"base_model": "qwen", "rank": 64, "path": "/a~b<c"},
}


def holds(shape: type[Any], item: Any, text: str) -> bool:
    query = list_query(shape, name="l", filters=[text], sort=None, limit=1, cursor=None)
    return query.filters[0].holds(item)


@pytest.mark.parametrize(
    ("text", "result"),
    [
        ("name=acme/sql.v2", True),
        ("name=sql", False),
        ("name!=sql", True),
        ("name~sql", True),
        ("name~SQL", False),
        ("name~", True),
        ("name=", False),
        ("rank=16", True),
        ("rank>16", False),
        ("rank>=16", True),
        ("rank<17", True),
        ("rank<=15", False),
        ("rank!=16", False),
        ("base_model_known=true", True),
        ("base_model_known!=true", False),
        ("staleness_ms>1.5", True),
        ("path=/adapters/sql", True),
        ("path=a=b", False),
        ("path!==", True),
        ("path=null", False),
        ("path!=null", True),
    ],
)
def test_a_filter_is_a_field_an_operator_and_a_value(text: str, result: bool) -> None:
    assert holds(rest.Adapter, ADAPTER, text) is result


@pytest.mark.parametrize(
    ("text", "result"),
    [
        ("engines.residents.adapter=acme/sql.v2~3", True),
        ("engines.residents.adapter=nope", False),
        ("engines.residents.adapter!=nope", True),
        ("engines.residents.adapter!=by-hand", False),
        ("engines.gpus=1", True),
        ("engines.gpus>1", False),
        ("gpus.temperature_c>60", True),
        ("gpus.temperature_c=null", True),
        ("gpus.throttles.reason=power-cap", True),
        ("gpus.mig.uuid~MIG", True),
        ("host.memory_total_bytes>1", True),
        ("plan.accepted=false", True),
        ("plan.reason~lower", True),
        ("staleness_ms<1e3", True),
        ("engines.residents.in_flight=null", True),
        ("engines.residents.in_flight>=2", True),
    ],
)
def test_a_filter_looks_into_what_lies_within(text: str, result: bool) -> None:
    assert holds(views.NodeView, NODE_VIEW, text) is result


def test_an_unknown_value_is_neither_small_nor_great() -> None:
    unknown = NODE_VIEW.model_copy(update={"staleness_ms": None, "host": None, "gpus": ()})
    for text in ("staleness_ms<1e9", "staleness_ms>=0", "host.memory_total_bytes>0"):
        assert not holds(views.NodeView, unknown, text)
    for text in ("staleness_ms=null", "host.memory_total_bytes=null", "gpus.xid!=3"):
        assert holds(views.NodeView, unknown, text)


@pytest.mark.parametrize(
    ("parameter", "text"),
    [
        ("filter", ""),
        ("filter", "name"),
        ("filter", "=x"),
        ("filter", "nope=1"),
        ("filter", "name =x"),
        ("filter", "rank=abc"),
        ("filter", "rank="),
        ("filter", "rank=1.5"),
        ("filter", "rank~1"),
        ("filter", "base_model_known=perhaps"),
        ("filter", "name<null"),
        ("filter", "name~null"),
        ("filter", "name.x=1"),
        ("filter", "model_config=1"),
        ("filter", "__class__=1"),
        ("filter", "x" * 600 + "=1"),
        ("filter", "digest~a"),
        ("sort", ""),
        ("sort", "-"),
        ("sort", "--name"),
        ("sort", "nope"),
        ("sort", "-nope.x"),
        ("limit", "0"),
        ("limit", "1001"),
        ("limit", "x"),
        ("limit", ""),
    ],
)
async def test_what_is_no_filter_order_or_limit_is_refused(parameter: str, text: str) -> None:
    async with admin_api() as it:
        refused = problem(await it.client.get("/adapters", params={parameter: text}))
        assert (refused.status, refused.code) == (400, "invalid-input")
        assert refused.path.partition(".")[0] == parameter


@pytest.mark.parametrize(
    ("query", "field"),
    [
        ("/engines?sort=name", "engine"),
        ("/engines?filter=name=x", "engine"),
        ("/nodes?sort=-name", "node"),
        ("/nodes?filter=engines.name=x", "engines.engine"),
        ("/keys?sort=nope", "role"),
    ],
)
async def test_who_names_no_field_is_told_which_there_are(query: str, field: str) -> None:
    async with admin_api() as it:
        refused = problem(await it.client.get(query))
        assert refused.status == 400
        assert f" {field}," in refused.detail


async def test_there_are_only_so_many_filters() -> None:
    async with admin_api() as it:
        many = [("filter", "rank>1")] * (rest.FILTERS_MAX + 1)
        assert (await it.client.get("/adapters", params=many[1:])).status_code == 200
        assert problem(await it.client.get("/adapters", params=many)).path == "filter"


def test_nobody_sorts_by_what_has_many_values() -> None:
    for field in ("engines.engine", "gpus.temperature_c", "engines.gpus", "engines", "host"):
        with pytest.raises(InvalidInputError):
            list_query(views.NodeView, name="n", filters=(), sort=field, limit=1, cursor=None)


@pytest.mark.parametrize(
    "shape", [rest.Adapter, rest.ProfileView, views.NodeView, views.EngineView]
)
def test_every_field_that_is_described_can_be_asked_for(shape: type[Any]) -> None:
    inside = list_fields(shape, inside=True)
    assert len(set(inside)) == len(inside) > 2
    for field in inside:
        list_query(
            shape,
            name="l",
            filters=[f"{field.replace('*', 'wait')}=null"],
            sort=None,
            limit=1,
            cursor=None,
        )
    for field in list_fields(shape, inside=False):
        list_query(
            shape, name="l", filters=(), sort=f"-{field.replace('*', 'wait')}", limit=1, cursor=None
        )


async def names(client: Any, **params: Any) -> list[str]:
    return [item["name"] for item in (await client.get("/adapters", params=params)).json()["items"]]


async def test_filters_are_anded_and_orders_have_ties_by_name() -> None:
    async with admin_api() as it:
        for name, spec in ADAPTERS.items():
            await it.put(name, spec)
        client = it.client
        assert await names(client, filter="base_model=llama") == ["a", "b"]
        assert await names(client, filter=["base_model=qwen", "rank>8"]) == ["team/d"]
        assert await names(client, filter="path=/x=1") == ["a"]
        assert await names(client, filter="path=/a~b<c") == ["team/d"]
        assert await names(client, sort="rank") == ["a", "c", "b", "team/d"]
        assert await names(client, sort="-rank") == ["team/d", "b", "a", "c"]
        assert await names(client, sort="-name") == ["team/d", "c", "b", "a"]


async def test_exactly_as_many_as_the_limit_are_the_last_page() -> None:
    async with admin_api() as it:
        for name, spec in ADAPTERS.items():
            await it.put(name, spec)
        for sort in (None, "rank", "-rank"):
            params: dict[str, Any] = {"limit": len(ADAPTERS)} | ({"sort": sort} if sort else {})
            assert (await it.client.get("/adapters", params=params)).json()["next"] is None
            params["limit"] = len(ADAPTERS) - 1
            assert (await it.client.get("/adapters", params=params)).json()["next"]
        nothing = (await it.client.get("/adapters", params={"filter": "rank>99"})).json()
        assert (nothing["items"], nothing["next"]) == ([], None)


async def test_the_last_item_of_a_page_may_go() -> None:
    async with admin_api() as it:
        for name, spec in ADAPTERS.items():
            await it.put(name, spec)
        page = (await it.client.get("/adapters", params={"limit": 2})).json()
        await it.client.delete("/adapters/b")
        rest_ = (await it.client.get("/adapters", params={"cursor": page["next"]})).json()
        assert [item["name"] for item in rest_["items"]] == ["c", "team/d"]


def garbage() -> Mapping[str, str]:
    def coded(value: Any) -> str:
        told = value if isinstance(value, bytes) else json.dumps(value).encode()
        return base64.urlsafe_b64encode(told).decode().rstrip("=")

    return {
        "empty": "",
        "words": "no cursor",
        "not-ascii": "ü" * 10,
        "binary": coded(bytes(range(256))),
        "cut": coded(["x", "a", None])[:-3],
        "nan": coded(b'["x", "a", NaN]'),
        "deep": coded(b"[" * 2_000),
        "other-shape": coded({"a": 1}),
        "more": coded(["x", "a", None, 1]),
        "long": "a" * (rest.CURSOR_MAX + 1),
        "padded": "YWJj====",
    }


@pytest.mark.parametrize("which", sorted(garbage()))
async def test_a_cursor_that_is_none_is_refused(which: str) -> None:
    async with admin_api() as it:
        refused = problem(await it.client.get("/adapters", params={"cursor": garbage()[which]}))
        assert refused.status == 400
        assert refused.code == ("invalid-input" if which == "long" else "wrong-cursor")


async def test_a_cursor_is_good_for_its_own_list_filters_and_order_alone() -> None:
    async with admin_api() as it:
        for name, spec in ADAPTERS.items():
            await it.put(name, spec)
            await it.client.put(f"/models/m-{name}", content=b"{}")
        own: dict[str, Any] = {"filter": ["rank>1", "rank<99"], "sort": "rank"}
        page = (await it.client.get("/adapters", params=own | {"limit": 1})).json()
        cursor = {"cursor": page["next"]}
        for path, params in (
            ("/models", {}),
            ("/models", {"sort": "name"}),
            ("/adapters", {}),
            ("/adapters", {"sort": "rank"}),
            ("/adapters", own | {"sort": "-rank"}),
            ("/adapters", own | {"filter": ["rank>1"]}),
        ):
            refused = problem(await it.client.get(path, params={**params, **cursor}))
            assert (refused.status, refused.code) == (400, "wrong-cursor")
        again: dict[str, Any] = own | {"filter": ["rank<99", "rank>1"]} | cursor
        assert await names(it.client, **again) == ["c", "b", "team/d"]


async def test_a_cursor_fits_whatever_it_was_made_of() -> None:
    long = {"base_model": "m", "rank": 1, "path": "/" + "\N{GRINNING FACE}" * 1_023}
    async with admin_api() as it:
        for number in range(3):
            created = await it.put(f"{'n' * 127}{number}", long)
            assert created.status_code == 201
        params: dict[str, Any] = {"sort": "path", "limit": 2}
        cursor = (await it.client.get("/adapters", params=params)).json()["next"]
        rest_ = await it.client.get("/adapters", params=params | {"cursor": cursor})
        assert len(rest_.json()["items"]) == 1


def test_a_forged_cursor_is_refused() -> None:
    query = list_query(rest.Adapter, name="l", filters=(), sort="rank", limit=1, cursor=None)
    for value in ("text", [1], {}, 1.5):
        told = json.dumps([query.digest, "a", value]).encode()
        forged = base64.urlsafe_b64encode(told).decode().rstrip("=")
        with pytest.raises(WrongCursorError):
            list_query(rest.Adapter, name="l", filters=(), sort="rank", limit=1, cursor=forged)


async def test_nodes_and_engines_are_lists_like_others() -> None:
    nodes = [
        NodeState(
            region=RegionId("eu"),
            node=NodeId(f"n{number}"),
            incarnation=1,
            seq=1,
            engines=tuple(
                EngineState(
                    engine=EngineId(f"n{number}.{name}"),
                    url="http://h:1",
                    base_model="llama",
                    served_name="llama",
                    status=EngineStatus.READY,
                    running=number,
                    kv_usage=number / 10 if number else None,
                )
                for name in ("a", "b")
            ),
        )
        for number in range(3)
    ]
    async with admin_api(lambda: VIEW, *nodes) as it:

        async def ids(path: str, **params: Any) -> list[str]:
            items = (await it.client.get(path, params=params)).json()["items"]
            return [item.get("engine") or item["node"] for item in items]

        assert await ids("/nodes") == ["n0", "n1", "n2"]
        assert await ids("/nodes", filter="engines.running>=2") == ["n2"]
        assert await ids("/nodes", sort="-node", limit=2) == ["n2", "n1"]
        assert await ids("/engines", filter="engine~.b") == ["n0.b", "n1.b", "n2.b"]
        ordered = ["n1.a", "n1.b", "n2.a", "n2.b", "n0.a", "n0.b"]
        assert await ids("/engines", sort="kv_usage") == ordered
        backwards = ["n2.a", "n2.b", "n1.a", "n1.b", "n0.a", "n0.b"]
        assert await ids("/engines", sort="-kv_usage") == backwards
        told = (await it.client.get("/engines")).json()
        assert told["staleness_ms"] == 120.0


def test_operators_are_the_same_wherever_they_are_named() -> None:
    (option,) = Filters.__metadata__
    page = (Path(__file__).parents[2] / "docs/operating.md").read_text()
    for text in (option.help, ABOUT, page):
        named = re.search(r"one of `?((?:[=!<>~]+ ?)+)", text)
        assert named is not None
        assert set(named[1].split()) == set(FILTER_OPS) == set(_COMPARE)
