"""What the agent's metrics tell of an engine: what is known, and nothing else."""

from __future__ import annotations

from dataclasses import replace

import pytest
from tests.agent_parts import name, sample

from axiom_common.model.engine import GpuState
from axiom_common.model.ids import NodeId
from axiom_common.runtime.metric_names import NodeAgent
from axiom_common.runtime.metrics import GaugeName
from axiom_common.state.engine_lru import EngineLru
from axiom_node_agent.metrics import AgentMetrics
from axiom_node_agent.settings import EngineSettings
from axiom_node_agent.state import EngineBook

ENGINE = "n1.e1"
HOT = GpuState(index=0, temperature_c=88.0, power_w=600.0, throttle=64, throttled_ms=((64, 900.0),))
COOL = GpuState(index=1, temperature_c=50.0, power_w=300.0, throttle=0)
OTHERS = GpuState(index=2, temperature_c=99.0, power_w=700.0, throttle=64, lost=True)


def told(book: EngineBook, *gpus: GpuState, degraded: tuple[str, ...] = ()) -> AgentMetrics:
    metrics = AgentMetrics()
    metrics.expose(
        dropped=lambda: 0.0,
        nats_refusals=lambda: 0.0,
        degraded=lambda: degraded,
        books=lambda: (book,),
        gpus=lambda: gpus,
    )
    return metrics


def book(*gpus: int) -> EngineBook:
    settings = EngineSettings(name="e1", url="http://e1", host_slots=4, gpus=gpus)
    return EngineBook(settings.declared(NodeId("n1")), lambda: None)


def value(metrics: AgentMetrics, gauge: GaugeName, **labels: str) -> float | None:
    return metrics.registry.get_sample_value(gauge.name, {"engine": ENGINE} | labels)


def test_an_engine_that_was_not_heard_has_no_figures() -> None:
    metrics = told(book(0))
    for gauge in (
        *(NodeAgent.ENGINE_RUNNING, NodeAgent.ENGINE_WAITING, NodeAgent.KV_USAGE),
        *(NodeAgent.SLOTS, NodeAgent.TEMPERATURE, NodeAgent.POWER),
    ):
        assert value(metrics, gauge) is None, gauge.name
    assert value(metrics, NodeAgent.THROTTLED, reason="hw-thermal") is None
    assert value(metrics, NodeAgent.HELD, place="hbm") == 0


def test_what_the_engine_says_is_told() -> None:
    heard = book()
    heard.saw_sample(replace(sample("a", kv_usage=0.25, max_loras=2), waiting=2), 0.0)
    heard.held = heard.held.inferred(
        EngineLru(hbm_slots=2, host_slots=4).loaded(name("a"), 0.0).loaded(name("b"), 0.0)
    )
    heard.held = heard.held.inferred(heard.lru.loaded(name("c"), 0.0))
    metrics = told(heard)
    assert value(metrics, NodeAgent.ENGINE_RUNNING) == 1
    assert value(metrics, NodeAgent.ENGINE_WAITING) == 2
    assert value(metrics, NodeAgent.KV_USAGE) == 0.25
    assert value(metrics, NodeAgent.SLOTS) == 2
    assert value(metrics, NodeAgent.HELD, place="hbm") == 2
    assert value(metrics, NodeAgent.HELD, place="host") == 1


def test_heat_is_that_of_the_engines_own_gpus() -> None:
    metrics = told(book(0, 1), HOT, COOL, OTHERS)
    assert value(metrics, NodeAgent.TEMPERATURE) == 88.0
    assert value(metrics, NodeAgent.POWER) == 900.0
    assert value(metrics, NodeAgent.THROTTLED, reason="hw-thermal") == 1
    assert value(metrics, NodeAgent.THROTTLED, reason="power-brake") == 0
    assert metrics.registry.get_sample_value(NodeAgent.LOST_GPUS.name) == 1


def test_a_reason_that_has_not_stood_does_not_count_and_half_a_power_is_none() -> None:
    flash = GpuState(index=0, throttle=64, throttled_ms=((64, 10.0),))
    metrics = told(book(0, 1), flash, COOL)
    assert value(metrics, NodeAgent.THROTTLED, reason="hw-thermal") == 0
    assert value(metrics, NodeAgent.POWER) is None


@pytest.mark.parametrize(
    ("fault", "what"),
    [
        ("nats-away", "nats-away"),
        ("plan-refused:lower-fence", "plan-refused"),
        ("engine-unreachable:n1.e1", "engine-unreachable"),
        ("what-nobody-listed", "other"),
    ],
)
def test_each_fault_of_readyz_is_a_flag(fault: str, what: str) -> None:
    metrics = told(book(), degraded=(fault,))
    flags = {
        flag: metrics.registry.get_sample_value(NodeAgent.DEGRADED.name, {"what": flag})
        for flag in NodeAgent.DEGRADED.labels[0].values
    }
    assert flags.pop(what) == 1
    assert set(flags.values()) == {0}
