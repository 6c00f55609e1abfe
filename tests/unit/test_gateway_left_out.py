"""Which engines a gateway's metrics count as left out, and why."""

from __future__ import annotations

from collections import Counter
from typing import Any

from tests.agent_parts import declared
from tests.fleet_parts import row

from axiom_common.model.reason import Reason
from axiom_gateway.engine_facts import EngineFacts, left_out
from axiom_gateway.metrics import GatewayMetrics


def facts(**row_changes: Any) -> EngineFacts:
    known = EngineFacts(declared(), (), 0.0, 0.0, 0.0, 0.0)
    known.written(row(**row_changes), 0.0)
    return known


def test_each_engine_counts_once_for_what_keeps_requests_from_it() -> None:
    engines = [
        facts(),
        EngineFacts(declared(), (), 0.0, 0.0, 0.0, 0.0),
        facts(refusal=Reason.THERMAL_CRITICAL, stale=True),
        facts(stale=True, flapping=True),
        facts(unheard=True),
        facts(flapping=True),
    ]
    assert Counter(left_out(engines)) == {
        Reason.THERMAL_CRITICAL: 1,
        Reason.STALE_TELEMETRY: 2,
        Reason.FLAPPING: 1,
    }


def test_a_passed_over_engine_is_counted() -> None:
    metrics = GatewayMetrics()
    metrics.quarantined()
    assert metrics.registry.get_sample_value("axiom_gateway_quarantines_total") == 1
