"""Each filter alone: what it refuses, and what it leaves to others."""

from __future__ import annotations

import pytest
from tests.fleet_parts import WAIT, adapter, engine, fleet, held, query, row

from axiom_common.model.adapter import AdapterState
from axiom_common.model.decision import Refused
from axiom_common.model.engine import EngineState, EngineStatus, GpuState, Role
from axiom_common.model.ids import EngineId
from axiom_common.model.reason import Reason
from axiom_common.policy.evidence import Evidence, Facts, RuleLimits
from axiom_common.policy.filters.agent_silent import loads_allowed
from axiom_common.policy.filters.breaker import breaker_open
from axiom_common.policy.filters.draining import draining
from axiom_common.policy.filters.readiness import not_ready
from axiom_common.policy.filters.staleness import stale, unheard
from axiom_common.policy.filters.thermal_critical import thermal_critical
from axiom_common.state.liveness import SUSPECT_MS


def facts(
    status: EngineStatus = EngineStatus.READY,
    thermal_slowdown: float = 1.0,
    sample_age_ms: float = 0.0,
    **evidence: object,
) -> Facts:
    return Facts(
        state=EngineState(
            engine=EngineId("n.e"),
            url="http://e",
            base_model="base",
            served_name="base",
            status=status,
            sample_age_ms=sample_age_ms,
        ),
        evidence=Evidence(**evidence),  # type: ignore[arg-type]
        thermal_slowdown=thermal_slowdown,
        limits=RuleLimits(),
    )


@pytest.mark.parametrize(
    ("status", "agent_dead", "probe_ok", "refused"),
    [
        (EngineStatus.READY, False, None, False),
        (EngineStatus.STARTING, False, None, True),
        (EngineStatus.UNREACHABLE, False, None, True),
        (EngineStatus.DRAINING, False, None, False),
        # a live agent's word goes before our probe: a busy engine's /health can be slow
        (EngineStatus.READY, False, False, False),
        (EngineStatus.UNREACHABLE, False, True, True),
        # a dead agent's last word is old
        (EngineStatus.READY, True, False, True),
        (EngineStatus.UNREACHABLE, True, True, False),
        (EngineStatus.READY, True, None, False),
        (EngineStatus.UNREACHABLE, True, None, True),
    ],
)
def test_not_ready(
    status: EngineStatus, agent_dead: bool, probe_ok: bool | None, refused: bool
) -> None:
    assert not_ready(facts(status, agent_dead=agent_dead, probe_ok=probe_ok)) is refused


@pytest.mark.parametrize(
    ("status", "cordoned", "refused"),
    [
        (EngineStatus.READY, False, False),
        (EngineStatus.DRAINING, False, True),
        (EngineStatus.READY, True, True),
    ],
)
def test_draining(status: EngineStatus, cordoned: bool, refused: bool) -> None:
    assert draining(facts(status, cordoned=cordoned)) is refused


def test_breaker_open() -> None:
    assert breaker_open(facts(breaker_open=True))
    assert not breaker_open(facts())


@pytest.mark.parametrize(
    ("slowdown", "temperature_c", "refused"),
    [
        (2.0, 90.0, True),
        (2.0, 89.9, False),
        (2.0, None, False),
        (1.0, 99.0, False),
    ],
)
def test_thermal_critical(slowdown: float, temperature_c: float | None, refused: bool) -> None:
    gpu = (GpuState(index=0), GpuState(index=1, temperature_c=temperature_c))
    found = thermal_critical(facts(thermal_slowdown=slowdown, gpu=gpu))
    assert found is refused


@pytest.mark.parametrize(
    ("age_ms", "sample_age_ms", "probe_ok", "is_stale"),
    [
        (0.0, 0.0, None, False),
        (1000.0, 0.0, None, False),
        (1000.1, 0.0, None, True),
        (None, 5000.0, None, False),
        # the agent beats on while its engine hangs
        (100.0, 900.0, None, False),
        (100.0, 901.0, None, True),
        # the agent is silent while its engine answers
        (60_000.0, 0.0, True, False),
        (60_000.0, 0.0, False, True),
    ],
)
def test_stale(
    age_ms: float | None, sample_age_ms: float, probe_ok: bool | None, is_stale: bool
) -> None:
    told = facts(sample_age_ms=sample_age_ms, heard_age_ms=age_ms, probe_ok=probe_ok)
    assert stale(told) is is_stale
    assert unheard(told) is (age_ms is None)


@pytest.mark.parametrize(
    ("evidence", "allowed"),
    [
        ({}, True),
        ({"heard_age_ms": SUSPECT_MS - 1.0}, True),
        ({"heard_age_ms": SUSPECT_MS}, False),
        ({"heard_age_ms": None}, True),
        ({"heard_age_ms": None, "agent_dead": True}, False),
        ({"heard_age_ms": 10.0, "ensure_failed": True}, False),
        # its engine answers, and still nobody could load anything
        ({"heard_age_ms": 9000.0, "agent_dead": True, "probe_ok": True}, False),
    ],
)
def test_loads_need_an_agent(evidence: dict[str, object], allowed: bool) -> None:
    assert loads_allowed(facts(**evidence)) is allowed  # type: ignore[arg-type]


