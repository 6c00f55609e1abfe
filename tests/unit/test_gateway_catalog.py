"""Which name means what to whom."""

from __future__ import annotations

from dataclasses import replace

import pytest

from axiom_common.model.adapter import AdapterSpec
from axiom_common.model.engine import EngineState, EngineStatus
from axiom_common.model.ids import BASE, EngineAdapter, EngineId
from axiom_common.model.tenant import DEFAULT_TENANT
from axiom_gateway.catalog import Catalog, Target, name_at


def engine(name: str, *registered: str, base_model: str = "base") -> EngineState:
    return EngineState(
        engine=EngineId(name),
        url="http://e",
        base_model=base_model,
        served_name="served",
        status=EngineStatus.READY,
        registered=tuple(EngineAdapter(r) for r in registered),
    )


def adapter(name: str, *, tenant: str = "default", revision: int = 1) -> AdapterSpec:
    return AdapterSpec(
        name=name, base_model="base", revision=revision, path="/p", rank=8, tenant=tenant
    )


def names(catalog: Catalog, tenant: str = DEFAULT_TENANT.name) -> list[tuple[str, str | None]]:
    return [(entry.name, entry.parent) for entry in catalog.entries(tenant)]


def test_declared_names_are_known_before_any_engine_is() -> None:
    catalog = Catalog()
    spec = adapter("bot", revision=3)
    catalog.set_desired({"bot": spec}, ["base"])
    assert catalog.resolve("base", DEFAULT_TENANT.name) == Target(base_model="base")
    assert catalog.resolve("bot", DEFAULT_TENANT.name) == Target(
        base_model="base", adapter=EngineAdapter("bot~3"), spec=spec
    )
    assert names(catalog) == [("base", None), ("bot", "base")]


def test_names_that_axiom_gave_are_not_for_clients() -> None:
    catalog = Catalog()
    catalog.set_engine(engine("n.a", "bot~1", "own"))
    assert catalog.resolve("bot~1", DEFAULT_TENANT.name) is None
    assert names(catalog) == [("base", None), ("own", "base")]


def test_an_adapter_that_people_loaded_is_served_where_it_is() -> None:
    catalog = Catalog()
    catalog.set_engine(engine("n.a", "own"))
    catalog.set_engine(engine("n.b"))
    catalog.set_engine(engine("n.c", base_model="other"))
    assert catalog.resolve("own", DEFAULT_TENANT.name) == Target(
        base_model="base", adapter=EngineAdapter("own"), excluded=(EngineId("n.b"),)
    )


def test_names_go_with_the_engine_that_had_them() -> None:
    catalog = Catalog()
    catalog.set_engine(engine("n.a", "own", "mine"))
    catalog.set_engine(engine("n.a", "mine"))
    assert names(catalog) == [("base", None), ("mine", "base")]
    catalog.remove_engine(EngineId("n.a"))
    assert names(catalog) == []
    assert catalog.resolve("base", DEFAULT_TENANT.name) is None


def test_an_engine_may_change_its_base_model() -> None:
    catalog = Catalog()
    catalog.set_engine(engine("n.a", "own"))
    catalog.set_engine(engine("n.a", "own", base_model="other"))
    assert names(catalog) == [("other", None), ("own", "other")]


def test_a_tenant_sees_its_own_adapters_only() -> None:
    catalog = Catalog()
    catalog.set_desired({"a": adapter("a"), "b": adapter("b", tenant="acme")}, [])
    assert names(catalog) == [("a", "base")]
    assert catalog.resolve("b", DEFAULT_TENANT.name) is None
    assert names(catalog, "acme") == [("b", "base")]
    assert catalog.resolve("b", None) == catalog.resolve("b", "acme")


def test_a_declared_adapter_goes_before_one_of_that_name_that_people_loaded() -> None:
    catalog = Catalog()
    catalog.set_engine(engine("n.a", "bot"))
    spec = adapter("bot")
    catalog.set_desired({"bot": spec}, [])
    target = catalog.resolve("bot", DEFAULT_TENANT.name)
    assert target is not None
    assert target.spec == spec


def test_a_declared_adapter_goes_before_an_engine_that_serves_that_name_as_its_base_model() -> None:
    catalog = Catalog()
    catalog.set_engine(engine("n.a", base_model="bot"))
    catalog.set_desired({"bot": adapter("bot")}, [])
    target = catalog.resolve("bot", DEFAULT_TENANT.name)
    assert target is not None
    assert target.adapter == "bot~1"
    assert names(catalog) == [("bot", "base")]


def test_a_name_that_people_loaded_on_two_base_models_means_neither() -> None:
    catalog = Catalog()
    catalog.set_engine(engine("n.a", "own"))
    catalog.set_engine(engine("n.b", "own", base_model="other"))
    assert catalog.resolve("own", DEFAULT_TENANT.name) is None
    assert names(catalog) == [("base", None), ("other", None)]
    catalog.remove_engine(EngineId("n.b"))
    assert names(catalog) == [("base", None), ("own", "base")]


@pytest.mark.parametrize(
    ("kind", "adapter", "name"),
    [
        ("vllm", BASE, "served"),
        ("vllm", "bot~3", "bot~3"),
        ("sglang", BASE, "served"),
        ("sglang", "bot~3", "served:bot~3"),
        ("sglang", "of/people:own", "served:of/people:own"),
        ("a kind of later", "bot~3", "bot~3"),
    ],
)
def test_an_engine_is_asked_by_the_name_that_its_kind_understands(
    kind: str, adapter: str, name: str
) -> None:
    state = replace(engine("e1"), kind=kind, served_name="served")
    assert name_at(state, EngineAdapter(adapter)) == name
