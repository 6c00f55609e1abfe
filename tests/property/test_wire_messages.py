"""Laws of the wire: what is sent is read back, and whatever else arrives is refused, not worse."""

from __future__ import annotations

import contextlib
from dataclasses import replace
from string import ascii_letters, digits
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from axiom_common.errors import InvalidInputError, WireError
from axiom_common.model.adapter import (
    REVISION_MAX,
    SIZE_BYTES_MAX,
    AdapterSpec,
    AdapterState,
    BaseModelSpec,
    Residency,
    ResidencySource,
)
from axiom_common.model.decision import Candidate, Decision, LoadKind, Term
from axiom_common.model.engine import (
    EngineFigures,
    EngineLimits,
    EngineRank,
    EngineState,
    EngineStatus,
    GpuState,
    LinkModel,
    LoadFailure,
    NodeState,
    PlanStatus,
    Role,
)
from axiom_common.model.ensure import EnsureOutcome, EnsureResult
from axiom_common.model.ids import (
    EngineAdapter,
    EngineId,
    GatewayId,
    NodeId,
    RegionId,
)
from axiom_common.model.outcome import Ending, Outcome, Usage
from axiom_common.model.plan import EnginePlan, Plan
from axiom_common.model.reason import Reason
from axiom_common.model.tenant import PRIORITY_BANDS, Tenant
from axiom_common.state.region_view import EngineBeat, NodeBeat
from axiom_common.wire import bounds, desired, keys, schemas

