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
from axiom_common.policy.filters.breaker import breaker_open
from axiom_common.policy.filters.draining import draining
from axiom_common.policy.filters.readiness import not_ready
from axiom_common.policy.filters.staleness import stale, unheard
from axiom_common.policy.filters.thermal_critical import thermal_critical
from axiom_common.policy.scorers.thermal_safety import ThermalMemory

COOL = ThermalMemory()


def facts(
    status: EngineStatus = EngineStatus.READY,
    thermal: ThermalMemory = COOL,
    **evidence: object,
) -> Facts:
    return Facts(
        state=EngineState(
            engine=EngineId("n.e"),
            url="http://e",
            base_model="base",
            served_name="base",
            status=status,
        ),
        evidence=Evidence(**evidence),  # type: ignore[arg-type]
        thermal=thermal,
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
    ("counted", "temperature_c", "refused"),
    [
        (2.0, 90.0, True),
        (2.0, 89.9, False),
        (2.0, None, False),
        (1.0, 99.0, False),
    ],
)
def test_thermal_critical(counted: float, temperature_c: float | None, refused: bool) -> None:
    gpu = (GpuState(index=0), GpuState(index=1, temperature_c=temperature_c))
    found = thermal_critical(facts(thermal=ThermalMemory(counted=counted), gpu=gpu))
    assert found is refused


@pytest.mark.parametrize(
    ("age_ms", "is_stale", "is_unheard"),
    [(0.0, False, False), (1000.0, False, False), (1000.1, True, False), (None, False, True)],
)
def test_staleness(age_ms: float | None, is_stale: bool, is_unheard: bool) -> None:
    assert stale(facts(heard_age_ms=age_ms)) is is_stale
    assert unheard(facts(heard_age_ms=age_ms)) is is_unheard


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
        {"residents": (BUSY[0], held(adapter(1), in_flight=5))},
        {"residents": (BUSY[0], held(adapter(3)))},
        {"role": Role.BOTH},
    ],
)
def test_what_the_filters_leave_alone(changes: dict[str, object]) -> None:
    assert fleet(row(0, **changes)).decide(query(adapter(1)), "axiom", 0.0).winner is not None


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
