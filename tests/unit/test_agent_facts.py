"""What an agent tells of an engine's facts, number by number."""

from __future__ import annotations

import pytest

from axiom_common.model.ids import EngineId, NodeId, RegionId
from axiom_common.model.prefix import FactBatch, FactChanges
from axiom_common.wire.schemas import FactReport, decode, encode
from axiom_node_agent.facts import (
    GATHER_MS,
    PART_BYTES,
    SNAPSHOT_GAP_MS,
    STAND_EVERY_MS,
    EngineFacts,
    FactCut,
    in_parts,
)

ENGINE = EngineId("n1.e1")
NOTHING = FactChanges()
SOME = FactChanges(hbm=FactBatch.of([(1, 16)], [2]), any_tier=FactBatch.of([(3, 32)], [4]))
WHOLE = FactChanges(True, FactBatch.of([(1, 16)], ()))


def engine_facts(incarnation: int = 7) -> EngineFacts:
    facts = EngineFacts(RegionId("r"), NodeId("n1"), ENGINE)
    facts.begin(incarnation)
    return facts


def cut(changes: FactChanges, whole: FactChanges | None = None) -> FactCut:
    return FactCut(revision="abc", changes=changes, whole=whole)


def numbers(messages: list[FactReport]) -> list[tuple[str, int, bool]]:
    return [(m.kind.value, m.seq, m.cleared) for m in messages]


def test_an_incarnation_begins_with_the_whole_as_changes_and_counts_from_1() -> None:
    facts = engine_facts()
    assert facts.anew
    assert numbers(facts.messages(cut(WHOLE), 0.0)) == [("changes", 1, True)]
    assert not facts.anew
    [report] = facts.messages(cut(SOME), 50.0)
    assert (report.seq, report.cleared, report.hbm, report.any_tier) == (
        2, False, SOME.hbm, SOME.any_tier,
    )  # fmt: skip
    assert (report.incarnation, report.revision) == (7, "abc")
    assert decode(encode(report), FactReport) == report
    facts.begin(7)
    assert not facts.anew
    facts.begin(8)
    assert facts.anew
    assert numbers(facts.messages(cut(WHOLE), 100.0)) == [("changes", 1, True)]


def test_who_may_have_lost_the_last_message_hears_where_it_stands() -> None:
    facts = engine_facts()
    assert facts.messages(cut(NOTHING), 0.0) == []
    facts.messages(cut(WHOLE), 0.0)
    assert facts.messages(cut(NOTHING), STAND_EVERY_MS - 1) == []
    assert numbers(facts.messages(cut(NOTHING), STAND_EVERY_MS)) == [("stand", 1, False)]
    assert facts.messages(cut(NOTHING), STAND_EVERY_MS + 50) == []
    facts.messages(cut(SOME), STAND_EVERY_MS + 100)
    assert facts.messages(cut(NOTHING), 2 * STAND_EVERY_MS) == []


def test_many_askers_get_one_snapshot_after_the_changes_that_it_was_cut_at() -> None:
    facts = engine_facts()
    facts.messages(cut(WHOLE), 0.0)
    facts.want(1_000.0)
    facts.want(1_100.0)
    assert not facts.wants_whole(1_000.0 + GATHER_MS - 1)
    assert facts.wants_whole(1_000.0 + GATHER_MS)
    messages = facts.messages(cut(SOME, WHOLE), 1_250.0)
    assert numbers(messages) == [("changes", 2, False), ("snapshot", 2, False)]
    assert not facts.wants_whole(1e9)
    facts.want(1_300.0)
    assert not facts.wants_whole(1_250.0 + SNAPSHOT_GAP_MS - 1)
    assert facts.wants_whole(1_250.0 + SNAPSHOT_GAP_MS)


def test_an_empty_snapshot_is_one_part() -> None:
    facts = engine_facts()
    facts.want(0.0)
    empty = FactChanges(cleared=True)
    messages = facts.messages(cut(empty, empty), 1_000.0)
    assert numbers(messages) == [("changes", 1, True), ("snapshot", 1, False)]
    assert [m.parts for m in messages] == [1, 1]


def test_an_engine_that_is_told_of_no_more_is_cleared_and_its_numbers_go_on() -> None:
    facts = engine_facts()
    assert facts.gone(0.0) == []
    facts.messages(cut(WHOLE), 0.0)
    assert numbers(facts.gone(1.0)) == [("changes", 2, True)]
    assert facts.gone(2.0) == []
    assert facts.anew
    assert numbers(facts.messages(cut(WHOLE), 3.0)) == [("changes", 3, True)]


@pytest.mark.parametrize("bytes_max", [12, 20, 24, 36, 100, 1_000])
def test_parts_say_together_what_the_whole_says_and_what_goes_first(bytes_max: int) -> None:
    told = FactChanges(
        cleared=True,
        hbm=FactBatch.of(((n, n) for n in range(7)), range(10, 15)),
        any_tier=FactBatch.of(((n, n) for n in range(20, 23)), range(30, 33)),
    )
    parts = in_parts(told, bytes_max)
    batches = [(p.hbm, p.any_tier) for p in parts]
    for hbm, lower in batches:
        assert sum(map(len, (hbm.announced, hbm.withdrawn, lower.announced, lower.withdrawn))) <= (
            bytes_max
        )
    joined = FactChanges(
        True,
        *(
            FactBatch(
                b"".join(batch[tier].announced for batch in batches),
                b"".join(batch[tier].withdrawn for batch in batches),
            )
            for tier in (0, 1)
        ),
    )
    assert joined == told
    assert [p.cleared for p in parts] == [True] + [False] * (len(parts) - 1)
    first_news = next(i for i, (h, a) in enumerate(batches) if h.announced or a.announced)
    assert not any(h.withdrawn or a.withdrawn for h, a in batches[first_news + 1 :])


def test_a_part_fits_into_a_message() -> None:
    many = FactChanges(True, FactBatch(bytes(12 * 100_000)))
    messages = engine_facts().messages(cut(many, many), 0.0)
    assert numbers(messages)[:3] == [
        ("changes", 1, True),
        ("changes", 2, False),
        ("changes", 3, False),
    ]
    assert [(m.part, m.parts) for m in messages[3:]] == [(0, 3), (1, 3), (2, 3)]
    assert max(len(encode(m)) for m in messages) < 512_000
    assert PART_BYTES % 24 == 0