TOKENS = st.from_regex(r"[A-Za-z0-9_-]{1,12}", fullmatch=True)
NAME_PARTS = st.text("aZ09_:-", min_size=1, max_size=6) | st.just("a.b")
NAMES = st.lists(NAME_PARTS, min_size=1, max_size=3).map(lambda parts: "n" + "/".join(parts))
MS = st.floats(0, 1e9)
COUNT = st.integers(0, 1 << 62)
ORDERS = st.integers(0, bounds.ORDER_MAX)
NODE = NodeId("n1")
ENGINES = TOKENS.map(lambda name: EngineId(f"{NODE}.{name}"))
ADAPTER_NAMES = st.one_of(
    st.builds("{}~{}".format, NAMES, st.integers(1, REVISION_MAX)), NAMES, st.just("")
).map(EngineAdapter)
REASONS = st.none() | st.sampled_from(Reason)
SPECS = st.builds(
    AdapterSpec,
    name=NAMES,
    base_model=NAMES,
    revision=st.integers(1, REVISION_MAX),
    path=st.text(min_size=1, max_size=30),
    rank=st.integers(1, 1024),
    size_bytes=st.integers(0, SIZE_BYTES_MAX),
    tenant=NAMES,
)
ENGINE_STATES = st.builds(
    EngineState,
    engine=ENGINES,
    url=st.text(max_size=30),
    base_model=NAMES,
    served_name=NAMES,
    status=st.sampled_from(EngineStatus),
    role=st.sampled_from(Role),
    limits=st.builds(EngineLimits, max_num_seqs=COUNT, hbm_slots=COUNT),
    link=st.builds(LinkModel, h2d_fixed_ms=MS, h2d_gbps=st.floats(0.001, 1e6)),
    gpus=st.lists(COUNT, max_size=2).map(tuple),
    running=COUNT,
    kv_usage=st.none() | st.floats(0, 1),
    ttft_ms=st.none() | MS,
    residents=st.lists(
        st.builds(
            Residency,
            adapter=ADAPTER_NAMES,
            state=st.sampled_from(AdapterState),
            source=st.sampled_from(ResidencySource),
            in_flight=st.none() | COUNT,
            remaining_ms=MS,
            age_ms=MS,
        ),
        max_size=3,
        unique_by=lambda resident: resident.adapter,
    ).map(tuple),
    registered=st.lists(ADAPTER_NAMES, max_size=3).map(tuple),
    failures=st.lists(
        st.builds(
            LoadFailure, adapter=ADAPTER_NAMES, reason=st.sampled_from(Reason), retry_in_ms=MS
        ),
        max_size=2,
    ).map(tuple),
)
ENGINE_SETS = st.lists(ENGINE_STATES, max_size=3, unique_by=lambda e: e.engine).map(tuple)
GPUS = st.lists(st.builds(GpuState, index=COUNT, throttle=st.none() | COUNT), max_size=2).map(tuple)
PLAN_STATUSES = st.none() | st.builds(
    PlanStatus, revision=COUNT, fence=COUNT, accepted=st.booleans(), reason=REASONS
)
COUNTS = st.lists(
    st.builds(schemas.InFlightCount, engine=ENGINES, adapter=ADAPTER_NAMES, count=COUNT),
    max_size=3,
).map(tuple)
KINDS = st.sampled_from(schemas.ReportKind)
NODE_FIELDS: dict[str, Any] = {
    "region": TOKENS.map(RegionId),
    "node": st.just(NODE),
    "incarnation": ORDERS,
    "seq": ORDERS,
    "engines": ENGINE_SETS,
    "gpus": GPUS,
    "plan": PLAN_STATUSES,
}
PLANS = st.builds(
    Plan,
    region=TOKENS.map(RegionId),
    node=st.just(NODE),
    revision=COUNT,
    fence=COUNT,
    reason=st.text(max_size=20),
    engines=st.lists(
        st.builds(
            EnginePlan,
            engine=ENGINES,
            load=st.lists(SPECS, max_size=3).map(tuple),
            unload=st.lists(ADAPTER_NAMES, max_size=3).map(tuple),
        ),
        max_size=2,
    ).map(tuple),
)
TERMS = st.tuples(*[MS] * len(Term))
CANDIDATES = st.builds(
    Candidate,
    engine=ENGINES,
    tier=st.integers(1, 2),
    cost_ms=MS,
    composite=st.floats(0, 1),
    terms_ms=TERMS,
    values=st.tuples(*[st.floats(-1, 1)] * len(Term)),
)
DECISIONS = st.builds(
    Decision,
    profile=TOKENS,
    winner=st.none() | CANDIDATES,
    runners_up=st.lists(CANDIDATES, max_size=2).map(tuple),
    load=st.sampled_from(LoadKind),
    refusals=st.dictionaries(st.sampled_from(Reason), COUNT, max_size=3),
    booking=COUNT,
    stale=st.booleans(),
)
OUTCOMES = st.builds(
    Outcome,
    ending=st.sampled_from(Ending),
    status=st.none() | st.integers(200, 599),
    reason=REASONS,
    engine=st.none() | ENGINES,
    retries=COUNT,
    held_ms=MS,
    load_ms=st.none() | MS,
    total_ms=MS,
    ttft_ms=st.none() | MS,
    tpot_ms=st.none() | MS,
    usage=st.builds(Usage, st.none() | COUNT, st.none() | COUNT, st.none() | COUNT),
    matched_tokens=st.none() | COUNT,
)
MESSAGES: st.SearchStrategy[schemas.Message] = st.one_of(
    st.builds(schemas.NodeReport, kind=KINDS, base=st.none() | ORDERS, **NODE_FIELDS),
    st.builds(schemas.ResyncRequest, asker=st.text(max_size=20)),
    st.builds(
        schemas.EnsureRequest,
        engine=ENGINES,
        adapter=SPECS,
        deadline_ms=MS,
        gateway=TOKENS.map(GatewayId),
        in_flight=COUNTS,
    ),
    st.builds(
        schemas.EnsureReply,
        result=st.builds(EnsureResult, outcome=st.sampled_from(EnsureOutcome), reason=REASONS),
    ),
    st.builds(
        schemas.InFlightReport,
        kind=KINDS,
        region=TOKENS.map(RegionId),
        gateway=TOKENS.map(GatewayId),
        incarnation=ORDERS,
        seq=ORDERS,
        counts=COUNTS,
    ),
    st.builds(
        schemas.DecisionReport,
        region=TOKENS.map(RegionId),
        gateway=TOKENS.map(GatewayId),
        id=st.text(max_size=20),
        age_ms=MS,
        share=st.floats(0, 1, exclude_min=True),
        base_model=NAMES,
        adapter=ADAPTER_NAMES,
        rank=COUNT,
        size_bytes=COUNT,
        prompt_tokens=COUNT,
        weights=TERMS,
        attempts=st.lists(
            st.builds(schemas.DecidedAttempt, attempt=COUNT, after_ms=MS, decision=DECISIONS),
            max_size=2,
        ).map(tuple),
        outcome=OUTCOMES,
    ),
    st.builds(schemas.NodeRecord, state=st.builds(NodeState, **NODE_FIELDS)),
    st.builds(schemas.PlanRecord, plan=PLANS),
    st.builds(schemas.Lease, holder=st.text(max_size=20), fence=COUNT),
)
KIND_LIST = (
    schemas.NodeReport,
    schemas.ResyncRequest,
    schemas.EnsureRequest,
    schemas.EnsureReply,
    schemas.InFlightReport,
    schemas.DecisionReport,
    schemas.NodeRecord,
    schemas.PlanRecord,
    schemas.Lease,
)
DECLARED: st.SearchStrategy[desired.Declared] = st.one_of(
    SPECS,
    st.builds(BaseModelSpec, name=NAMES),
    st.builds(
        Tenant,
        name=NAMES,
        salt=st.text(max_size=20),
        weight=st.floats(0, 1000, exclude_min=True),
        priority_band=st.integers(0, PRIORITY_BANDS - 1),
        regions=st.lists(TOKENS.map(RegionId), max_size=2).map(tuple),
    ),
)
EDITS = st.lists(
    st.tuples(st.sampled_from(["flip", "cut", "insert", "drop"]), COUNT, st.binary(max_size=4)),
    min_size=1,
    max_size=4,
)


