"""What a listener does with each message of an agent's facts, and when it asks."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import cycle

import pytest
from tests.fact_parts import FactHearer, FactTeller, Message

from axiom_common.model.ids import EngineId, NodeId, engine_id
from axiom_common.model.prefix import WITHDRAWN
from axiom_common.state.fact_ledger import Reach
from axiom_common.state.fact_requests import (
    ANSWER_MS,
    ASKED_MAX,
    FIRST_MS,
    GIVEN_UP_MS,
    WAIT_MS_MAX,
    FactRequests,
)
from axiom_common.state.fact_stream import Deed, FactStream
from axiom_common.state.predicted_facts import PredictedFacts

LINKS = range(1, 10)
BEGINS = (Deed.BEGIN, Deed.PART)
WHOLE = (Deed.BEGIN, Deed.PART, Deed.END)


def told(reaches: list[tuple[int, Reach]]) -> tuple[FactTeller, list[Message]]:
    """A teller, and one message for each of these changes."""
    teller = FactTeller()
    messages: list[Message] = []
    for link, reach in reaches:
        teller.move(link, reach)
        messages += teller.tell()
    return teller, messages


def test_changes_follow_one_another_from_the_first() -> None:
    stream = FactStream()
    assert stream.changes(5, 1, cleared=False) == (Deed.APPLY,)
    assert stream.changes(5, 2, cleared=False) == (Deed.APPLY,)
    assert stream.whole
    assert not stream.lacks


@pytest.mark.parametrize("seq", [2, 7])
def test_changes_of_an_agent_that_was_not_heard_from_the_first_lack_what_was_before(
    seq: int,
) -> None:
    stream = FactStream()
    assert stream.changes(5, seq, cleared=False) == (Deed.APPLY,)
    assert stream.lacks


def test_a_change_that_comes_again_or_late_is_no_news() -> None:
    teller, (came, went) = told([(1, Reach.HBM), (1, Reach.NOT)])
    hearer = FactHearer()
    for message in (came, went, came):
        hearer.hear(message)
    assert hearer.holds(LINKS) == teller.holds == {}
    late = FactHearer()
    for message in (went, came):
        late.hear(message)
    assert late.stream.lacks
    assert late.holds(LINKS) == {}


def test_a_stand_that_is_ahead_shows_a_lost_last_message() -> None:
    stream = FactStream()
    stream.changes(5, 1, cleared=False)
    assert stream.stand(5, 1) == ()
    assert stream.whole
    assert stream.stand(5, 2) == ()
    assert stream.lacks


def test_after_a_loss_facts_still_count_and_changes_are_still_taken() -> None:
    teller, messages = told([(link, Reach.HBM) for link in (1, 2, 3)] + [(1, Reach.NOT)])
    hearer = FactHearer()
    for message in (messages[0], messages[2], messages[3]):
        hearer.hear(message)
    assert hearer.stream.lacks
    assert hearer.holds(LINKS) == {3: Reach.HBM}
    for message in teller.snapshot():
        hearer.hear(message)
    assert not hearer.stream.lacks
    assert hearer.holds(LINKS) == teller.holds


def test_all_that_was_withdrawn_at_once_needs_no_snapshot() -> None:
    stream = FactStream()
    stream.changes(5, 1, cleared=False)
    assert stream.changes(5, 9, cleared=True) == (Deed.CLEAR, Deed.APPLY)
    assert stream.whole


def test_another_incarnation_makes_everything_void_and_an_older_one_is_not_heard() -> None:
    stream = FactStream()
    stream.changes(5, 1, cleared=False)
    assert stream.changes(6, 1, cleared=False) == (Deed.CLEAR, Deed.APPLY)
    for late in (
        stream.changes(5, 2, cleared=True),
        stream.stand(5, 9),
        stream.snapshot(5, 9, 0, 1),
        stream.began(5),
    ):
        assert late == ()
    assert (stream.incarnation, stream.reached, stream.whole) == (6, 1, True)


def test_an_agent_that_died_is_asked_when_it_is_heard_again() -> None:
    stream = FactStream()
    stream.changes(5, 1, cleared=False)
    assert stream.lost() == (Deed.CLEAR,)
    assert stream.lost() == ()
    stream.stand(5, 1)
    assert stream.lacks


def test_a_snapshot_is_taken_in_order_with_changes_between_its_parts() -> None:
    teller, messages = told([(link, Reach.HBM) for link in range(1, 6)])
    hearer = FactHearer()
    hearer.hear(messages[-1])
    parts = teller.snapshot()
    assert len(parts) == 3
    teller.move(5, Reach.NOT)
    teller.move(9, Reach.LOWER)
    hearer.hear(parts[0])
    assert hearer.stream.arriving
    for message in (*teller.tell(), *parts[1:]):
        hearer.hear(message)
    assert hearer.stream.whole
    assert not hearer.stream.arriving
    assert hearer.holds(LINKS) == teller.holds


def test_who_lacks_nothing_takes_no_snapshot_that_others_asked_for() -> None:
    stream = FactStream()
    stream.changes(5, 1, cleared=False)
    assert stream.snapshot(5, 1, 0, 2) == ()
    assert stream.snapshot(5, 1, 1, 2) == ()
    assert stream.whole


def test_a_snapshot_from_before_what_was_heard_is_of_no_use() -> None:
    stream = FactStream()
    stream.changes(5, 8, cleared=False)
    assert stream.snapshot(5, 7, 0, 1) == ()
    assert stream.lacks
    assert stream.snapshot(5, 8, 0, 1) == WHOLE


def test_a_snapshot_with_a_lost_part_is_asked_for_again() -> None:
    stream = FactStream()
    assert stream.snapshot(5, 3, 0, 4) == BEGINS
    assert stream.snapshot(5, 3, 0, 4) == BEGINS
    assert stream.snapshot(5, 3, 1, 4) == (Deed.PART,)
    assert stream.snapshot(5, 3, 1, 4) == ()
    assert stream.snapshot(5, 3, 3, 4) == ()
    assert stream.lacks
    assert not stream.arriving
    assert stream.snapshot(5, 3, 2, 4) == ()


@pytest.mark.parametrize("seq", [5, 9])
def test_a_snapshot_beside_which_a_change_got_lost_is_void(seq: int) -> None:
    for lose in (lambda s: s.changes(5, seq, cleared=False), lambda s: s.stand(5, seq)):
        stream = FactStream()
        stream.snapshot(5, 3, 0, 2)
        lose(stream)
        assert stream.snapshot(5, 3, 1, 2) == ()
        assert stream.lacks


# When to ask.


def requests(*chances: float) -> FactRequests:
    values: Iterator[float] = cycle(chances)
    return FactRequests(lambda: next(values))


def engines(count: int) -> list[EngineId]:
    return [engine_id(NodeId("n"), f"e{number:02}") for number in range(count)]


def test_a_snapshot_is_asked_for_after_a_random_wait_and_ever_more_seldom() -> None:
    wants, (engine,) = requests(0.5), engines(1)
    wants.want(engine, 0.0)
    wants.want(engine, 1e6)
    assert wants.take(0.5 * FIRST_MS - 1.0) == []
    assert wants.take(0.5 * FIRST_MS) == [engine]
    now_ms, waits = 0.5 * FIRST_MS, []
    for _ in range(10):
        began_ms = now_ms
        while not wants.take(now_ms):
            now_ms += 10.0
        waits.append(now_ms - began_ms)
    assert waits == sorted(waits)
    assert waits[0] < waits[-1] <= ANSWER_MS + WAIT_MS_MAX
    wants.came(engine)
    assert wants.take(1e9) == []
    assert len(wants) == 0


def test_nobody_asks_while_somebody_elses_snapshot_arrives() -> None:
    wants, (engine,) = requests(0.5), engines(1)
    wants.want(engine, 0.0)
    wants.arriving(engine, 200.0)
    assert wants.take(200.0 + ANSWER_MS - 1.0) == []
    assert wants.take(200.0 + ANSWER_MS) == [engine]


def test_few_snapshots_are_asked_for_at_a_time() -> None:
    wants, many = requests(0.0), engines(3 * ASKED_MAX)
    for engine in many:
        wants.want(engine, 0.0)
    first = wants.take(0.0)
    assert first == many[:ASKED_MAX]
    assert wants.take(1.0) == []
    wants.came(first[0])
    assert wants.take(2.0) == [many[ASKED_MAX]]
    # Who does not answer makes room for others in the end.
    assert set(wants.take(3.0 * ANSWER_MS)) >= set(many[ASKED_MAX + 1 : 2 * ASKED_MAX])


def test_what_was_told_before_a_loss_counts_for_a_while_only() -> None:
    wants, (engine,) = requests(0.0), engines(1)
    wants.want(engine, 0.0)
    assert wants.given_up(GIVEN_UP_MS - 1.0) == []
    assert wants.given_up(GIVEN_UP_MS) == [engine]
    assert wants.given_up(GIVEN_UP_MS + 1.0) == []


# Predictions.


def links(*which: int) -> bytes:
    return b"".join(map(WITHDRAWN.pack, which))


def test_what_is_predicted_lasts_for_a_time_after_the_last_answer() -> None:
    predicted = PredictedFacts(1_000.0, 100)
    predicted.hold(1, [11, 12], 0.0)
    predicted.hold(1, [11], 500.0)
    predicted.hold(2, [11], 600.0)
    assert predicted.expire(999.0) == {}
    gone = predicted.expire(1_000.0)
    assert {number: batch.withdrawn for number, batch in gone.items()} == {1: links(12)}
    gone = predicted.expire(1_600.0)
    assert {number: batch.withdrawn for number, batch in gone.items()} == {
        1: links(11),
        2: links(11),
    }
    assert len(predicted) == 0


def test_predictions_are_bounded_and_the_deepest_of_the_oldest_go_first() -> None:
    predicted = PredictedFacts(1_000.0, 3)
    predicted.hold(1, [11, 12, 13], 0.0)
    predicted.hold(2, [11], 1.0)
    assert predicted.expire(1.0)[1].withdrawn == links(13)
    assert len(predicted) == 3


def test_what_an_answer_disproves_is_withdrawn_and_an_engine_that_tells_is_not_predicted() -> None:
    predicted = PredictedFacts(1_000.0, 10)
    predicted.hold(1, [11, 12, 13], 0.0)
    predicted.hold(2, [13], 0.0)
    assert predicted.withdraw(1, [13, 14]).withdrawn == links(13)
    assert predicted.withdraw(1, [13]).withdrawn == b""
    assert predicted.forget(1).withdrawn == links(12, 11)
    assert {*predicted.expire(2_000.0)} == {2}
