"""How what is told becomes rows: breaker, silence, peers, foreign load, own timings."""

from __future__ import annotations

import pytest

from axiom_common.model.adapter import AdapterState, Residency, ResidencySource
from axiom_common.model.decision import LoadKind, Query
from axiom_common.model.engine import EngineLimits, EngineState, EngineStatus, NodeState
from axiom_common.model.engine_order import EngineOrder, OrderKind
from axiom_common.model.ids import (
    BASE,
    EngineAdapter,
    EngineId,
    GatewayId,
    NodeId,
    RegionId,
    engine_id,
)
from axiom_common.model.reason import Reason
from axiom_common.model.tenant import DEFAULT_TENANT
from axiom_common.policy.profile import BUILT_IN
from axiom_common.state.breaker import FAILURES_MAX, OPEN_MS
from axiom_common.testing.clock import FakeClock
from axiom_common.wire.schemas import InFlightCount, InFlightReport, ReportKind
from axiom_common.wire.views import EngineUse
from axiom_gateway.engine_facts import LAPSE_MS, OWN_SAMPLE_MS, STALE_MS, serves_alone
from axiom_gateway.proxy import Try, Verdict
from axiom_gateway.row_sweep import ROWS_A_TURN, SWEPT_MAX, TURNS
from axiom_gateway.state import GatewayState

REGION, NODE, OTHER = RegionId("r"), NodeId("n"), NodeId("m")
A, B = EngineId("n.a"), EngineId("n.b")
FAILED = Try(verdict=Verdict.FAILED)
SERVED = Try(verdict=Verdict.SERVED, status=200)
QUERY = Query(base_model="base")
BOT = EngineAdapter("bot~1")


def resident(in_flight: int) -> tuple[Residency, ...]:
    return (
        Residency(
            adapter=BOT,
            state=AdapterState.RESIDENT,
            source=ResidencySource.INFERRED,
            in_flight=in_flight,
        ),
    )


class Setting:
    """A state with a clock, and nodes told to it."""

    def __init__(self) -> None:
        self.clock = FakeClock(1000.0)
        self.state = GatewayState(self.clock, BUILT_IN)
        self.seq = 0

    def tell(
        self,
        *engines: EngineId,
        node: NodeId = NODE,
        heard: bool = True,
        running: int = 0,
        waiting: int = 0,
        in_flight: int | None = None,
    ) -> None:
        self.seq += 1
        states = tuple(
            EngineState(
                engine=engine,
                url="http://e",
                base_model="base",
                served_name="base",
                status=EngineStatus.READY,
                limits=EngineLimits(hbm_slots=2, max_lora_rank=8),
                sample=self.seq,
                running=running,
                waiting=waiting,
                residents=() if in_flight is None else resident(in_flight),
                registered=() if in_flight is None else (BOT,),
            )
            for engine in engines
        )
        told = NodeState(region=REGION, node=node, incarnation=1, seq=self.seq, engines=states)
        self.state.node_changed(told, heard=heard)

    def refusal(self, engine: EngineId) -> Reason | None:
        row = self.state.engines[engine].row
        assert row is not None
        return row.refusal

    def winner(self) -> EngineId | None:
        decision = self.state.choose(QUERY, "axiom")
        return decision.winner.engine if decision.winner else None

    def peer(
        self, engine: EngineId, count: int, seq: int, *, adapter: EngineAdapter = BASE
    ) -> None:
        self.state.peer_told(
            InFlightReport(
                kind=ReportKind.FULL,
                region=REGION,
                gateway=GatewayId("peer"),
                incarnation=1,
                seq=seq,
                counts=(InFlightCount(engine=engine, adapter=adapter, count=count),),
            )
        )


@pytest.fixture
def setting() -> Setting:
    return Setting()


async def test_the_breaker_opens_at_once_and_a_probe_that_answers_closes_it(
    setting: Setting,
) -> None:
    setting.tell(A)
    for _ in range(FAILURES_MAX):
        assert setting.refusal(A) is None
        setting.state.sent(A)
        setting.state.observe(A, FAILED)
    assert setting.refusal(A) is Reason.BREAKER_OPEN
    await setting.clock.advance(OPEN_MS)
    setting.state.sweep()
    assert setting.refusal(A) is None
    setting.state.sent(A)
    assert setting.refusal(A) is Reason.BREAKER_OPEN
    setting.state.first_token(A, 0)
    assert setting.refusal(A) is None