BUSY = (held(adapter(8), in_flight=1), held(adapter(9), in_flight=1))


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"base_model": "other"}, Reason.BASE_MISMATCH),
        ({"role": Role.PREFILL}, Reason.ROLE_MISMATCH),
        ({"refusal": Reason.NOT_READY}, Reason.NOT_READY),
        ({"max_lora_rank": 0}, Reason.LORA_DISABLED),
        ({"max_lora_rank": 15}, Reason.RANK_TOO_LARGE),
        ({"failures": frozenset({adapter(1)})}, Reason.LOAD_FAILED),
        ({"loads_allowed": False}, Reason.AGENT_SILENT),
        (
            {"loads_allowed": False, "residents": (held(adapter(1), AdapterState.LOADING),)},
            Reason.AGENT_SILENT,
        ),
        ({"loads_allowed": False, "registered": frozenset({adapter(2)})}, Reason.AGENT_SILENT),
        ({"residents": BUSY}, Reason.QUARANTINED),
        ({"residents": (*BUSY, held(adapter(1), AdapterState.HOST))}, Reason.QUARANTINED),
        ({"hbm_slots": 0}, Reason.QUARANTINED),
        (
            {"wait": WAIT.__class__(base_ms=500.0, per_request_ms=0.0, per_token_ms=0.0)},
            Reason.SATURATED,
        ),
        # the first in the registry's order names the reason
        ({"base_model": "other", "refusal": Reason.NOT_READY}, Reason.BASE_MISMATCH),
        ({"refusal": Reason.BREAKER_OPEN, "residents": BUSY}, Reason.BREAKER_OPEN),
        ({"max_lora_rank": 0, "residents": BUSY}, Reason.LORA_DISABLED),
    ],
)
def test_refusals_by_name(changes: dict[str, object], reason: Reason) -> None:
    made = fleet(row(0, **changes))
    decision = made.decide(query(adapter(1)), "axiom", 0.0)
    assert decision.winner is None
    assert decision.booking == 0
    assert decision.refusals == {reason: 1}
    assert made.explain(query(adapter(1)), "axiom", 0.0) == (
        Refused(engine=engine(0), reason=reason),
    )


@pytest.mark.parametrize(
    "changes",
    [
        {"max_lora_rank": 0},
        {"failures": frozenset({adapter(1)})},
        {"loads_allowed": False},
        {"residents": BUSY},
        {"hbm_slots": 0},
    ],
)
def test_the_base_model_needs_no_slot(changes: dict[str, object]) -> None:
    decision = fleet(row(0, **changes)).decide(query(), "axiom", 0.0)
    assert decision.winner is not None
    assert decision.winner.scores["adapter-affinity"] == 1.0


@pytest.mark.parametrize(
    "changes",
    [
        {"max_lora_rank": 16},
        {"failures": frozenset({adapter(2)})},
        {"loads_allowed": False, "residents": (held(adapter(1)),)},
        {"loads_allowed": False, "registered": frozenset({adapter(1)})},
        {"residents": (BUSY[0], held(adapter(1), in_flight=5))},
        {"residents": (BUSY[0], held(adapter(3)))},
        {"role": Role.BOTH},
    ],
)
def test_what_the_filters_leave_alone(changes: dict[str, object]) -> None:
    assert fleet(row(0, **changes)).decide(query(adapter(1)), "axiom", 0.0).winner is not None


def test_loads_are_allowed_again_with_the_next_row() -> None:
    made = fleet(row(0, loads_allowed=False), row(1, loads_allowed=False))
    made.remove(engine(1))
    made.set_row(row(2, residents=BUSY))
    assert made.choose(query(adapter(1)), "axiom", 0.0).refusals == {
        Reason.AGENT_SILENT: 1,
        Reason.QUARANTINED: 1,
    }
    made.set_row(row(0))
    assert made.choose(query(adapter(1)), "axiom", 0.0).winner is not None


def test_a_second_request_follows_the_first_where_no_agent_is_needed() -> None:
    """A name that the engine loads on request stays open to others while it does so."""
    made = fleet(row(0, loads_allowed=False, registered=(adapter(1),)))
    for number in range(2):
        assert made.decide(query(adapter(1), number), "axiom", 0.0).winner is not None


def test_an_engine_that_failed_this_request_is_not_tried_again() -> None:
    made = fleet(row(0), row(1))
    first = made.decide(query(), "axiom", 0.0).winner
    assert first is not None
    again = made.decide(query(excluded=(first.engine, EngineId("gone.e0"))), "axiom", 0.0)
    assert again.winner is not None
    assert again.winner.engine != first.engine
    assert again.refusals == {Reason.ENGINE_FAILED: 1}


@pytest.mark.parametrize(
    ("asked", "role", "served"),
    [
        (Role.BOTH, Role.BOTH, True),
        (Role.BOTH, Role.DECODE, False),
        (Role.PREFILL, Role.PREFILL, True),
        (Role.PREFILL, Role.BOTH, True),
        (Role.PREFILL, Role.DECODE, False),
    ],
)
def test_roles(asked: Role, role: Role, served: bool) -> None:
    decision = fleet(row(0, role=role)).decide(query(role=asked), "axiom", 0.0)
    assert (decision.winner is not None) is served
