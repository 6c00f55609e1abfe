"""Declared profiles: who may be asked for, and what becomes of a decision's weights."""

from __future__ import annotations

from dataclasses import replace

from tests.admin_parts import admin_api, problem

from axiom_common.model.decision import Term
from axiom_common.policy.profile import AXIOM, BUILT_IN, Profile
from axiom_gateway.profile_book import WITHDRAWN_MAX, ProfileBook

KEEN = Profile(name="keen", weights={**AXIOM.weights, Term.ADAPTER_LOAD: 3.0})


def test_a_withdrawn_profile_is_kept_for_requests_under_way_and_offered_no_more() -> None:
    book = ProfileBook()
    book.declared({"keen": KEEN})
    book.declared({})
    assert "keen" not in book.in_force
    assert book["keen"] is KEEN
    again = replace(KEEN, wait_cap_ms=9.0)
    book.declared({"keen": again})
    assert (book["keen"], book.in_force["keen"]) == (again, again)


def test_what_is_built_in_keeps_its_meaning() -> None:
    book = ProfileBook()
    book.declared({"axiom": replace(KEEN, name="axiom")})
    assert book["axiom"] is AXIOM


def test_withdrawn_profiles_are_bounded() -> None:
    book = ProfileBook()
    for number in range(3 * WITHDRAWN_MAX):
        book.declared({f"p{number}": replace(KEEN, name=f"p{number}")})
    assert len(book) == len(BUILT_IN) + 1 + WITHDRAWN_MAX


async def test_a_profile_is_put_patched_and_listed_with_those_built_in() -> None:
    async with admin_api() as api:
        body = {"weights": {"adapter-load": 3}, "wait_cap_ms": 250}
        put = await api.client.put("/profiles/keen", json=body)
        assert (put.status_code, put.json()["weights"]["wait"]) == (201, 1.0)
        seen = {"if-match": put.headers["etag"]}
        patched = await api.client.patch(
            "/profiles/keen", json={"weights": {"wait": 2.0}}, headers=seen
        )
        weights = patched.json()["weights"]
        assert (weights["adapter-load"], weights["wait"]) == (3.0, 2.0)
        listed = (await api.client.get("/profiles", params={"filter": "built_in=false"})).json()
        assert [one["name"] for one in listed["items"]] == ["keen"]
        asked = {"filter": "weights.adapter-load>1"}
        heavy = (await api.client.get("/profiles", params=asked)).json()
        assert [one["name"] for one in heavy["items"]] == ["keen"]


async def test_what_is_built_in_is_shown_and_not_changed() -> None:
    async with admin_api() as api:
        shown = (await api.client.get("/profiles/round-robin")).json()
        assert (shown["built_in"], shown["version"], shown["wait_cap_ms"]) == (True, 0, None)
        for answer in (
            await api.client.put("/profiles/axiom", json={}),
            await api.client.delete("/profiles/axiom"),
        ):
            assert problem(answer).code == "name-taken"


async def test_what_no_decision_could_use_is_refused_by_its_field() -> None:
    async with admin_api() as api:
        for body, path in (
            ({"picker": "dice"}, "picker"),
            ({"weights": {"luck": 1}}, "weights.luck.[key]"),
            ({"weights": {"wait": -1}}, "weights.wait"),
            ({"wait_cap_ms": 0}, "wait_cap_ms"),
        ):
            told = problem(await api.client.put("/profiles/keen", json=body))
            assert (told.code, told.path) == ("invalid-input", path)
