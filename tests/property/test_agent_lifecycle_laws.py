"""Laws of an adapter's life on an engine."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from axiom_common.model.adapter import AdapterState
from axiom_common.model.reason import Reason
from axiom_common.state.adapter_lifecycle import RETRY_MAX_MS, AdapterLife, Event, step

steps = st.lists(st.tuples(st.sampled_from(Event), st.floats(0.0, 1e6)), max_size=40)


@given(steps)
def test_whatever_happens_in_whatever_order_a_life_makes_sense(
    happened: list[tuple[Event, float]],
) -> None:
    life = AdapterLife()
    now_ms = 0.0
    for event, passed_ms in happened:
        now_ms += passed_ms
        before, life = life, step(life, event, now_ms, reason=Reason.ENGINE_REFUSED)
        if life.state is not before.state:
            assert life.since_ms == now_ms
        assert (life.reason is not None) <= (life.state is AdapterState.FAILED)
        assert 0.0 <= life.retry_in_ms(now_ms) <= RETRY_MAX_MS
        if life.state is AdapterState.RESIDENT:
            assert life.failures == 0


@given(steps)
def test_only_a_load_makes_an_adapter_resident_unless_the_engine_shows_it(
    happened: list[tuple[Event, float]],
) -> None:
    life = AdapterLife()
    for event, now_ms in happened:
        before, life = life, step(life, event, now_ms)
        if life.state is AdapterState.RESIDENT and before.state is not AdapterState.RESIDENT:
            assert event in (Event.LOADED, Event.SEEN_IN_HBM)
