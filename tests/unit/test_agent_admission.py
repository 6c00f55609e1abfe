"""The answer to an ensure, row by row."""

from __future__ import annotations

from dataclasses import replace

import pytest
from tests.agent_parts import BASE_MODEL, name, names, paths, spec

from axiom_common.model.adapter import AdapterSpec, AdapterState
from axiom_common.model.reason import Reason
from axiom_common.state.adapter_lifecycle import AdapterLife
from axiom_node_agent.admission import Admission, admit
from axiom_node_agent.engine_view import EngineView

NOW_MS = 1_000.0
IDLE = EngineView(base_model=BASE_MODEL, hbm_slots=2, max_lora_rank=16)
FAILED = AdapterLife(
    state=AdapterState.FAILED, failures=1, reason=Reason.ADAPTER_NOT_FOUND, retry_at_ms=2_000.0
)


def view(**changes: object) -> EngineView:
    return replace(IDLE, **changes)  # type: ignore[arg-type]


FULL_AND_BUSY = {
    "registered": paths("b", "c"),
    "held": names("b", "c"),
    "slots_taken": 2,
    "busy": names("b", "c"),
}


@pytest.mark.parametrize(
    ("seen", "adapter", "answer"),
    [
        (view(), spec("a"), Admission.LOAD),
        (view(ready=False), spec("a"), Reason.NOT_READY),
        (view(), spec("a", base_model="other"), Reason.BASE_MISMATCH),
        (view(hbm_slots=0), spec("a"), Reason.LORA_DISABLED),
        (view(), spec("a", rank=17), Reason.RANK_TOO_LARGE),
        (view(on_their_way=names("a")), spec("a"), Admission.JOIN),
        (view(registered=paths("a"), held=names("a")), spec("a"), Admission.RESIDENT),
        (view(registered=paths("a")), spec("a"), Admission.ON_REQUEST),
        (view(lives={name("a"): FAILED}), spec("a"), Reason.ADAPTER_NOT_FOUND),
        (view(registered=paths("a"), lives={name("a"): FAILED}), spec("a"), Admission.ON_REQUEST),
        (view(**FULL_AND_BUSY), spec("a"), Reason.NO_IDLE_SLOT),
        (view(**FULL_AND_BUSY | {"busy": names("b")}), spec("a"), Admission.LOAD),
        (view(**FULL_AND_BUSY), spec("b"), Admission.RESIDENT),
        (
            view(**FULL_AND_BUSY | {"registered": paths("a", "b", "c")}),
            spec("a"),
            Reason.NO_IDLE_SLOT,
        ),
        (view(loads_waiting=3), spec("a"), Reason.TOO_MANY_LOADS),
        (
            view(registered={name("a"): "/elsewhere"}, held=names("a"), slots_taken=1),
            spec("a"),
            Admission.LOAD,
        ),
    ],
)
def test_the_table(seen: EngineView, adapter: AdapterSpec, answer: Admission | Reason) -> None:
    assert admit(seen, adapter, NOW_MS, loads_waiting_max=3) is answer


def test_a_failure_is_held_against_the_adapter_until_its_time_is_up() -> None:
    seen = view(lives={name("a"): FAILED})
    assert admit(seen, spec("a"), 2_000.0, loads_waiting_max=3) is Admission.LOAD


def test_loads_under_way_and_requests_that_wait_for_a_slot_claim_theirs() -> None:
    """Two slots: one for the load under way, one for a registered adapter with a request on its
    way; the adapter itself may have the slot that it claims."""
    seen = view(on_their_way=names("b"), registered=paths("a", "c"), busy=names("c", "unknown"))
    assert admit(seen, spec("d"), NOW_MS, loads_waiting_max=3) is Reason.NO_IDLE_SLOT
    assert admit(seen, spec("c"), NOW_MS, loads_waiting_max=3) is Admission.ON_REQUEST
