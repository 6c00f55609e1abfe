"""Whatever an engine says, what its agent tells of it can be read, and fits into a message."""

from __future__ import annotations

import json
from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st
from tests.agent_parts import ENGINE, declared, models, name, ready_book, spec

from axiom_common.drivers.sglang_metrics import read_sample
from axiom_common.drivers.vllm_metrics import read_metrics
from axiom_common.errors import EngineCallError
from axiom_common.model.adapter import AdapterState, is_managed
from axiom_common.model.engine import EngineState
from axiom_common.model.ids import EngineAdapter, RegionId, node_of
from axiom_common.model.reason import Reason
from axiom_common.ports.engine import EngineModels
from axiom_common.wire.bounds import check_node
from axiom_common.wire.schemas import NodeReport, ReportKind, decode, encode
from axiom_node_agent.report import OWN_NAMES_MAX, REDUCTIONS, engine_state, reduced
from axiom_node_agent.state import EngineBook

FIGURES = st.one_of(
    st.floats(allow_nan=True, allow_infinity=True),
    st.integers(-5, 5),
    st.sampled_from(["1e308", "-0", "NaN", "+Inf", "9" * 40, "", "x"]),
).map(str)
FAMILIES = (
    "num_requests_running",
    "num_requests_waiting",
    'num_requests_waiting_by_reason{reason="deferred"}',
    "kv_cache_usage_perc",
    "time_to_first_token_seconds_sum",
    "time_to_first_token_seconds_count",
    "inter_token_latency_seconds_sum",
    "inter_token_latency_seconds_count",
    "request_prefill_time_seconds_sum",
    "request_prefill_time_seconds_count",
    "prompt_tokens_total",
    "generation_tokens_total",
    "num_preemptions_total",
    'admission_rejections_total{reason="max_num_queued_reqs"}',
    "prefix_cache_queries_total",
    "prefix_cache_hits_total",
    'num_requests_running{engine="1"}',
    "max_gpu_lora_adapters",
    'lora_adapter_loaded{adapter_name="a~1",level="gpu"}',
    'cache_config_info{block_size="16",num_gpu_blocks="9"}',
)
SGLANG_FAMILIES = (
    'num_running_reqs{dp_rank="0"}',
    'num_running_reqs{dp_rank="1"}',
    'num_queue_reqs{dp_rank="0"}',
    'num_queue_reqs{dp_rank="1"}',
    "token_usage",
    "max_total_num_tokens",
    "lora_pool_slots_total",
    "num_retracted_requests_total",
    'prefill_effective_tokens_total{mode="input"}',
    'prefill_effective_tokens_total{mode="device_hit"}',
    'time_to_first_token_seconds_sum{is_streaming="true"}',
    'time_to_first_token_seconds_count{is_streaming="true"}',
    "inter_token_latency_seconds_sum",
    "inter_token_latency_seconds_count",
)
SGLANG_PAGES = st.fixed_dictionaries(dict.fromkeys(SGLANG_FAMILIES, FIGURES))
LOADS = st.none() | st.lists(
    st.dictionaries(
        st.sampled_from(
            [
                "dp_rank",
                "num_running_reqs",
                "num_waiting_reqs",
                "token_usage",
                "max_total_num_tokens",
            ]
        ),
        st.integers(-1, 1 << 70) | st.floats(allow_nan=False, allow_infinity=False) | st.none(),
    ),
    max_size=3,
)
PAGES = st.tuples(
    st.fixed_dictionaries(dict.fromkeys(FAMILIES, FIGURES)), FIGURES, FIGURES, st.text(max_size=5)
)


def page(parts: tuple[dict[str, str], str, str, str]) -> str:
    figures, max_lora, updated, running = parts
    lines = [f"vllm:{family} {figure}" for family, figure in figures.items()]
    labels = f'max_lora="{max_lora}",running_lora_adapters="{running}"'
    return "\n".join([*lines, f"vllm:lora_requests_info{{{labels}}} {updated}"])


def report_of(state: EngineState) -> NodeReport:
    return NodeReport(
        kind=ReportKind.FULL,
        region=RegionId("r"),
        node=node_of(ENGINE),
        incarnation=1,
        seq=1,
        engines=(state,),
    )


def sent(book: EngineBook, now_ms: float) -> NodeReport:
    """The report as others read it."""
    report = decode(encode(report_of(engine_state(book, now_ms))), NodeReport)
    check_node(report.node, report.engines, report.gpus or ())
    return report


@given(st.lists(PAGES, min_size=1, max_size=4))
def test_no_metrics_page_makes_a_report_unreadable(
    pages: list[tuple[dict[str, str], str, str, str]],
) -> None:
    book = ready_book("a")
    for number, parts in enumerate(pages, start=1):
        try:
            book.saw_sample(read_metrics(page(parts)), float(number))
        except EngineCallError:
            book.not_serving(float(number))
        sent(book, number + 0.5)


