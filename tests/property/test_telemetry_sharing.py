"""Laws of how telemetry instances share nodes, and of how they ask for full states."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from enum import Enum

from hypothesis import given, settings
from hypothesis import strategies as st

from axiom_common.model.ids import NodeId
from axiom_common.state.resyncs import A_SECOND, BURST, EVERY_MS, FIRST_MS, Resyncs
from axiom_telemetry.membership import LEASE_TIMES
from axiom_telemetry.sharing import GRACE_MS, HANDOVER_MS, JOIN_MS, Sharing, owner

NODES = [NodeId(f"n{n}") for n in range(40)]
NAMES = ["a", "b", "c", "d"]
TICK_MS = 100.0
BOUND_MS = LEASE_TIMES.ttl_ms + LEASE_TIMES.renew_ms + GRACE_MS + JOIN_MS + 2 * TICK_MS
"""From a death to the take-over: the lease ends, its end is believed, who starts is settled."""


@dataclass
class Instance:
    """One process: what it holds of the others, and whether the registry reaches it."""

    name: str
    sharing: Sharing
    cut: bool = False
    renewed_ms: float = float("-inf")
    told: set[str] = field(default_factory=set)


class Region:
    """Instances on one registry, in steps of `TICK_MS`."""

    def __init__(self) -> None:
        self.now_ms = 0.0
        self.up = True
        self.leases: dict[str, float] = {}
        self.alive: dict[str, Instance] = {}
        self.quiet_ms = 0.0
        self.killed = False

    def start(self, name: str) -> None:
        if name not in self.alive:
            sharing = Sharing(name, started_ms=self.now_ms)
            self.alive[name] = Instance(name, sharing)
            if len(self.alive) == 1:
                self.quiet_ms = 0.0

    def kill(self, name: str) -> None:
        if self.alive.pop(name, None) is not None:
            self.quiet_ms = 0.0
            self.killed = True

    def cut(self, name: str) -> None:
        if name in self.alive:
            self.alive[name].cut = not self.alive[name].cut
            self.quiet_ms = 0.0

    def elect(self) -> None:
        """The registry elects a leader, and all leases end at once."""
        self.leases.clear()

    def tick(self) -> None:
        self.now_ms += TICK_MS
        if self.up:
            self.quiet_ms += TICK_MS
            self.leases = {n: end for n, end in self.leases.items() if end > self.now_ms}
        for one in self.alive.values():
            if self.up and not one.cut:
                self._reach(one)
            one.sharing.sweep(self.now_ms)

    def _reach(self, one: Instance) -> None:
        if one.name not in self.leases or self.now_ms - one.renewed_ms >= LEASE_TIMES.renew_ms:
            one.renewed_ms = self.now_ms
            self.leases[one.name] = self.now_ms + LEASE_TIMES.ttl_ms
        for name in one.told - self.leases.keys():
            one.sharing.vanished(name, self.now_ms)
        for name in self.leases:
            one.sharing.present(name)
        one.told = set(self.leases)
        one.sharing.informed()

    def unowned(self) -> list[NodeId]:
        return [n for n in NODES if not self.owners(n)]

    def owners(self, node: NodeId) -> list[str]:
        return [o.name for o in self.alive.values() if o.sharing.owns(node, self.now_ms)]


class Does(Enum):
    START = "start"
    KILL = "kill"
    CUT = "cut"
    OUTAGE = "outage"
    ELECT = "elect"


STEPS = st.lists(
    st.tuples(st.sampled_from(Does), st.sampled_from(NAMES), st.integers(0, 60)), max_size=12
)


def carry_out(region: Region, does: Does, name: str) -> None:
    if does is Does.START:
        region.start(name)
    elif does is Does.KILL:
        region.kill(name)
    elif does is Does.CUT:
        region.cut(name)
    elif does is Does.OUTAGE:
        region.up = not region.up
    else:
        region.elect()


@given(STEPS)
@settings(max_examples=60, deadline=None)
def test_every_node_has_an_owner_once_deaths_and_cuts_are_a_while_ago(
    steps: list[tuple[Does, str, int]],
) -> None:
    region = Region()
    for does, name, ticks in steps:
        carry_out(region, does, name)
        for _ in range(ticks):
            region.tick()
            if region.alive and region.quiet_ms >= BOUND_MS:
                assert region.unowned() == []


@given(STEPS, st.integers(1, 4))
@settings(max_examples=60, deadline=None)
def test_while_nobody_dies_no_node_is_without_an_owner_for_a_moment(
    steps: list[tuple[Does, str, int]], count: int
) -> None:
    region = Region()
    for name in NAMES[:count]:
        region.start(name)
    while region.now_ms < JOIN_MS:
        region.tick()
    for does, name, ticks in steps:
        if does is not Does.KILL:
            carry_out(region, does, name)
        for _ in range(ticks):
            region.tick()
            assert region.unowned() == []


@given(STEPS)
@settings(max_examples=40, deadline=None)
def test_in_the_end_each_node_has_just_one_owner(steps: list[tuple[Does, str, int]]) -> None:
    region = Region()
    for does, name, ticks in steps:
        carry_out(region, does, name)
        for _ in range(ticks):
            region.tick()
    region.up = True
    for one in region.alive.values():
        one.cut = False
    for _ in range(int((BOUND_MS + HANDOVER_MS) / TICK_MS) + 2):
        region.tick()
    for node in NODES if region.alive else []:
        assert region.owners(node) == [owner(tuple(sorted(region.alive)), node)]


def test_without_a_registry_an_instance_owns_all_nodes_after_a_moment() -> None:
    sharing = Sharing("a", started_ms=0.0)
    for now_ms, owned in ((JOIN_MS - 1.0, 0), (JOIN_MS, len(NODES))):
        sharing.sweep(now_ms)
        assert sum(sharing.owns(node, now_ms) for node in NODES) == owned


def test_a_registry_that_goes_away_changes_nothing() -> None:
    sharing = Sharing("a", started_ms=0.0)
    sharing.present("b")
    sharing.informed()
    sharing.sweep(0.0)
    mine = [node for node in NODES if sharing.owns(node, 0.0)]
    assert 0 < len(mine) < len(NODES)
    assert not any(sharing.sweep(now_ms) for now_ms in (1e3, 1e6))
    assert sharing.members == ("a", "b")
    assert mine == [node for node in NODES if sharing.owns(node, 1e6)]


@given(st.sets(st.text("abcdef", min_size=1, max_size=6), min_size=2, max_size=8))
def test_one_instance_less_moves_only_its_own_nodes(names: set[str]) -> None:
    members = tuple(sorted(names))
    for node in NODES:
        kept = members[1:]
        before, after = owner(members, node), owner(kept, node)
        assert after == before or before == members[0]


def test_each_instance_gets_its_share() -> None:
    members = ("a", "b", "c", "d")
    shares = Counter(owner(members, NodeId(f"node-{n}")) for n in range(4_000))
    assert all(800 < shares[name] < 1_200 for name in members)


WANTS = st.lists(st.tuples(st.integers(0, 300), st.integers(0, 99)), max_size=300)


@given(WANTS)
@settings(max_examples=60, deadline=None)
def test_requests_are_paced_and_nobody_is_left_out(wants: list[tuple[int, int]]) -> None:
    resyncs, now_ms, asked = Resyncs(), 0.0, list[tuple[float, NodeId]]()
    for wait_ms, number in wants:
        for _ in range(wait_ms // 20):
            now_ms += 20.0
            asked += [(now_ms, node) for node in resyncs.take(now_ms)]
        resyncs.want(NodeId(f"n{number}"), now_ms)
    for _ in range(200):
        now_ms += 20.0
        asked += [(now_ms, node) for node in resyncs.take(now_ms)]
    assert {node for _, node in asked} == {NodeId(f"n{number}") for _, number in wants}
    assert_paced(asked)


def test_a_thousand_nodes_are_asked_within_a_second_or_so_and_never_many_at_a_time() -> None:
    resyncs, nodes = Resyncs(), [NodeId(f"n{n}") for n in range(1_000)]
    for node in nodes:
        resyncs.want(node, 0.0)
    asked = [(t * 20.0, node) for t in range(1, 60) for node in resyncs.take(t * 20.0)]
    assert {node for at_ms, node in asked if at_ms <= EVERY_MS + FIRST_MS + 20.0} == set(nodes)
    assert_paced(asked)


def test_several_askers_share_one_answer() -> None:
    """Three listeners lose the bus and find it again within 200 ms of each other."""
    nodes = [NodeId(f"n{n}") for n in range(1_000)]
    askers = [Resyncs() for _ in range(3)]
    answers = Counter[NodeId]()
    waiting = list[tuple[float, NodeId]]()
    for tick in range(200):
        now_ms = tick * 20.0
        for number, asker in enumerate(askers):
            if tick == number * 5:
                for node in nodes:
                    asker.want(node, now_ms)
        # An agent gathers askers for 20 ms, and its answer reaches all.
        for node in {node for due_ms, node in waiting if due_ms <= now_ms}:
            answers[node] += 1
            for asker in askers:
                asker.came(node)
        waiting = [(due_ms, node) for due_ms, node in waiting if due_ms > now_ms]
        for asker in askers:
            waiting += [(now_ms + 20.0, node) for node in asker.take(now_ms)]
    assert set(answers) == set(nodes)
    assert answers.total() < 1.3 * len(nodes)


def assert_paced(asked: list[tuple[float, NodeId]]) -> None:
    times = [at_ms for at_ms, _ in asked]
    for start in times:
        window = sum(start <= at_ms < start + 100.0 for at_ms in times)
        assert window <= BURST + A_SECOND * 100.0 / 1e3
    last = dict[NodeId, float]()
    for at_ms, node in asked:
        assert at_ms - last.get(node, float("-inf")) >= EVERY_MS
        last[node] = at_ms