async def test_answers_between_failures_do_not_undo_them(setting: Setting) -> None:
    setting.tell(A)
    for _ in range(FAILURES_MAX):
        setting.state.observe(A, SERVED)
        setting.state.observe(A, FAILED)
    assert setting.refusal(A) is Reason.BREAKER_OPEN


async def test_a_probe_whose_client_left_does_not_keep_the_engine_out_for_long(
    setting: Setting,
) -> None:
    setting.tell(A)
    for _ in range(FAILURES_MAX):
        setting.state.observe(A, FAILED)
    await setting.clock.advance(OPEN_MS)
    setting.state.sent(A)
    setting.state.abandoned(A)
    await setting.clock.advance(2 * OPEN_MS)
    setting.state.sweep()
    assert setting.refusal(A) is None


async def test_the_clients_own_fault_is_no_failure(setting: Setting) -> None:
    setting.tell(A)
    for verdict in (Verdict.REJECTED, Verdict.FORGOTTEN):
        for _ in range(2 * FAILURES_MAX):
            setting.state.observe(A, Try(verdict=verdict))
    assert setting.refusal(A) is None


async def test_an_engine_without_news_is_left_out_while_others_have_some(setting: Setting) -> None:
    setting.tell(A)
    setting.tell(B, node=OTHER)
    first = setting.winner()
    await setting.clock.advance(5000.0)
    setting.state.sweep()
    assert setting.winner() == first
    other, node = (B, OTHER) if first == A else (A, NODE)
    setting.tell(other, node=node)
    assert setting.winner() == other
    # Its agent is silent, but it answers.
    assert first is not None
    setting.state.probed(first, True)
    assert setting.winner() == first


def test_an_engine_that_its_node_tells_no_more_is_gone(setting: Setting) -> None:
    setting.tell(A, B)
    setting.tell(B)
    assert setting.state.engine(A) is None
    assert setting.winner() == B
    setting.state.node_removed(NODE)
    assert (setting.winner(), dict(setting.state.engines)) == (None, {})
    assert setting.state.catalog.entries(DEFAULT_TENANT.name) == []


def test_a_dead_agents_engines_are_judged_by_probes(setting: Setting) -> None:
    setting.tell(A)
    setting.state.agent_died(NODE)
    assert setting.refusal(A) is None
    setting.state.probed(A, False)
    assert setting.refusal(A) is Reason.NOT_READY
    setting.state.probed(A, True)
    assert setting.refusal(A) is None
    setting.state.probed(A, False)
    setting.tell(A)
    assert setting.refusal(A) is None


async def test_what_peers_have_in_flight_counts_and_goes_with_them(setting: Setting) -> None:
    # Told before the node itself is known.
    setting.peer(A, 40, 1)
    setting.tell(A, B)
    assert setting.winner() == B
    await setting.clock.advance(10_000.0)
    setting.tell(A, B)
    setting.state.sweep()
    assert setting.state.peers == 0
    setting.peer(B, 40, 1)
    assert setting.state.peers == 0, "it is late"
    setting.peer(B, 40, 2)
    assert setting.winner() == A


def test_people_are_shown_the_requests_of_all(setting: Setting) -> None:
    setting.tell(A, in_flight=1)
    setting.peer(A, 4, 1, adapter=BOT)
    for _ in range(2):
        query = Query(base_model="base", adapter=BOT, rank=8)
        assert setting.state.decide(query, "axiom").winner is not None
    state = setting.state.engine(A)
    assert state is not None
    node = NodeState(region=REGION, node=NODE, incarnation=1, seq=1, engines=(state,))
    [shown] = setting.state.shown.node(node).engines
    assert [r.in_flight for r in shown.residents] == [2 + 4 + 1]


