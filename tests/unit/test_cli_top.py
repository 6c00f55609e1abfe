"""What `axiom top` and `axiom telemetry tail` say of views: pure functions, value by value."""

from __future__ import annotations

import pytest

from axiom_cli.event_stream import EVENT_BYTES_MAX, EventStream
from axiom_cli.node_text import age, changes
from axiom_cli.top_view import Seen, lines, wanted
from axiom_common.wire.rest import RegionStatus
from axiom_common.wire.views import (
    EngineView,
    FailureView,
    GpuView,
    HostView,
    NodeView,
    PlanView,
    ResidentView,
    ThrottleView,
)

REGION = RegionStatus(nodes=1, engines=1, adapters=3, degraded=(), view_age_ms=12.0)
WIDTH = 80


def resident(adapter: str, state: str = "resident", **known: object) -> ResidentView:
    facts = {"source": "extension", "in_flight": 0, "remaining_ms": 0.0, "age_ms": 100.0} | known
    return ResidentView(adapter=adapter, state=state, **facts)  # type: ignore[arg-type]


ENGINE = EngineView(
    sample=7,
    sample_age_ms=40.0,
    running=3,
    waiting=0,
    deferred=0,
    kv_usage=0.5,
    ttft_ms=120.4,
    tpot_ms=None,
    prefill_ms_per_token=None,
    load_queue_ms=0.0,
    preemptions_per_s=None,
    rejections_per_s=None,
    prefix_hit_share=None,
    region="eu",
    node="n1",
    engine="n1.a",
    url="http://h:1",
    kind="vllm",
    base_model="llama",
    served_name="llama",
    status="ready",
    role="both",
    max_num_seqs=64,
    hbm_slots=4,
    host_slots=8,
    max_lora_rank=16,
    kv_tokens=None,
    gpus=(0,),
    ranks=(),
    residents=(resident("old~1", "host"), resident("sql~2", in_flight=2)),
    registered=("old~1", "sql~2", "spare~1"),
    failures=(),
    order=None,
    note=None,
    in_flight=5,
    idle=False,
    staleness_ms=200.0,
)
GPU = GpuView.model_validate(
    dict.fromkeys(GpuView.model_fields) | {"index": 0, "mig": (), "lost": False}
)
NODE = NodeView(
    region="eu",
    node="n1",
    incarnation=4,
    seq=9,
    staleness_ms=200.0,
    liveness="alive",
    engines=(ENGINE,),
    gpus=(GPU,),
    host=None,
    plan=PlanView(revision=3, fence=7, accepted=True),
)


def engine(**facts: object) -> NodeView:
    return NODE.model_copy(update={"engines": (ENGINE.model_copy(update=facts),)})


def gpu(**facts: object) -> NodeView:
    return NODE.model_copy(update={"gpus": (GPU.model_copy(update=facts),)})


def shown(*nodes: NodeView, width: int = WIDTH, trouble: str = "") -> str:
    told = lines({"eu": REGION}, [Seen(n, 50.0) for n in nodes], width=width, trouble=trouble)
    return "\n".join(line.plain for line in told)


def test_a_node_is_shown_with_the_age_and_the_source_of_what_is_known() -> None:
    assert shown(NODE).splitlines() == [
        "eu: 1 nodes, 1 engines, 3 adapters, view 12 ms old",
        "  engine         status       flight  run wait    KV     TTFT     TPOT   sample",
        "n1 alive, heard 250 ms ago, plan 3",
        "  GPU 0 ? °C ?, ?/? W, ?/? GiB, throttle ?",
        "  a              ready             5    3    0  50 %   120 ms        ?   290 ms",
        "    HBM 1/4 (extension 350 ms): sql~2 ×2",
        "    host 1/8 (extension 350 ms): old~1",
    ]