def edited(payload: bytes, edits: list[tuple[str, int, bytes]]) -> bytes:
    """A message after faults on its way, or by a hostile hand."""
    out = bytearray(payload)
    for edit, where, extra in edits:
        at = where % (len(out) + 1)
        if edit == "flip" and at < len(out):
            out[at] ^= 1 << (where % 8)
        elif edit == "cut":
            del out[at:]
        elif edit == "insert":
            out[at:at] = extra
        elif edit == "drop":
            del out[at : at + 1]
    return bytes(out)


@given(MESSAGES, st.integers(0, 100).filter(lambda v: v != schemas.VERSION))
def test_a_message_reads_as_it_was_written_and_as_nothing_else(
    message: schemas.Message, version: int
) -> None:
    payload = schemas.encode(message)
    for kind in KIND_LIST:
        if kind is type(message):
            assert schemas.decode(payload, kind) == message
        else:
            with pytest.raises(WireError):
                schemas.decode(payload, kind)
    with pytest.raises(WireError):
        schemas.decode(schemas.encode(msgspec.structs.replace(message, v=version)), type(message))


@given(st.binary(max_size=200), st.sampled_from(KIND_LIST))
def test_noise_is_refused(payload: bytes, kind: type[Any]) -> None:
    with pytest.raises(WireError):
        schemas.decode(payload, kind)


@given(MESSAGES, EDITS)
def test_a_damaged_message_is_refused_or_still_one_of_its_kind(
    message: schemas.Message, edits: list[tuple[str, int, bytes]]
) -> None:
    with contextlib.suppress(WireError):
        read = schemas.decode(edited(schemas.encode(message), edits), type(message))
        assert schemas.decode(schemas.encode(read), type(message)) == read


@given(MESSAGES, st.text(max_size=8), st.integers() | st.text(max_size=5) | st.none())
def test_an_added_field_is_tolerated(message: schemas.Message, name: str, value: Any) -> None:
    fields = msgspec.msgpack.decode(schemas.encode(message))
    if name in fields or (isinstance(value, int) and not -(1 << 63) <= value < 1 << 63):
        return
    payload = msgspec.msgpack.encode({**fields, name: value})
    assert schemas.decode(payload, type(message)) == message


@pytest.mark.parametrize(
    "payload",
    [
        b"",
        b"\x91" * 100_000,
        b"\x82\xa4type\xa6resync\xa1x" + b"\x91" * 100_000,
        b"\xdd\xff\xff\xff\xff",
        b"\xdf\xff\xff\xff\xff",
        b"\x00" * (schemas.MESSAGE_BYTES_MAX + 1),
    ],
    ids=["empty", "deep", "deep in an added field", "huge array", "huge map", "too long"],
)
def test_what_would_exhaust_a_reader_is_refused(payload: bytes) -> None:
    with pytest.raises(WireError):
        schemas.decode(payload, schemas.ResyncRequest)


PLANNED = AdapterSpec(name="a", base_model="b", revision=1, path="/p", rank=8)
ENGINE = EngineState(
    engine=EngineId("n1.a"),
    url="http://h",
    base_model="b",
    served_name="b",
    status=EngineStatus.READY,
)
RESIDENT = Residency(
    adapter=EngineAdapter("a~1"), state=AdapterState.HOST, source=ResidencySource.INFERRED
)


