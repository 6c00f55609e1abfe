"""Decisions while engines are claimed: what is chosen, counted and explained goes together."""

from __future__ import annotations

from tests.fleet_parts import adapter, engine, fleet, held, query, row

from axiom_common.model.decision import Candidate, Refused
from axiom_common.model.ids import EngineId
from axiom_common.model.reason import Reason
from axiom_gateway.claimed import decided, with_closed

ASKED = query(adapter(1))
CLAIMED, OTHER = engine(0), engine(1)
CLOSED: tuple[EngineId, ...] = (CLAIMED,)


def test_a_closed_engine_does_not_win_and_is_explained_as_quarantined() -> None:
    made = fleet(row(0, residents=(held(adapter(1)),)), row(1))
    open_winner = decided(made.choose, ASKED, "axiom", 0.0, ()).winner
    assert open_winner is not None
    assert open_winner.engine == CLAIMED
    winner = decided(made.choose, ASKED, "axiom", 0.0, CLOSED).winner
    assert winner is not None
    assert winner.engine == OTHER
    first, second = with_closed(made.explain(ASKED, "axiom", 0.0), CLOSED)
    assert first == Refused(engine=CLAIMED, reason=Reason.QUARANTINED)
    assert isinstance(second, Candidate)


def test_where_all_are_closed_waiting_helps_and_that_is_what_is_told() -> None:
    made = fleet(row(0))
    decision = decided(made.decide, ASKED, "axiom", 0.0, CLOSED)
    assert decision.winner is None
    assert decision.refusals[Reason.QUARANTINED] == 1
    assert not made.in_flight()


def test_an_engine_that_has_another_reason_keeps_it() -> None:
    made = fleet(row(0, refusal=Reason.DRAINING))
    (seen,) = with_closed(made.explain(ASKED, "axiom", 0.0), CLOSED)
    assert seen == Refused(engine=CLAIMED, reason=Reason.DRAINING)
