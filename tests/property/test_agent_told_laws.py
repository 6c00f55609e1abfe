"""What an agent decides to tell next, and what a reader makes of it when some of it is lost."""

from __future__ import annotations

from dataclasses import dataclass, replace

from hypothesis import given
from hypothesis import strategies as st
from tests.engine_parts import engine_state

from axiom_common.model.adapter import AdapterState, Residency, ResidencySource
from axiom_common.model.engine import EngineFigures, EngineState, GpuState, NodeState, PlanStatus
from axiom_common.model.ids import EngineAdapter, NodeId, RegionId
from axiom_common.state.region_view import NodeBeat, Outcome, RegionView
from axiom_common.wire.reports import decode_node_report
from axiom_common.wire.schemas import NodeReport, ReportKind, encode
from axiom_common.wire.subjects import node_report
from axiom_node_agent.told import GPUS_AGAIN_MS, Told, essence

REGION, NODE = RegionId("r"), NodeId("n")
BEAT_MS = 250.0


@dataclass(frozen=True)
class Truth:
    """A node at one moment."""

    engines: tuple[EngineState, ...]
    gpus: tuple[GpuState, ...]
    plan: PlanStatus | None


RESIDENTS = st.lists(st.sampled_from("abcd"), unique=True, max_size=4).flatmap(
    lambda names: st.tuples(
        *(
            st.builds(
                Residency,
                adapter=st.just(EngineAdapter(name)),
                state=st.sampled_from([AdapterState.RESIDENT, AdapterState.HOST]),
                source=st.just(ResidencySource.EXTENSION),
            )
            for name in names
        )
    )
)
ENGINES = st.builds(
    lambda name, residents, running, registered: engine_state(
        f"n.{name}", residents=residents, running=running, registered=tuple(registered)
    ),
    st.sampled_from("xy"),
    RESIDENTS,
    st.integers(0, 2),
    st.lists(st.sampled_from([EngineAdapter("a"), EngineAdapter("b")]), unique=True, max_size=2),
)
TRUTHS = st.builds(
    Truth,
    engines=st.lists(ENGINES, max_size=2, unique_by=lambda e: e.engine).map(
        lambda found: tuple(sorted(found, key=lambda e: e.engine))
    ),
    gpus=st.lists(
        st.builds(
            GpuState, index=st.just(0), power_w=st.sampled_from([1.0, 2.0]), lost=st.booleans()
        ),
        max_size=1,
    ).map(tuple),
    plan=st.sampled_from([None, *(PlanStatus(revision=n, fence=1, accepted=True) for n in (1, 2))]),
)
TURNS = st.builds(
    lambda truth, turn: replace(
        truth, engines=tuple(replace(e, residents=turn(e.residents)) for e in truth.engines)
    ),
    TRUTHS,
    st.sampled_from([lambda residents: residents, lambda residents: residents[::-1]]),
)


class Agent:
    """Tells as `Reporter` does, one message a step."""

    def __init__(self) -> None:
        self.told = Told()
        self.seq = 0

    def say(self, truth: Truth, now_ms: float, *, whole: bool, taken: bool) -> bytes:
        """The message; `taken`: the bus took it."""
        self.seq += 1
        told = self.told
        changed = gpus = None
        kind = ReportKind.FULL
        if whole or told.lacks_the_whole(truth.engines, truth.plan):
            changed, gpus = truth.engines, truth.gpus
        elif (
            (found := told.changes(truth.engines))
            or told.plan_changed(truth.plan)
            or told.gpus_changed(truth.gpus)
        ):
            kind, changed = ReportKind.DELTA, found
            gpus = truth.gpus if told.gpus_changed(truth.gpus) else None
        if changed is None:
            return encode(
                NodeBeat(
                    REGION,
                    NODE,
                    1,
                    self.seq,
                    told.base,
                    told.beat_of(truth.engines),
                    told.beat_gpus(truth.gpus, now_ms),
                )
            )
        payload = encode(
            NodeReport(
                kind=kind,
                region=REGION,
                node=NODE,
                incarnation=1,
                seq=self.seq,
                base=told.base if kind is ReportKind.DELTA else None,
                engines=changed,
                gpus=gpus,
                plan=truth.plan,
            )
        )
        if taken:
            told.told_whole(
                self.seq,
                [(engine, engine) for engine in changed],
                gpus=gpus,
                plan=truth.plan,
                full=kind is ReportKind.FULL,
            )
        return payload


def _slow(state: NodeState | Truth) -> object:
    return ({e.engine: essence(e) for e in state.engines}, state.plan)


def _fast(state: NodeState | Truth) -> object:
    return {e.engine: (e.figures, tuple(r.adapter for r in e.residents)) for e in state.engines}


@given(
    st.lists(
        st.tuples(
            TURNS, st.sampled_from(["arrives", "arrives", "lost", "not taken"]), st.booleans()
        ),
        min_size=1,
        max_size=20,
    )
)
def test_a_reader_knows_the_truth_or_knows_that_it_does_not(
    course: list[tuple[Truth, str, bool]],
) -> None:
    agent, view = Agent(), RegionView(REGION)
    asked = False
    for step, (truth, fate, figures) in enumerate(course):
        now_ms = step * BEAT_MS
        if not figures and step:
            # Only figures and the order change.
            before = course[step - 1][0]
            truth = replace(
                before,
                engines=tuple(
                    e.with_figures(EngineFigures(running=step), residents=e.residents[::-1])
                    for e in before.engines
                ),
            )
            course[step] = (truth, fate, figures)
        payload = agent.say(truth, now_ms, whole=asked, taken=fate != "not taken")
        if fate != "arrives":
            continue
        report = decode_node_report(node_report(REGION, NODE), payload)
        outcome = view.apply(report, now_ms).outcome
        asked = outcome is not Outcome.APPLIED
        if asked:
            assert outcome in (Outcome.GAP, Outcome.NEEDS_FULL)
            continue
        state = view.node(NODE)
        assert state is not None
        assert _slow(state) == _slow(truth)
        if isinstance(report, NodeBeat | NodeState):
            assert _fast(state) == _fast(truth)
    # Whatever was lost: if all arrives from now on, all is known soon, also the GPUs.
    truth = course[-1][0]
    for _ in range(3):
        now_ms += GPUS_AGAIN_MS
        payload = agent.say(truth, now_ms, whole=asked, taken=True)
        outcome = view.apply(decode_node_report(node_report(REGION, NODE), payload), now_ms).outcome
        asked = outcome is not Outcome.APPLIED
    state = view.node(NODE)
    assert state is not None
    assert (_slow(state), _fast(state), state.gpus) == (_slow(truth), _fast(truth), truth.gpus)