async def test_what_others_had_in_flight_does_not_count_for_ever(setting: Setting) -> None:
    """Agent, bus or peer may be away for hours; the load they told last is over by then."""
    setting.peer(A, 40, 1)
    for _ in range(3):
        setting.tell(A, running=100, waiting=30, in_flight=1)
    facts = setting.state.engines[A]
    assert facts.foreign == 90
    assert facts.row is not None
    assert facts.row.residents[0].in_flight == 1
    await setting.clock.advance(LAPSE_MS)
    setting.state.sweep()
    assert (facts.foreign, setting.state.peers) == (0, 0)
    assert facts.state.running == facts.state.waiting == facts.row.residents[0].in_flight == 0
    assert facts.row.residents[0].adapter == BOT
    setting.tell(A, running=100, waiting=30)
    assert facts.state.running == 100


def test_a_name_that_the_engine_forgot_is_not_there_until_its_agent_tells_again(
    setting: Setting,
) -> None:
    query = Query(base_model="base", adapter=BOT, rank=8)
    setting.tell(A, in_flight=0)
    assert setting.state.choose(query, "axiom").load is LoadKind.NONE
    setting.state.forgot(A, BOT)
    assert setting.state.choose(query, "axiom").load is LoadKind.COLD
    assert not setting.state.has_registered(A, BOT)
    setting.tell(A, in_flight=0)
    assert setting.state.choose(query, "axiom").load is LoadKind.NONE


def test_an_agent_that_does_not_answer_is_asked_no_more_until_it_is_heard(
    setting: Setting,
) -> None:
    new = Query(base_model="base", adapter=EngineAdapter("new~1"), rank=8)
    here = Query(base_model="base", adapter=BOT, rank=8)
    setting.tell(A, B, in_flight=0)
    assert setting.state.choose(new, "axiom").winner is not None
    setting.state.ensure_failed(B)
    assert setting.state.choose(new, "axiom").refusals == {Reason.AGENT_SILENT: 2}
    assert setting.state.choose(here, "axiom").winner is not None
    setting.tell(A, B, heard=False, in_flight=0)
    assert setting.state.choose(new, "axiom").winner is None
    setting.tell(A, B, in_flight=0)
    assert setting.state.choose(new, "axiom").winner is not None


async def test_silent_engines_are_probed_in_turn(setting: Setting) -> None:
    setting.tell(A, B)
    assert setting.state.silent_engines() == []
    await setting.clock.advance(STALE_MS)
    first = [engine for engine, _ in setting.state.silent_engines()]
    assert sorted(first) == [A, B]
    setting.state.probed(first[0], True)
    assert [engine for engine, _ in setting.state.silent_engines()] == first[::-1]


def test_requests_that_no_gateway_sent_count_once_two_beats_show_them(setting: Setting) -> None:
    setting.tell(A)
    for _ in range(3):
        setting.tell(A, running=20, waiting=5)
    assert setting.state.engines[A].foreign == 25
    setting.peer(A, 25, 1)
    for _ in range(2):
        setting.tell(A, running=20, waiting=5)
    assert setting.state.engines[A].foreign == 0


async def test_own_timings_are_evidence_for_ten_seconds(setting: Setting) -> None:
    setting.tell(A)
    facts = setting.state.engines[A]
    for ttft_ms in (10.0, 30.0):
        setting.state.observe(
            A, Try(verdict=Verdict.SERVED, status=200, ttft_ms=ttft_ms, tpot_ms=5.0)
        )
    evidence = facts.evidence(setting.clock.now_ms(), setting.clock.now_ms())
    assert (evidence.own_ttft_ms, evidence.own_tpot_ms) == (20.0, 5.0)
    await setting.clock.advance(OWN_SAMPLE_MS + 1)
    evidence = facts.evidence(setting.clock.now_ms(), setting.clock.now_ms())
    assert (evidence.own_ttft_ms, evidence.own_tpot_ms) == (None, None)


def test_bookings_are_told_and_return_to_nothing(setting: Setting) -> None:
    setting.tell(A)
    calls: list[str] = []
    setting.state.on_booking = lambda engine, adapter: calls.append(f"{engine} {adapter}")
    setting.state.on_room = lambda: calls.append("room")
    decision = setting.state.decide(Query(base_model="base", adapter=EngineAdapter("x~1")), "axiom")
    assert [(c.engine, c.adapter, c.count) for c in setting.state.in_flight_on(A)] == [
        (A, "x~1", 1)
    ]
    setting.state.release(decision.booking)
    setting.state.release(decision.booking)
    assert setting.state.vector() == {}
    assert calls == ["n.a x~1", "room", "room"]


