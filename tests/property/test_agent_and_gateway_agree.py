"""Agent and gateway, each with its own rules, say the same of an engine's slots."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st
from tests.agent_parts import name, ready_book, sample

from axiom_common.policy.occupancy import occupancy
from axiom_common.policy.scorers.adapter_affinity import Slot
from axiom_node_agent.engine_view import view_of
from axiom_node_agent.report import engine_state

SLOTS = 3
ADAPTERS = "abcdef"

some = st.lists(st.sampled_from(ADAPTERS), unique=True, max_size=6)


@given(
    registered=some,
    unloaded=some,
    running=st.sets(st.sampled_from(ADAPTERS), max_size=SLOTS),
    counted=st.sets(st.sampled_from(ADAPTERS)),
)
def test_a_load_has_a_slot_for_both_or_for_none(
    registered: list[str], unloaded: list[str], running: set[str], counted: set[str]
) -> None:
    book = ready_book(*registered, hbm_slots=SLOTS, host_slots=4)
    book.saw_sample(sample(*(running & set(registered))), 1.0)
    for text in unloaded:
        if text in registered and text not in running:
            book.unload_started(name(text), 1.0)
            book.unload_ended(name(text), 1.0, done=True)
    counts = {name(text): 1 for text in counted if name(text) in book.registered}
    book.in_flight(counts, 1.0)
    told = {resident.adapter: resident for resident in engine_state(book, 1.0).residents}
    asked = name("another")
    has_slot = view_of(book, 1.0).idle_slots(asked) > 0
    assert has_slot is (occupancy(SLOTS, told, counts).slot != Slot.BUSY)