def residents(count: int) -> tuple[Residency, ...]:
    return tuple(replace(RESIDENT, adapter=EngineAdapter(f"a~{n}")) for n in range(1, count + 1))


def node_record(*engines: EngineState) -> schemas.Message:
    state = NodeState(region=RegionId("r"), node=NODE, incarnation=1, seq=1, engines=engines)
    return schemas.NodeRecord(state=state)


def node_report(incarnation: int, seq: int) -> schemas.Message:
    return schemas.NodeReport(
        kind=schemas.ReportKind.FULL,
        region=RegionId("r"),
        node=NODE,
        incarnation=incarnation,
        seq=seq,
        engines=(),
    )


def plan_record(*engines: EnginePlan) -> schemas.Message:
    plan = Plan(region=RegionId("r"), node=NODE, revision=1, fence=1, reason="", engines=engines)
    return schemas.PlanRecord(plan=plan)


def in_flight(count: int) -> schemas.Message:
    return schemas.InFlightReport(
        kind=schemas.ReportKind.FULL,
        region=RegionId("r"),
        gateway=GatewayId("g"),
        incarnation=1,
        seq=1,
        counts=(schemas.InFlightCount(engine=ENGINE.engine, adapter=EngineAdapter(""), count=0),)
        * count,
    )


def decided(
    *, attempts: int = 1, runners_up: int = 1, ms: float = 1.0, terms: int = len(Term), share: float
) -> schemas.Message:
    one = Candidate(ENGINE.engine, 1, 1.0, 0.5, (ms,) * terms, (0.5,) * len(Term))
    decision = Decision(profile="axiom", winner=one, runners_up=(one,) * runners_up)
    attempt = schemas.DecidedAttempt(attempt=1, after_ms=0.0, decision=decision)
    return schemas.DecisionReport(
        region=RegionId("r"),
        gateway=GatewayId("g"),
        id="d",
        age_ms=1.0,
        share=share,
        base_model="b",
        adapter=EngineAdapter(""),
        rank=0,
        size_bytes=0,
        prompt_tokens=0,
        weights=(1.0,) * len(Term),
        attempts=(attempt,) * attempts,
        outcome=Outcome(Ending.SERVED, 200, None, None, 0, 0.0, None, ms, None, None),
    )


def ensure(deadline_ms: float) -> schemas.Message:
    return schemas.EnsureRequest(
        engine=ENGINE.engine, adapter=PLANNED, deadline_ms=deadline_ms, gateway=GatewayId("g")
    )


def engines(count: int) -> list[EngineState]:
    return [replace(ENGINE, engine=EngineId(f"n1.e{i}")) for i in range(count)]


@pytest.mark.parametrize(
    ("fits", "beyond"),
    [
        (node_record(*engines(bounds.ENGINES_MAX)), node_record(*engines(bounds.ENGINES_MAX + 1))),
        (
            node_record(replace(ENGINE, residents=residents(bounds.RESIDENTS_MAX))),
            node_record(replace(ENGINE, residents=residents(bounds.RESIDENTS_MAX + 1))),
        ),
        (
            plan_record(EnginePlan(engine=ENGINE.engine, load=(PLANNED,) * bounds.PLANNED_MAX)),
            plan_record(
                EnginePlan(engine=ENGINE.engine, load=(PLANNED,) * (bounds.PLANNED_MAX + 1))
            ),
        ),
        (
            plan_record(*[EnginePlan(engine=ENGINE.engine)] * bounds.ENGINES_MAX),
            plan_record(*[EnginePlan(engine=ENGINE.engine)] * (bounds.ENGINES_MAX + 1)),
        ),
        (in_flight(1), in_flight(schemas.COUNTS_MAX + 1)),
        (node_record(ENGINE), node_record(ENGINE, ENGINE)),
        (
            node_record(replace(ENGINE, residents=(RESIDENT,))),
            node_record(replace(ENGINE, residents=(RESIDENT, RESIDENT))),
        ),
        (node_report(bounds.ORDER_MAX, 0), node_report(bounds.ORDER_MAX + 1, 0)),
        (node_report(0, bounds.ORDER_MAX), node_report(0, bounds.ORDER_MAX + 1)),
        (node_record(ENGINE), node_record(replace(ENGINE, engine=EngineId("other.a")))),
        (node_record(ENGINE), node_record(replace(ENGINE, kv_usage=float("nan")))),
        (node_record(ENGINE), node_record(replace(ENGINE, running=-1))),
        (decided(share=1.0), decided(share=0.0)),
        (decided(share=0.5), decided(share=float("nan"))),
        (decided(share=0.5), decided(share=0.5, ms=float("nan"))),
        (decided(share=0.5), decided(share=0.5, ms=float("inf"))),
        (decided(share=0.5), decided(share=0.5, terms=len(Term) - 1)),
        (
            decided(share=0.5, attempts=bounds.ATTEMPTS_MAX),
            decided(share=0.5, attempts=bounds.ATTEMPTS_MAX + 1),
        ),
        (
            decided(share=0.5, runners_up=bounds.SHOWN_MAX),
            decided(share=0.5, runners_up=bounds.SHOWN_MAX + 1),
        ),
        (ensure(0.0), ensure(-1.0)),
        (ensure(1e9), ensure(float("nan"))),
        (ensure(1e9), ensure(float("inf"))),
    ],
)
def test_the_bounds_of_a_message_are_kept(fits: schemas.Message, beyond: schemas.Message) -> None:
    assert schemas.decode(schemas.encode(fits), type(fits)) == fits
    with pytest.raises(WireError):
        schemas.decode(schemas.encode(beyond), type(beyond))