async def test_of_a_large_region_that_falls_silent_a_sweep_writes_some_engines_the_oldest_first(
    setting: Setting,
) -> None:
    nodes = 5
    for number in range(nodes):
        node = NodeId(f"n{number}")
        setting.tell(*(engine_id(node, f"e{n}") for n in range(SWEPT_MAX // 4)), node=node)
    written: list[int] = []
    for _ in range(nodes):
        await setting.clock.advance(STALE_MS)
        setting.state.sweep()
        now_ms = setting.clock.now_ms()
        assert sum(f.written_ms == now_ms for f in setting.state.engines.values()) == ROWS_A_TURN
        for _ in range(TURNS - 1):
            setting.state.sweep_on()
        written.append(sum(f.written_ms == now_ms for f in setting.state.engines.values()))
    assert written == [SWEPT_MAX] * nodes
    # Five sweeps write four fifths each: every engine was among them, and none a fifth time.
    oldest_ms = min(facts.written_ms for facts in setting.state.engines.values())
    assert now_ms - oldest_ms == STALE_MS


def ordered(engine: EngineId, kind: OrderKind = OrderKind.DRAIN) -> EngineOrder:
    return EngineOrder(region=REGION, engine=engine, kind=kind, note="why")


@pytest.mark.parametrize("kind", OrderKind)
async def test_an_order_keeps_requests_and_loads_away_until_it_is_released(
    setting: Setting, kind: OrderKind
) -> None:
    setting.tell(A, B)
    assert setting.state.orders_changed([ordered(A, kind)]) == (A,)
    assert (setting.refusal(A), setting.winner()) == (Reason.DRAINING, B)
    assert not setting.state.may_send(A)
    assert not setting.state.may_load(A)
    assert setting.state.orders_changed([ordered(A, kind)]) == ()
    assert setting.state.orders_changed([ordered(B, kind)]) == (A, B)
    assert (setting.refusal(B), setting.winner()) == (Reason.DRAINING, A)
    assert setting.state.orders_changed([]) == (B,)
    assert setting.refusal(B) is None


async def test_an_order_holds_for_an_engine_that_comes_later_or_again(setting: Setting) -> None:
    setting.state.orders_changed([ordered(A)])
    assert not setting.state.may_send(A)
    for _ in range(2):
        setting.tell(A, B)
        assert setting.refusal(A) is Reason.DRAINING
        setting.tell(B)
        setting.state.node_removed(NODE)


async def test_an_engine_is_idle_once_a_newer_sample_shows_nothing(setting: Setting) -> None:
    setting.tell(A)
    setting.tell(A)
    setting.tell(A)
    assert setting.state.shown.use(A).idle is True
    decision = setting.state.decide(QUERY, "axiom")
    setting.state.orders_changed([ordered(A)])
    assert setting.state.shown.use(A) == EngineUse(ordered(A), in_flight=1, idle=False)
    setting.state.release(decision.booking)
    assert setting.state.shown.use(A).idle is None
    setting.tell(A)
    # It may have been taken before the order.
    assert setting.state.shown.use(A).idle is None
    setting.tell(A, running=1)
    assert setting.state.shown.use(A).idle is False
    setting.tell(A, waiting=1)
    assert setting.state.shown.use(A).idle is False
    setting.tell(A)
    assert setting.state.shown.use(A).idle is True
    setting.peer(A, 3, seq=1)
    assert setting.state.shown.use(A) == EngineUse(ordered(A), in_flight=3, idle=False)
    setting.peer(A, 0, seq=2)
    await setting.clock.advance(LAPSE_MS)
    assert setting.state.shown.use(A).idle is None


async def test_who_serves_alone(setting: Setting) -> None:
    def alone(engine: EngineId) -> bool:
        known = setting.state.engines
        return serves_alone(known[engine], known.values())

    setting.tell(A)
    assert alone(A)
    setting.tell(A, B)
    assert not alone(A)
    setting.state.orders_changed([ordered(B)])
    assert alone(A)
    assert not alone(B)
    setting.state.orders_changed([])
    setting.state.agent_died(NODE)
    assert not alone(A)