@given(st.lists(st.tuples(SGLANG_PAGES, LOADS), min_size=1, max_size=4))
def test_nothing_that_an_sglang_says_makes_a_report_unreadable(
    told: list[tuple[dict[str, str], list[dict[str, float | None]] | None]],
) -> None:
    book = ready_book("a")
    for number, (figures, loads) in enumerate(told, start=1):
        text = "\n".join(f"sglang:{family} {figure}" for family, figure in figures.items())
        body = None if loads is None else json.dumps({"loads": loads}).encode()
        try:
            book.saw_sample(read_sample(text, body), float(number))
        except EngineCallError:
            book.not_serving(float(number))
        sent(book, number + 0.5)


NAMES = st.one_of(
    st.text(max_size=20), st.builds("{}~{}".format, st.text("ab/", max_size=3), st.integers(0, 3))
).map(EngineAdapter)


@given(
    listed=st.lists(NAMES, max_size=12, unique=True),
    base=st.lists(st.text(max_size=10), max_size=2),
    slots=st.integers(0, 4),
)
def test_no_list_of_names_makes_a_report_unreadable(
    listed: list[EngineAdapter], base: list[str], slots: int
) -> None:
    book = EngineBook(replace(declared(hbm_slots=slots), base_model=""), lambda: None)
    told = EngineModels(base=tuple(base), adapters=dict.fromkeys(listed, "/somewhere"))
    book.saw_models(told, 1.0)
    assert sent(book, 2.0).engines[0].registered == tuple(listed)


HAPPENS = st.lists(
    st.tuples(
        st.sampled_from(["load", "start", "end", "fail", "withdraw", "grant", "unload", "count"]),
        st.sampled_from("abcdef"),
        st.floats(0.0, 1e4),
    ),
    max_size=30,
)


@given(HAPPENS, st.floats(0.0, 1e6))
def test_no_course_of_loads_and_uses_makes_a_report_unreadable(
    happened: list[tuple[str, str, float]], later_ms: float
) -> None:
    """In any order that a loader could produce, looked at whenever."""
    book = ready_book(*"abcd")
    now_ms = 0.0
    for event, text, passed_ms in happened:
        now_ms += passed_ms
        happen(book, event, text, now_ms)
        told = [r.adapter for r in sent(book, now_ms).engines[0].residents]
        assert len(told) == len(set(told))
    sent(book, now_ms + later_ms)


def happen(book: EngineBook, event: str, text: str, now_ms: float) -> None:
    adapter = name(text)
    load = book.loads.get(adapter)
    match event:
        case "load" if load is None:
            book.load_accepted(spec(text), now_ms)
        case "start" if load is not None and load.started_ms is None:
            book.load_started(adapter, now_ms)
        case "end" | "fail" if load is not None and load.started_ms is not None:
            book.load_ended(adapter, Reason.ENGINE_REFUSED if event == "fail" else None, now_ms)
        case "withdraw" if load is not None and load.started_ms is None:
            book.load_withdrawn(adapter, now_ms)
        case "grant":
            book.granted(spec(text), now_ms)
        case "unload" if adapter in book.registered:
            book.unload_started(adapter, now_ms)
            book.unload_ended(adapter, now_ms, done=int(now_ms) % 2 == 0)
        case "count":
            book.in_flight({} if adapter in book.counts else {adapter: 1}, now_ms)


@given(
    listed=st.lists(st.sampled_from("abcdefgh"), max_size=8, unique=True),
    own=st.integers(0, OWN_NAMES_MAX + 5),
    fails=st.booleans(),
)
def test_each_reduction_tells_less_and_the_last_one_nothing_that_could_be_large(
    listed: list[str], own: int, fails: bool
) -> None:
    book = ready_book(hbm_slots=2, host_slots=4)
    people = {EngineAdapter(f"own-{number}"): "" for number in range(own)}
    names = models(*listed)
    book.saw_models(replace(names, adapters={**names.adapters, **people}), 1.0)
    if fails:
        book.load_accepted(spec("z"), 1.0)
        book.load_started(name("z"), 1.0)
        book.load_ended(name("z"), Reason.ENGINE_REFUSED, 1.0)
    whole = engine_state(book, 2.0)
    states = [reduced(whole, reduction) for reduction in range(REDUCTIONS + 1)]
    assert states[0] == whole
    assert not any(is_managed(told) for told in states[1].registered)
    assert states[1].registered == tuple(people)[-OWN_NAMES_MAX:]
    assert states[1].residents == whole.residents
    assert {r.state for r in states[2].residents} <= {AdapterState.RESIDENT}
    assert states[-1].residents == states[-1].failures == ()
    sizes = [len(encode(report_of(state))) for state in states]
    assert sizes == sorted(sizes, reverse=True)
    for state in states:
        assert replace(state, registered=(), residents=(), failures=()) == replace(
            whole, registered=(), residents=(), failures=()
        )
