"""What an agent tells next, from what it told before."""

from __future__ import annotations

from dataclasses import replace

import pytest
from tests.engine_parts import engine_state

from axiom_common.model.adapter import AdapterState, Residency, ResidencySource
from axiom_common.model.engine import (
    EngineFigures,
    EngineState,
    EngineStatus,
    GpuState,
    LoadFailure,
    PlanStatus,
)
from axiom_common.model.ids import EngineAdapter
from axiom_common.model.reason import Reason
from axiom_node_agent.told import GPUS_AGAIN_MS, Told

PLAN = PlanStatus(revision=1, fence=1, accepted=True)
GPU = GpuState(index=0, throttle=0, power_w=100.0)


def residents(
    *names: str, source: ResidencySource = ResidencySource.EXTENSION
) -> tuple[Residency, ...]:
    return tuple(
        Residency(adapter=EngineAdapter(n), state=AdapterState.RESIDENT, source=source)
        for n in names
    )


ENGINE = engine_state("n.a", residents=residents("a", "b", "c"))


def told(*engines: EngineState, plan: PlanStatus | None = None) -> Told:
    """All was told whole, as number 7."""
    it = Told()
    pairs = [(engine, engine) for engine in engines]
    it.told_whole(7, pairs, gpus=(GPU,), plan=plan, full=True)
    return it


def order_in(it: Told, engine: EngineState) -> tuple[int, ...] | None:
    [beat] = it.beat_of([engine])
    return beat.order


@pytest.mark.parametrize(
    ("now", "at_once"),
    [
        (ENGINE, False),
        (ENGINE.with_figures(EngineFigures(running=9, sample=3)), False),
        (replace(ENGINE, residents=residents("c", "b", "a")), False),
        (replace(ENGINE, residents=residents("a", "b")), True),
        (replace(ENGINE, residents=residents("a", "b", "d")), True),
        (
            replace(ENGINE, residents=residents("a", "b", "c", source=ResidencySource.METRICS)),
            True,
        ),
        (
            replace(
                ENGINE, residents=tuple(replace(r, in_flight=1) for r in residents("a", "b", "c"))
            ),
            True,
        ),
        (
            replace(ENGINE, residents=tuple(replace(r, age_ms=9.0) for r in ENGINE.residents)),
            False,
        ),
        (replace(ENGINE, status=EngineStatus.UNREACHABLE), True),
        (replace(ENGINE, registered=(EngineAdapter("a"),)), True),
        (
            replace(
                ENGINE,
                failures=(
                    LoadFailure(
                        adapter=EngineAdapter("x"), reason=Reason.LOAD_FAILED, retry_in_ms=5.0
                    ),
                ),
            ),
            True,
        ),
    ],
)
def test_which_changes_can_not_wait_for_the_beat(now: EngineState, at_once: bool) -> None:
    assert told(ENGINE).changes([now]) == ((now,) if at_once else ())


def test_what_only_a_full_can_tell() -> None:
    other = engine_state("n.b")
    assert Told().lacks_the_whole([], None)
    assert not told(ENGINE).lacks_the_whole([ENGINE], None)
    assert told(ENGINE).lacks_the_whole([ENGINE, other], None)
    assert told(ENGINE, other).lacks_the_whole([ENGINE], None)
    assert told(ENGINE, plan=PLAN).lacks_the_whole([ENGINE], None)
    assert not told(ENGINE).lacks_the_whole([ENGINE], PLAN)
    assert told(ENGINE).plan_changed(PLAN)
    assert not told(ENGINE, plan=PLAN).plan_changed(PLAN)


def test_an_order_that_moved_is_told_in_each_beat_until_the_engine_is_told_whole() -> None:
    it = told(ENGINE)
    moved = replace(ENGINE, residents=residents("c", "a", "b"))
    assert order_in(it, ENGINE) is None
    assert order_in(it, moved) == (2, 0, 1)
    assert order_in(it, moved) == (2, 0, 1)
    assert order_in(it, ENGINE) == (0, 1, 2), "others may have missed that it is back"
    it.told_whole(9, [(moved, moved)], gpus=None, plan=None, full=False)
    assert it.base == 9
    assert order_in(it, moved) is None
    assert order_in(it, ENGINE) == (0, 1, 2)


def test_a_delta_about_one_engine_leaves_what_moved_on_another() -> None:
    other = engine_state("n.b", residents=residents("x", "y"))
    it = told(ENGINE, other)
    turned = replace(other, residents=residents("y", "x"))
    it.beat_of([ENGINE, turned])
    it.told_whole(9, [(ENGINE, ENGINE)], gpus=None, plan=None, full=False)
    assert [beat.order for beat in it.beat_of([ENGINE, turned])] == [None, (1, 0)]


def test_the_order_is_of_those_that_were_sent() -> None:
    it = Told()
    sent = replace(ENGINE, residents=residents("a", "c"))
    it.told_whole(1, [(ENGINE, sent)], gpus=(), plan=None, full=True)
    assert it.changes([ENGINE]) == ()
    assert order_in(it, replace(ENGINE, residents=residents("c", "b", "a"))) == (1, 0)


def test_only_an_order_that_the_engine_tells_itself_can_not_wait() -> None:
    turned = residents("c", "b", "a")
    guessed = residents("a", "b", "c", source=ResidencySource.INFERRED)
    it = told(ENGINE)
    assert not it.exact_order_moved([ENGINE])
    moved = replace(ENGINE, residents=turned)
    assert it.exact_order_moved([moved])
    it.beat_of([moved])
    assert not it.exact_order_moved([moved])
    replayed = told(replace(ENGINE, residents=guessed))
    assert not replayed.exact_order_moved([replace(ENGINE, residents=guessed[::-1])])


def test_gpus_go_with_a_beat_when_they_changed_and_from_then_on_each_second() -> None:
    it = told(ENGINE)
    warm = (replace(GPU, power_w=200.0),)
    assert it.beat_gpus((GPU,), 0.0) is None
    assert not it.gpus_changed(warm)
    assert it.beat_gpus(warm, 1.0) == warm
    assert it.beat_gpus(warm, GPUS_AGAIN_MS) is None
    assert it.beat_gpus(warm, GPUS_AGAIN_MS + 1.0) == warm, "the one before may be lost"
    it.told_whole(9, [], gpus=warm, plan=None, full=False)
    assert it.beat_gpus(warm, 9e9) is None


@pytest.mark.parametrize(
    "now",
    [(replace(GPU, lost=True),), (), (GPU, replace(GPU, index=1)), (replace(GPU, xid=79),)],
)
def test_what_is_urgent_of_a_gpu_can_not_wait(now: tuple[GpuState, ...]) -> None:
    assert told(ENGINE).gpus_changed(now)
