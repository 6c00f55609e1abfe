"""Sums of in-flight vectors are what the gateways heard last told, whatever the order."""

from __future__ import annotations

from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from axiom_common.model.ids import BASE, EngineAdapter, EngineId, GatewayId
from axiom_common.state.inflight_vectors import (
    EXPIRED_MS,
    GATEWAYS_MAX,
    MISSING_MAX,
    MISSING_MS,
    SILENT_MS,
    Count,
    InFlightVectors,
)

ENGINES = [EngineId(f"n.e{i}") for i in range(3)]
ADAPTERS = [BASE, EngineAdapter("a~1"), EngineAdapter("b~1")]
COUNTS = st.lists(
    st.tuples(st.sampled_from(ENGINES), st.sampled_from(ADAPTERS), st.integers(0, 9)), max_size=6
)
REPORTS = st.lists(
    st.tuples(
        st.sampled_from(["g1", "g2"]), st.integers(1, 2), st.integers(1, 9), st.booleans(), COUNTS
    ),
    max_size=20,
)


def _sums(vectors: InFlightVectors) -> dict[EngineId, dict[EngineAdapter, int]]:
    return {engine: dict(vectors.of(engine)) for engine in ENGINES if vectors.of(engine)}


@given(REPORTS)
def test_sums_equal_a_fold_from_scratch_and_return_to_zero(
    reports: list[tuple[str, int, int, bool, list[Count]]],
) -> None:
    vectors = InFlightVectors()
    latest: dict[str, tuple[int, int]] = {}
    model: dict[str, dict[tuple[EngineId, EngineAdapter], int]] = {}
    for gateway, incarnation, seq, full, counts in reports:
        before = _sums(vectors)
        changed = vectors.apply(
            GatewayId(gateway),
            incarnation=incarnation,
            seq=seq,
            full=full,
            counts=counts,
            now_ms=0.0,
        )
        if (incarnation, seq) > latest.get(gateway, (0, 0)):
            if full or incarnation > latest.get(gateway, (0, 0))[0]:
                model[gateway] = {}
            model[gateway] |= {(e, a): c for e, a, c in counts}
            latest[gateway] = (incarnation, seq)
        after = _sums(vectors)
        assert set(changed) == {e for e in ENGINES if before.get(e) != after.get(e)}
    expected: Counter[tuple[EngineId, EngineAdapter]] = Counter()
    for vector in model.values():
        expected.update(vector)
    told = {(e, a): c for e, sums in _sums(vectors).items() for a, c in sums.items()}
    assert told == {key: count for key, count in expected.items() if count}
    vectors.expire(SILENT_MS)
    assert (_sums(vectors), vectors.gateways) == ({}, 0)


STEPS = st.lists(
    st.tuples(
        st.sampled_from(["g1", "g2", "g3"]),
        st.sampled_from(["says", "leaves", "begins anew", "says nothing"]),
        st.none() | st.integers(0, 4),
        st.sampled_from([0.0, 100.0, SILENT_MS, EXPIRED_MS]),
    ),
    max_size=25,
)


