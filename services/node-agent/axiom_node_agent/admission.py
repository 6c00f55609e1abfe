"""Whether and how an adapter can be made resident on an engine: the answer to an ensure.

| the engine | answer |
| --- | --- |
| is not ready, has no slots, another base model, too low a rank | refused |
| is loading it, or has its load waiting | join that load |
| has it in HBM | resident |
| answers to the name with other weights | as if it did not: it is loaded anew |
| could not load it a moment ago | refused with the reason of then |
| has no slot without a request in flight | refused: no-idle-slot |
| answers to the name, holds it elsewhere or not | on request: the request itself activates it |
| has too many loads waiting | refused: too-many-loads |
| otherwise | load it |
"""

from __future__ import annotations

from enum import StrEnum

from axiom_common.model.adapter import AdapterSpec
from axiom_common.model.reason import Reason
from axiom_node_agent.engine_view import EngineView


class Admission(StrEnum):
    """How the adapter gets there."""

    RESIDENT = "resident"
    ON_REQUEST = "on-request"
    JOIN = "join"
    LOAD = "load"


def admit(
    view: EngineView, spec: AdapterSpec, now_ms: float, *, loads_waiting_max: int
) -> Admission | Reason:
    """The answer, or the reason to refuse."""
    name = spec.engine_name
    if refusal := unfit(view, spec):
        return refusal
    if name in view.on_their_way:
        return Admission.JOIN
    answers = name in view.registered and not view.has_other_weights(spec)
    if answers and name in view.held:
        return Admission.RESIDENT
    life = view.life(name)
    if not answers and life.retry_in_ms(now_ms) > 0:
        return life.reason or Reason.LOAD_FAILED
    if view.idle_slots(name) <= 0:
        return Reason.NO_IDLE_SLOT
    if answers:
        return Admission.ON_REQUEST
    if view.loads_waiting >= loads_waiting_max:
        return Reason.TOO_MANY_LOADS
    return Admission.LOAD


def unfit(view: EngineView, spec: AdapterSpec) -> Reason | None:
    """Why this engine can't serve the adapter whatever else it holds; None if it can."""
    if not view.ready:
        return Reason.NOT_READY
    if spec.base_model != view.base_model:
        return Reason.BASE_MISMATCH
    if view.hbm_slots == 0:
        return Reason.LORA_DISABLED
    if spec.rank > view.max_lora_rank:
        return Reason.RANK_TOO_LARGE
    return None