@pytest.mark.parametrize(
    ("node", "said"),
    [
        (engine(residents=(resident("x~1", in_flight=None),)), "x~1 ×?"),
        (
            engine(residents=(resident("x~1", "loading", remaining_ms=420.0),)),
            "loading 1 (extension 350 ms): x~1 loading, 420 ms left",
        ),
        (engine(residents=()), "HBM 0/4: none"),
        (
            engine(failures=(FailureView(adapter="b~1", reason="not-found", retry_in_ms=5e3),)),
            "b~1 failed: not-found, again in 5.0 s",
        ),
        (gpu(lost=True), "GPU 0 lost"),
        (NODE.model_copy(update={"gpus": ()}), "GPU ? °C: NVML tells of none"),
        (engine(order="cordon", in_flight=0, idle=None), "a              cordon            0"),
        (engine(order="drain", in_flight=0, idle=True), "a              drain, idle       0"),
        (engine(order="drain", status="starting"), "a              starting"),
        (gpu(temperature_c=65.0, throttles=()), "GPU 0 65 °C ?, ?/? W, ?/? GiB\n"),
        (
            gpu(throttles=(ThrottleView(reason="sw-thermal", ms=3e3),)),
            "throttled: sw-thermal 3.0 s",
        ),
        (gpu(xid=79, xid_age_ms=6e4), "XID 79 60.0 s ago"),
        (NODE.model_copy(update={"staleness_ms": None}), "n1 alive, from the cache"),
        (
            NODE.model_copy(
                update={
                    "host": HostView.model_validate(
                        dict.fromkeys(HostView.model_fields) | {"memory_total_bytes": 1 << 40}
                    )
                }
            ),
            "RAM ?/1024 GiB free",
        ),
    ],
)
def test_what_is_unknown_or_wrong_is_said(node: NodeView, said: str) -> None:
    assert said in shown(node)


def test_no_line_is_wider_than_the_terminal_and_no_adapter_is_lost() -> None:
    names = [f"team-{n:02}/a-rather-long-adapter-name~{n}" for n in range(40)]
    node = engine(residents=tuple(resident(name, in_flight=1) for name in names), hbm_slots=40)
    for width in (60, 80, 200):
        text = shown(node, width=width)
        assert max(map(len, text.splitlines())) <= width
        assert all(name in text for name in names)


def test_more_nodes_than_fit_are_counted() -> None:
    seen = [Seen(NODE.model_copy(update={"node": f"n{n}"})) for n in range(1000)]
    text = [line.plain for line in lines({"eu": REGION}, seen, width=WIDTH, height=24)]
    assert len(text) <= 24
    shown_nodes = sum(line.startswith("n") for line in text)
    assert text[-1] == f"and {1000 - shown_nodes} more: --node and --model choose"
    assert len(lines({"eu": REGION}, seen[:1], width=WIDTH, height=2)) > 2


def test_an_empty_region_and_an_absent_gateway_are_said() -> None:
    assert shown().endswith("no node is known")
    assert "nothing is known yet" in "\n".join(x.plain for x in lines({}, [], width=WIDTH))
    assert shown(NODE, trouble="no gateway").startswith("no gateway\neu:")


def test_only_what_needs_a_look_has_a_colour() -> None:
    def coloured(node: NodeView) -> set[str]:
        return {
            span.style
            for line in lines({"eu": REGION}, [Seen(node)], width=WIDTH)
            for span in line.spans
        } - {"", "bold"}  # type: ignore[return-value]

    assert coloured(NODE) == set()
    assert coloured(engine(status="starting")) == {"yellow"}
    assert coloured(engine(status="unreachable")) == {"red"}
    assert coloured(NODE.model_copy(update={"liveness": "dead"})) == {"red"}
    assert coloured(gpu(throttles=(ThrottleView(reason="power-cap", ms=1.0),))) == set()


