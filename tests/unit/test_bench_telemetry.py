"""The parts of `axiom bench telemetry` that decide what its figures mean."""

from __future__ import annotations

from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from axiom_cli.bench.published_nodes import (
    ENGINES,
    GPUS,
    HBM_SLOTS,
    HOST_SLOTS,
    REGISTERED,
    PublishedNode,
    Truth,
)
from axiom_cli.bench.telemetry import percentile
from axiom_cli.bench.telemetry_region import ENGINE
from axiom_cli.bench.telemetry_truth import COUNTED, Loaded, differences, losses
from axiom_cli.bench.view_client import ViewClient
from axiom_common.errors import UnavailableError
from axiom_common.model.engine import NodeState
from axiom_common.model.ids import NodeId, RegionId
from axiom_common.state.region_view import Outcome, RegionView
from axiom_common.testing.clock import FakeClock
from axiom_common.wire import subjects
from axiom_common.wire.reports import decode_node_report

REGION, NODE = RegionId("r"), NodeId("n")


def fold(view: RegionView, payload: bytes) -> Outcome:
    report = decode_node_report(subjects.node_report(REGION, NODE), payload)
    return view.apply(report, 0.0).outcome


def residents(node: NodeState | None) -> Truth:
    assert node is not None
    return {e.engine: [[r.adapter, r.state.value] for r in e.residents] for e in node.engines}


@given(
    st.lists(st.sampled_from(["beat", "lost", "use", "load", "full"]), max_size=40), st.integers()
)
def test_whoever_folds_what_a_published_node_tells_knows_its_truth(
    steps: list[str], seed: int
) -> None:
    node = PublishedNode(REGION, NODE, Random(seed))
    view = RegionView(REGION)
    assert fold(view, node.full()) is Outcome.APPLIED
    for step in steps:
        if step == "lost":
            node.beat(gpus=True, use=True)
            continue
        if step == "load":
            adapter, payload = node.load()
        elif step == "full":
            payload = node.full()
        else:
            payload = node.beat(gpus=step == "use", use=step == "use")
        assert fold(view, payload) is Outcome.APPLIED
        if step == "load":
            assert adapter in str(residents(view.node(NODE)))
    # What a lost beat told of the order is in the next.
    fold(view, node.beat(gpus=False, use=False))
    assert residents(view.node(NODE)) == node.truth()


def test_a_published_node_is_of_the_size_of_a_real_one_and_nothing_stands_still() -> None:
    node = PublishedNode(REGION, NODE, Random(1))
    view = RegionView(REGION)
    fold(view, node.full())
    before = view.node(NODE)
    assert before is not None
    assert (len(before.engines), len(before.gpus)) == (ENGINES, GPUS)
    for engine in before.engines:
        assert len(engine.residents) == HBM_SLOTS + HOST_SLOTS
        assert len(engine.registered) == REGISTERED
    fold(view, node.beat(gpus=True, use=False))
    after = view.node(NODE)
    assert after is not None
    assert after.gpus != before.gpus
    assert all(a.figures != b.figures for a, b in zip(after.engines, before.engines, strict=True))


def test_views_that_differ_from_the_truth_are_found() -> None:
    truth: dict[str, Truth] = {"p": {"p.a": [["x", "host"], ["y", "resident"]]}}
    loaded = Loaded()
    names = [f"l{n}" for n in range(HBM_SLOTS + 2)]
    loaded.names["n"].extend(names)
    held = {f"n.{ENGINE}": [[name, "resident"] for name in names[2:]]}
    assert differences(truth, loaded, "w", truth | {"n": held}) == []
    other_order: dict[str, Truth] = {"p": {"p.a": [["y", "resident"], ["x", "host"]]}}
    assert differences(truth, loaded, "w", other_order | {"n": held}) == ["p in w"]
    assert differences(truth, loaded, "w", {"n": held}) == ["p in w"]
    late = {f"n.{ENGINE}": [[name, "resident"] for name in names[1:-1]]}
    assert len(differences(truth, loaded, "w", truth | {"n": late})) == 1
    assert len(differences(truth, loaded, "w", truth)) == 1


def test_lost_messages_are_found_in_metrics_and_metrics_without_them_are_no_good() -> None:
    lines = [f"axiom_gateway_{name}_total {n * 3.0}" for n, name in enumerate(COUNTED)]
    page = "# TYPE x counter\n" + "\n".join(lines)
    assert losses("gateway", page) == [f"gateway: 3 {COUNTED[1].replace('_', ' ')}"]
    with pytest.raises(UnavailableError):
        losses("gateway", lines[0])


@pytest.mark.parametrize(
    ("values", "share", "found"),
    [([], 0.5, None), ([3.0], 0.99, 3.0), (range(100), 0.5, 50), (range(100), 0.99, 99)],
)
def test_percentiles(values: list[float], share: float, found: float | None) -> None:
    assert percentile(values, share) == found


async def test_an_adapter_is_seen_once_it_is_in_a_slot() -> None:
    clock = FakeClock(5.0)
    client = ViewClient(clock)

    def view(state: str) -> bytes:
        return (
            b'{"node": "n", "seq": 1, "engines": [{"engine": "n.e", "residents": '
            b'[{"adapter": "a", "state": "%b", "age_ms": 1.0}]}]}' % state.encode()
        )

    client.take(view("loading"), 5.0)
    with pytest.raises(TimeoutError):
        await client.seen("n", "a", timeout_s=0.01)
    client.take(view("resident"), 7.0)
    client.take(view("resident"), 9.0)
    assert await client.seen("n", "a", timeout_s=0.01) == 7.0
