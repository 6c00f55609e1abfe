"""`axiom adapters apply` where others write at the same time."""

from __future__ import annotations

import asyncio
import json
from collections import Counter
from typing import Any

import pytest
from aiohttp import web
from tests.answering import problem, server
from tests.gateway_region import ADMIN_SECRET, region_of, served

from axiom_cli.admin import Target, admin_of
from axiom_cli.declarations import (
    TRIES_MAX,
    Applied,
    Result,
    apply_declarations,
    parse_declarations,
)
from axiom_common.wire import headers, rest


def file_of(*names: str, rank: int = 8) -> str:
    adapters = [{"name": n, "base_model": "base", "path": f"/{n}", "rank": rank} for n in names]
    return json.dumps({"adapters": adapters})


async def applied(target: Target, text: str, *, dry_run: bool = False) -> list[Applied]:
    return await apply_declarations(target, parse_declarations(text), dry_run=dry_run)


def results(told: list[Applied]) -> Counter[str]:
    return Counter(one.result.value for one in told)


async def test_two_applies_of_different_adapters_at_the_same_moment_both_land() -> None:
    async with region_of(0, agent=False) as region, served(region) as gateway:
        target = Target(gateway.url, ADMIN_SECRET)
        mine, theirs = [f"mine-{n}" for n in range(12)], [f"theirs-{n}" for n in range(12)]
        told = await asyncio.gather(
            applied(target, file_of(*mine)), applied(target, file_of(*theirs))
        )
        assert [results(one) for one in told] == [{"created": 12}] * 2
        async with admin_of(target) as admin:
            assert [one.name for one in await admin.adapters()] == sorted([*mine, *theirs])


async def test_two_applies_of_the_same_file_agree() -> None:
    async with region_of(0, agent=False) as region, served(region) as gateway:
        target = Target(gateway.url, ADMIN_SECRET)
        text = file_of(*(f"a-{n}" for n in range(12)))
        told = await asyncio.gather(applied(target, text), applied(target, text))
        both = results(told[0]) + results(told[1])
        assert both == {"created": 12, "unchanged": 12}


async def test_a_dry_run_says_what_would_become_of_each_and_changes_nothing() -> None:
    async with region_of(0, agent=False) as region, served(region) as gateway:
        target = Target(gateway.url, ADMIN_SECRET)
        text = file_of("new", "old")
        await applied(target, file_of("old"))
        with_model = json.dumps(json.loads(text) | {"base_models": [{"name": "base"}]})
        counts: list[int] = []
        told = await apply_declarations(
            target, parse_declarations(with_model), dry_run=True, on_put=counts.append
        )
        assert counts == [1, 2, 3]
        assert [(one.put.name, one.result, one.detail) for one in told] == [
            ("base", Result.CREATED, ""),
            ("new", Result.CREATED, ""),
            ("old", Result.UNCHANGED, ""),
        ]
        (changed,) = await applied(target, file_of("old", rank=16), dry_run=True)
        assert (changed.result, changed.revision) == (Result.UPDATED, 2)
        async with admin_of(target) as admin:
            assert [(one.name, one.rank) for one in await admin.adapters()] == [("old", 8)]
            assert await admin.models() == ()


class Others:
    """A gateway where somebody else is always a little faster. `ranks` are what the adapter has at
    each look, None: it is not there; a put fails until all of them were seen."""

    def __init__(self, *ranks: int | None) -> None:
        self.ranks = list(ranks)
        self.looks = 0
        self.puts: list[str] = []

    async def answer(self, request: web.Request) -> web.Response:
        rank = self.ranks[min(self.looks, len(self.ranks)) - (request.method == "PUT")]
        version = max(self.looks, 1)
        if request.method == "GET":
            self.looks += 1
            if rank is None:
                return problem(404, "not there", "not-found")
            return self.adapter(rank, self.looks)
        condition = request.headers.get(headers.IF_MATCH) or request.headers[headers.IF_NONE_MATCH]
        self.puts.append(condition)
        if self.looks < len(self.ranks):
            return problem(412, "another version by now", "precondition-failed")
        wanted = (await request.json())["rank"]
        outcome = "created" if rank is None else "unchanged" if rank == wanted else "updated"
        response = self.adapter(wanted, version)
        response.headers[headers.OUTCOME] = outcome
        return response

    def adapter(self, rank: int, version: int) -> web.Response:
        shape: dict[str, Any] = {
            "name": "a", "version": version, "base_model": "base", "path": "/a", "rank": rank,
            "size_bytes": 0, "tenant": "default", "revision": 1, "base_model_known": True,
        }  # fmt: skip
        return web.Response(body=rest.Adapter.model_validate(shape).model_dump_json())


@pytest.mark.parametrize(
    ("ranks", "result", "puts"),
    [
        ([None], Result.CREATED, ["*"]),
        ([8], Result.UNCHANGED, ['"1"']),
        ([4], Result.UPDATED, ['"1"']),
        # Others wrote what we want, or wrote it back as we saw it.
        ([None, 8], Result.UNCHANGED, ["*", '"2"']),
        ([4, 8], Result.UNCHANGED, ['"1"', '"2"']),
        ([4, 4], Result.UPDATED, ['"1"', '"2"']),
        # Others changed it otherwise: it is theirs.
        ([None, 4], Result.REFUSED, ["*"]),
        ([4, 16], Result.REFUSED, ['"1"']),
        ([4, None], Result.REFUSED, ['"1"']),
        ([4] * (TRIES_MAX + 5), Result.REFUSED, [f'"{n + 1}"' for n in range(TRIES_MAX)]),
    ],
)
async def test_what_others_change_meanwhile_is_theirs(
    ranks: list[int | None], result: Result, puts: list[str]
) -> None:
    others = Others(*ranks)
    async with server(others.answer) as url:
        (told,) = await applied(Target(url), file_of("a"))
    assert (told.result, others.puts) == (result, puts)
    assert ("axiom adapters show a" in told.detail) is (result is Result.REFUSED)