def test_nodes_are_sorted_and_chosen_by_what_they_serve() -> None:
    other = NODE.model_copy(update={"node": "n0", "engines": (), "region": "eu"})
    assert [n.node for n in wanted([NODE, other], None)] == ["n0", "n1"]
    for model in ("llama", "sql", "sql~2", "spare"):
        assert [n.node for n in wanted([NODE, other], model)] == ["n1"]
    assert wanted([NODE, other], "sq") == []


@pytest.mark.parametrize(
    ("after", "told"),
    [
        (NODE.model_copy(update={"seq": 10, "staleness_ms": 1.0}), []),
        (engine(sample=8, sample_age_ms=1.0), []),
        (NODE.model_copy(update={"liveness": "dead"}), ["liveness alive -> dead"]),
        (engine(status="draining"), ["a: status ready -> draining"]),
        (engine(waiting=2, deferred=1), ["a: running 3, waiting 2 (1 deferred)"]),
        (engine(kv_usage=0.52), []),
        (engine(kv_usage=0.6), ["a: KV 50 % -> 60 %"]),
        (engine(kv_usage=None), ["a: KV 50 % -> ?"]),
        (
            engine(residents=(*ENGINE.residents, resident("new~1", "loading", remaining_ms=80.0))),
            ["a: + new~1 loading (extension, 80 ms left)"],
        ),
        (engine(residents=ENGINE.residents[1:]), ["a: - old~1 (was host)"]),
        (
            engine(residents=(ENGINE.residents[0], resident("sql~2", "host"))),
            ["a: resident -> sql~2 host (extension)"],
        ),
        (
            engine(residents=(ENGINE.residents[0], resident("sql~2", in_flight=5))),
            ["a: sql~2 in flight 5"],
        ),
        (engine(residents=ENGINE.residents[::-1]), ["a: order sql~2 < old~1"]),
        (engine(registered=("old~1", "sql~2")), ["a: spare~1 no longer registered"]),
        (NODE.model_copy(update={"engines": ()}), ["a: gone"]),
        (NODE.model_copy(update={"gpus": ()}), ["GPU 0: gone"]),
        (gpu(lost=True), ["GPU 0: lost"]),
        (
            gpu(throttles=(ThrottleView(reason="hw-thermal", ms=0.0),)),
            ["GPU 0: throttled by hw-thermal"],
        ),
        (
            NODE.model_copy(
                update={"plan": PlanView(revision=4, fence=7, accepted=False, reason="lower-fence")}
            ),
            ["plan 4 of term 7 refused (lower-fence)"],
        ),
    ],
)
def test_what_changed_is_said_and_nothing_else(after: NodeView, told: list[str]) -> None:
    assert changes(NODE, after) == told


def test_the_first_view_is_said_whole() -> None:
    assert changes(None, NODE) == [
        "alive, incarnation 4, engines: a",
        "a: ready, llama, 4 slots",
        "a: old~1 host (extension)",
        "a: sql~2 ×2 resident (extension)",
    ]


@pytest.mark.parametrize(
    ("ms", "told"),
    [(None, "?"), (0.4, "0 ms"), (999.0, "999 ms"), (1_500.0, "1.5 s"), (300e3, "5 min")],
)
def test_ages(ms: float | None, told: str) -> None:
    assert age(ms) == told


def test_events_are_the_same_however_their_bytes_are_cut() -> None:
    stream = b": still here\n\nevent: node\ndata: {}\n\nevent: gone\ndata: 1\ndata: 2\n\nevent: n"
    for size in range(1, len(stream) + 1):
        events = EventStream()
        chunks = [stream[at : at + size] for at in range(0, len(stream), size)]
        found = [event for chunk in chunks for event in events.feed(chunk)]
        assert found == [("node", b"{}"), ("gone", b"1\n2")]


def test_an_event_without_end_is_not_kept() -> None:
    events = EventStream()
    assert list(events.feed(b"x" * EVENT_BYTES_MAX)) == []
    with pytest.raises(ValueError, match="above"):
        list(events.feed(b"x"))