@given(STEPS, st.integers(0, 4))
def test_confirmed_is_only_what_each_said_itself_that_may_be_at_work(
    steps: list[tuple[str, str, int | None, float]], revision: int
) -> None:
    """Against a list of everybody's last word: nobody is forgotten before its time, but by its own
    goodbye, and nobody else's word counts for it. Who is not waited for any more is named."""
    vectors = InFlightVectors()
    order: dict[str, tuple[int, int]] = {}
    last: dict[str, tuple[int | None, float]] = {}
    now_ms = 0.0
    for gateway, what, applied, passed_ms in steps:
        now_ms += passed_ms
        vectors.expire(now_ms)
        incarnation, seq = order.get(gateway, (1, 0))
        if what == "says nothing":
            continue
        began = what == "begins anew"
        order[gateway] = (incarnation + 1, 1) if began else (incarnation, seq + 1)
        vectors.apply(
            GatewayId(gateway),
            incarnation=order[gateway][0],
            seq=order[gateway][1],
            full=False,
            counts=[],
            now_ms=now_ms,
            applied=applied,
            left=what == "leaves",
        )
        last[gateway] = (applied, now_ms)
        if what == "leaves":
            del last[gateway]
    vectors.expire(now_ms)
    expected = set()
    for gateway, (applied, heard_ms) in last.items():
        silent_ms = now_ms - heard_ms
        if silent_ms < SILENT_MS:
            if applied is None or applied < revision:
                expected.add(gateway)
        elif silent_ms < EXPIRED_MS:
            expected.add(gateway)
    found = set(vectors.unconfirmed(revision))
    assert expected <= found
    heard = {g for g, (_, heard_ms) in last.items() if now_ms - heard_ms < SILENT_MS}
    assert found | heard | set(vectors.missing) == last.keys() | found
    assert not (found | heard) & set(vectors.missing)
    # When it fell silent is known to the sweep that finds it: it may count a little longer.
    assert found - expected <= {
        g for g, (_, heard_ms) in last.items() if now_ms - heard_ms >= EXPIRED_MS
    }
    vectors.expire(now_ms + SILENT_MS)
    vectors.expire(now_ms + SILENT_MS + EXPIRED_MS)
    assert vectors.unconfirmed(revision) == ()
    assert vectors.missing == tuple(sorted(last))
    vectors.expire(now_ms + SILENT_MS + EXPIRED_MS + MISSING_MS)
    assert vectors.missing == ()


def test_a_gateway_that_still_speaks_is_kept() -> None:
    vectors = InFlightVectors()
    for gateway, now_ms in (("old", 0.0), ("new", 1.0)):
        vectors.apply(
            GatewayId(gateway),
            incarnation=1,
            seq=1,
            full=True,
            counts=[(ENGINES[0], BASE, 2)],
            now_ms=now_ms,
        )
    assert vectors.expire(SILENT_MS) == (ENGINES[0],)
    assert vectors.of(ENGINES[0]) == {BASE: 2}


@pytest.mark.parametrize("beyond", [1, 10])
def test_the_number_of_gateways_is_bounded(beyond: int) -> None:
    vectors = InFlightVectors()
    for number in range(GATEWAYS_MAX + beyond):
        vectors.apply(
            GatewayId(f"g{number}"), incarnation=1, seq=1, full=True, counts=[], now_ms=0.0
        )
    assert vectors.gateways == GATEWAYS_MAX


@pytest.mark.parametrize(("seq", "counts"), [(4, False), (5, False), (6, True)])
def test_a_late_word_of_a_gateway_that_was_dropped_changes_nothing(seq: int, counts: bool) -> None:
    vectors = InFlightVectors()

    def told(seq: int, now_ms: float) -> None:
        vectors.apply(
            GatewayId("g"),
            incarnation=1,
            seq=seq,
            full=True,
            counts=[(ENGINES[0], BASE, 2)],
            now_ms=now_ms,
        )

    told(5, 0.0)
    vectors.expire(SILENT_MS)
    told(seq, SILENT_MS + 1.0)
    assert bool(vectors.of(ENGINES[0])) is counts


def test_what_remains_of_dropped_gateways_is_bounded_and_ends() -> None:
    vectors = InFlightVectors()
    for number in range(3 * GATEWAYS_MAX):
        now_ms = number * SILENT_MS
        vectors.expire(now_ms)
        vectors.apply(
            GatewayId(f"g{number}"), incarnation=1, seq=1, full=True, counts=[], now_ms=now_ms
        )
        assert len(vectors._gone) <= EXPIRED_MS / SILENT_MS
        assert len(vectors.missing) <= MISSING_MAX
    assert len(vectors.missing) == MISSING_MAX
    vectors.tell_engine(GatewayId(vectors.missing[0]), ENGINES[0], {}, now_ms)
    assert len(vectors.missing) == MISSING_MAX - 1
    vectors.expire(1e9)
    vectors.expire(2e9)
    assert not vectors._gone
    assert not vectors.missing