FIGURES = st.builds(
    EngineFigures,
    sample=COUNT,
    sample_age_ms=MS,
    running=COUNT,
    waiting=COUNT,
    deferred=COUNT,
    kv_usage=st.none() | st.floats(0, 1),
    ttft_ms=st.none() | MS,
    tpot_ms=st.none() | MS,
    prefill_ms_per_token=st.none() | MS,
    load_queue_ms=MS,
    preemptions_per_s=st.none() | MS,
    rejections_per_s=st.none() | MS,
    prefix_hit_share=st.none() | st.floats(0, 1),
)
RANKS = st.builds(EngineRank, rank=COUNT, running=COUNT, waiting=COUNT, kv_usage=st.just(0.5))
BEATS = st.builds(
    NodeBeat,
    region=TOKENS.map(RegionId),
    node=st.just(NODE),
    incarnation=ORDERS,
    seq=ORDERS,
    base=ORDERS,
    engines=st.lists(
        st.builds(
            EngineBeat,
            engine=ENGINES,
            figures=FIGURES,
            order=st.none() | st.lists(st.integers(-9, 1 << 40), max_size=4).map(tuple),
            ranks=st.lists(RANKS, max_size=2).map(tuple),
        ),
        max_size=3,
    ).map(tuple),
    gpus=st.none() | GPUS,
)


@given(BEATS)
def test_a_beat_reads_as_it_was_written_and_as_no_other_message(beat: NodeBeat) -> None:
    payload = schemas.encode(beat)
    assert schemas.is_beat(payload)
    assert schemas.decode_beat(payload) == beat
    for kind in KIND_LIST:
        with pytest.raises(WireError):
            schemas.decode(payload, kind)


@given(MESSAGES)
def test_no_other_message_passes_for_a_beat(message: schemas.Message) -> None:
    payload = schemas.encode(message)
    assert not schemas.is_beat(payload)
    with pytest.raises(WireError):
        schemas.decode_beat(payload)


@given(BEATS, EDITS)
def test_a_damaged_beat_is_refused_or_still_one(
    beat: NodeBeat, edits: list[tuple[str, int, bytes]]
) -> None:
    with contextlib.suppress(WireError):
        read = schemas.decode_beat(edited(schemas.encode(beat), edits))
        assert schemas.decode_beat(schemas.encode(read)) == read


@given(st.binary(max_size=200))
def test_noise_is_no_beat(payload: bytes) -> None:
    with pytest.raises(WireError):
        schemas.decode_beat(payload)


ENGINE_BEAT = EngineBeat(ENGINE.engine, EngineFigures())
BEAT = NodeBeat(RegionId("r"), NODE, 1, 2, 1, (ENGINE_BEAT,))


@pytest.mark.parametrize(
    "beyond",
    [
        BEAT._replace(incarnation=bounds.ORDER_MAX + 1),
        BEAT._replace(seq=-1),
        BEAT._replace(base=bounds.ORDER_MAX + 1),
        BEAT._replace(engines=(ENGINE_BEAT,) * (bounds.ENGINES_MAX + 1)),
        BEAT._replace(engines=(ENGINE_BEAT._replace(engine=EngineId("other.a")),)),
        BEAT._replace(engines=(ENGINE_BEAT._replace(figures=EngineFigures(running=-1)),)),
        BEAT._replace(
            engines=(ENGINE_BEAT._replace(figures=EngineFigures(kv_usage=float("nan"))),)
        ),
        BEAT._replace(
            engines=(ENGINE_BEAT._replace(order=tuple(range(bounds.RESIDENTS_MAX + 1))),)
        ),
        BEAT._replace(engines=(ENGINE_BEAT._replace(ranks=(EngineRank(0, running=-1),)),)),
        BEAT._replace(
            engines=(ENGINE_BEAT._replace(ranks=(EngineRank(0),) * (bounds.RANKS_MAX + 1)),)
        ),
        BEAT._replace(gpus=(GpuState(index=0, power_w=float("inf")),)),
        BEAT._replace(gpus=(GpuState(index=0),) * (bounds.GPUS_MAX + 1)),
    ],
)
def test_the_bounds_of_a_beat_are_kept(beyond: NodeBeat) -> None:
    assert schemas.decode_beat(schemas.encode(BEAT)) == BEAT
    with pytest.raises(WireError):
        schemas.decode_beat(schemas.encode(beyond))


@given(DECLARED)
def test_a_declared_value_reads_as_it_was_written(declared: desired.Declared) -> None:
    assert desired.decode(desired.key_of(declared), desired.encode(declared)) == declared


@given(DECLARED, DECLARED)
def test_a_record_under_the_key_of_another_is_refused(
    one: desired.Declared, two: desired.Declared
) -> None:
    if desired.key_of(one) != desired.key_of(two):
        with pytest.raises(WireError):
            desired.decode(desired.key_of(one), desired.encode(two))


@given(DECLARED, EDITS)
def test_a_damaged_record_is_refused_or_still_valid(
    declared: desired.Declared, edits: list[tuple[str, int, bytes]]
) -> None:
    key = desired.key_of(declared)
    with contextlib.suppress(WireError):
        read = desired.decode(key, edited(desired.encode(declared), edits))
        assert read is not None
        assert desired.key_of(read) == key


@given(st.binary(max_size=200))
def test_noise_is_no_record(payload: bytes) -> None:
    with pytest.raises(WireError):
        desired.decode(desired.key_for(AdapterSpec, "a"), payload)
    with pytest.raises(WireError):
        desired.decode_floor(payload)


@pytest.mark.parametrize(
    "payload",
    [
        b'{"type":"adapter","v":1,"x":' + b"[" * 60_000,
        b'{"type":"adapter","v":2,"adapter":{}}',
        b'{"type":"revision-floor","v":1,"revision":3}',
        b'{"type":"adapter","v":1,"adapter":{"name":"a","base_model":"b","revision":"1",'
        b'"path":"p","rank":8}}',
        b'{"type":"adapter","v":1,"adapter":{"name":"a","base_model":"b","revision":1,'
        b'"path":"p","rank":0}}',
        b" " * (desired.RECORD_BYTES_MAX + 1),
    ],
    ids=["deep", "version", "kind", "type", "invariant", "too long"],
)
def test_a_record_that_breaks_a_rule_is_refused(payload: bytes) -> None:
    with pytest.raises(WireError):
        desired.decode(desired.key_for(AdapterSpec, "a"), payload)


@given(st.text(max_size=40).filter(lambda name: name.isascii() or name.isprintable()))
def test_a_name_is_one_token_of_a_key(name: str) -> None:
    assert set(keys.escape(name)) <= set(ascii_letters + digits + "-_")


@given(NAMES, NAMES)
def test_two_names_have_two_keys(one: str, two: str) -> None:
    assert (desired.key_for(AdapterSpec, one) == desired.key_for(AdapterSpec, two)) == (one == two)


@pytest.mark.parametrize(
    "change",
    [
        {"name": ""},
        {"weight": 0.0},
        {"weight": float("nan")},
        {"weight": 1001.0},
        {"priority_band": -1},
        {"priority_band": PRIORITY_BANDS},
        {"salt": "x" * 257},
        {"regions": ("a.b",)},
    ],
)
def test_a_tenant_keeps_its_invariants(change: dict[str, Any]) -> None:
    with pytest.raises(InvalidInputError):
        Tenant(**({"name": "acme"} | change))
