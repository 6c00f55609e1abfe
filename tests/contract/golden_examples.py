"""One fixed example of everything that goes over a wire, and where its golden vector lies.

`python -m tests.contract.golden_examples`, from the root of the repository, writes all vectors anew
after a change of the wire that is meant; the diff of `tests/golden` then shows what changes for
those who still speak the old one.
"""

from __future__ import annotations

import inspect
import json
from collections.abc import Iterator
from dataclasses import is_dataclass
from enum import StrEnum
from pathlib import Path
from types import ModuleType
from typing import Any, get_args

import msgspec
from tests.watched_nodes import watches_of

from axiom_common.drivers.system_clock import SystemClock
from axiom_common.model import adapter, decision, engine, ensure, outcome, reason
from axiom_common.model.adapter import (
    AdapterSpec,
    AdapterState,
    BaseModelSpec,
    Residency,
    ResidencySource,
)
from axiom_common.model.decision import Candidate, Decision, LoadKind, Refused
from axiom_common.model.engine import (
    EngineLimits,
    EngineRank,
    EngineState,
    EngineStatus,
    GpuState,
    HostState,
    LinkModel,
    LoadFailure,
    MigSlice,
    NodeState,
    PlanStatus,
    Role,
)
from axiom_common.model.ensure import EnsureOutcome, EnsureResult
from axiom_common.model.ids import EngineAdapter, EngineId, GatewayId, NodeId, RegionId
from axiom_common.model.outcome import Ending, Outcome, Usage
from axiom_common.model.plan import EnginePlan, Plan
from axiom_common.model.reason import Reason
from axiom_common.model.tenant import Tenant
from axiom_common.policy.profile import AXIOM, BUILT_IN
from axiom_common.state.region_view import EngineBeat, NodeBeat
from axiom_common.testing.registry import FakeBucket
from axiom_common.wire import decisions, desired, headers, keys, rest, schemas, subjects, views
from axiom_gateway.admin import AdminView, admin_app
from axiom_gateway.admin_decisions import DecisionDesk, decision_routes
from axiom_gateway.decisions import DecisionLog
from axiom_gateway.state import GatewayState

GOLDEN = Path(__file__).parent.parent / "golden"
HEX_WIDTH = 64

REGION, NODE, GATEWAY = RegionId("eu-1"), NodeId("node-1"), GatewayId("gateway-1")
ENGINE = EngineId("node-1.a")
SQL = AdapterSpec(
    name="acme/sql.v2",
    base_model="llama-3-8b",
    revision=3,
    path="/adapters/sql",
    rank=16,
    size_bytes=40_894_464,
    tenant="acme",
)
PLAN_STATUS = PlanStatus(revision=7, fence=12, accepted=False, reason=Reason.LOWER_REVISION)
ENGINE_STATE = EngineState(
    engine=ENGINE,
    url="http://10.0.0.7:8001",
    base_model="llama-3-8b",
    served_name="meta-llama/Meta-Llama-3-8B",
    status=EngineStatus.READY,
    role=Role.PREFILL,
    kind="sglang",
    limits=EngineLimits(
        max_num_seqs=128, hbm_slots=4, host_slots=32, max_lora_rank=64, kv_tokens=1_048_576
    ),
    link=LinkModel(h2d_fixed_ms=35.5, h2d_gbps=50.0, store_fixed_ms=12.0, store_gbps=1.25),
    gpus=(0, 1),
    running=5,
    waiting=2,
    deferred=1,
    kv_usage=0.5,
    ttft_ms=120.5,
    tpot_ms=12.25,
    prefill_ms_per_token=0.125,
    load_queue_ms=80.0,
    preemptions_per_s=0.25,
    rejections_per_s=1.5,
    prefix_hit_share=0.75,
    ranks=(EngineRank(rank=0, running=3, waiting=2, kv_usage=0.5), EngineRank(rank=1, running=2)),
    sample=5_000,
    sample_age_ms=33.0,
    residents=(
        Residency(
            adapter=EngineAdapter("acme/sql.v2~3"),
            state=AdapterState.RESIDENT,
            source=ResidencySource.INFERRED,
            in_flight=2,
            age_ms=250.0,
        ),
        Residency(
            adapter=EngineAdapter("by-hand"),
            state=AdapterState.LOADING,
            source=ResidencySource.EXTENSION,
            remaining_ms=42.5,
        ),
    ),
    registered=(EngineAdapter("acme/sql.v2~3"), EngineAdapter("by-hand")),
    failures=(
        LoadFailure(
            adapter=EngineAdapter("broken~1"), reason=Reason.ADAPTER_NOT_FOUND, retry_in_ms=5000.0
        ),
    ),
)
GPU = GpuState(
    index=0,
    uuid="GPU-0",
    name="NVIDIA H100",
    memory_used_bytes=60_000_000_000,
    memory_total_bytes=85_000_000_000,
    temperature_c=65.0,
    throttle=4,
    utilization=0.9,
    memory_utilization=0.4,
    power_w=650.5,
    power_limit_w=700.0,
    sm_clock_mhz=1_755,
    sm_clock_max_mhz=1_980,
    memory_clock_mhz=2_619,
    throttled_ms=((4, 1_500.0),),
    ecc_corrected=2,
    ecc_uncorrected=1,
    xid=79,
    xid_age_ms=60_000.0,
    pcie_rx_bytes_per_s=1.5e9,
    pcie_tx_bytes_per_s=2.5e8,
    nvlink_rx_bytes_per_s=3e9,
    nvlink_tx_bytes_per_s=4e9,
    mig=(MigSlice(uuid="MIG-0", memory_used_bytes=1 << 30, memory_total_bytes=1 << 34),),
)
HOST = HostState(
    memory_total_bytes=1 << 41,
    memory_available_bytes=1 << 40,
    page_cache_bytes=1 << 38,
    adapter_cache_bytes=1 << 33,
    adapter_disk_total_bytes=1 << 42,
    adapter_disk_free_bytes=1 << 41,
)
NODE_STATE = NodeState(
    region=REGION,
    node=NODE,
    incarnation=41,
    seq=1_000_000,
    base=999_990,
    engines=(ENGINE_STATE,),
    gpus=(GPU, GpuState(index=1, lost=True)),
    host=HOST,
    plan=PLAN_STATUS,
)
COUNTS = (
    schemas.InFlightCount(engine=ENGINE, adapter=EngineAdapter("acme/sql.v2~3"), count=2),
    schemas.InFlightCount(engine=ENGINE, adapter=EngineAdapter(""), count=0),
)

CANDIDATE = Candidate(
    engine=ENGINE,
    tier=1,
    cost_ms=1_352.5,
    composite=0.25,
    terms_ms=(120.5, 32.0, 1_200.0, 0.0, 0.0, 0.0),
    values=(0.75, 0.0, 0.5, 0.5, 1.0, 1.0),
)
DECISION = Decision(
    profile="axiom",
    winner=CANDIDATE,
    runners_up=(CANDIDATE._replace(engine=EngineId("node-2.a"), tier=2, composite=0.0),),
    load=LoadKind.FROM_HOST,
    refusals={Reason.QUARANTINED: 3, Reason.DRAINING: 1},
    booking=17,
    stale=True,
)
OUTCOME = Outcome(
    ending=Ending.SERVED,
    status=200,
    reason=None,
    engine=ENGINE,
    retries=1,
    held_ms=12.5,
    load_ms=1_180.0,
    total_ms=3_200.25,
    ttft_ms=140.5,
    tpot_ms=12.25,
    usage=Usage(prompt_tokens=256, completion_tokens=128, cached_tokens=64),
    matched_tokens=48,
)

MESSAGES: tuple[schemas.Message, ...] = (
    schemas.NodeReport(
        kind=schemas.ReportKind.FULL,
        region=REGION,
        node=NODE,
        incarnation=41,
        seq=1_000_000,
        base=999_999,
        engines=(ENGINE_STATE,),
        gpus=NODE_STATE.gpus,
        host=HOST,
        plan=PLAN_STATUS,
    ),
    schemas.ResyncRequest(asker="gateway-1"),
    schemas.EnsureRequest(
        engine=ENGINE,
        adapter=SQL,
        deadline_ms=1500.0,
        gateway=GATEWAY,
        in_flight=COUNTS,
        traceparent="00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01",
    ),
    schemas.EnsureReply(
        result=EnsureResult(outcome=EnsureOutcome.REFUSED, reason=Reason.NO_IDLE_SLOT)
    ),
    schemas.InFlightReport(
        kind=schemas.ReportKind.DELTA,
        region=REGION,
        gateway=GATEWAY,
        incarnation=9,
        seq=77,
        counts=COUNTS,
    ),
    schemas.DecisionReport(
        region=REGION,
        gateway=GATEWAY,
        id="5f3a-1c",
        age_ms=3_310.5,
        share=0.25,
        base_model="llama-3-8b",
        adapter=EngineAdapter("acme/sql.v2~3"),
        rank=16,
        size_bytes=40_894_464,
        prompt_tokens=250,
        weights=(1.0, 1.0, 1.0, 1.0, 1.0, 1.0),
        attempts=(schemas.DecidedAttempt(attempt=2, after_ms=900.5, decision=DECISION),),
        outcome=OUTCOME,
    ),
    schemas.NodeRecord(state=NODE_STATE),
    schemas.PlanRecord(
        plan=Plan(
            region=REGION,
            node=NODE,
            revision=8,
            fence=12,
            reason="adds acme/sql.v2~3",
            engines=(
                EnginePlan(engine=ENGINE, load=(SQL,), unload=(EngineAdapter("acme/sql.v2~2"),)),
            ),
        )
    ),
    schemas.Lease(holder="scheduler-1-5f3a", fence=12),
)

BEAT = NodeBeat(
    region=REGION,
    node=NODE,
    incarnation=41,
    seq=1_000_001,
    base=1_000_000,
    engines=(EngineBeat(ENGINE, ENGINE_STATE.figures, order=(1, 0), ranks=ENGINE_STATE.ranks),),
    gpus=(GPU,),
)

DECLARED: tuple[desired.Declared, ...] = (
    SQL,
    BaseModelSpec(name="llama-3-8b"),
    Tenant(name="acme", salt="s4lt", weight=2.5, priority_band=0, regions=(REGION,)),
)
FLOOR = 17

DECISION_VIEW = decisions.DecisionView.of(DECISION, AXIOM.weights)
CANDIDATE_VIEW = decisions.CandidateView.of(CANDIDATE, AXIOM.weights)
ATTEMPT_VIEW = decisions.AttemptView(
    attempt=2, age_ms=900.5, excluded=("node-3.a",), decision=DECISION_VIEW
)
JUDGED = (
    decisions.JudgedEngine.of(CANDIDATE, AXIOM.weights),
    decisions.JudgedEngine.of(
        Refused(engine=EngineId("node-3.a"), reason=Reason.DRAINING), AXIOM.weights
    ),
)

NODE_VIEW = views.NodeView.of(NODE_STATE, liveness="alive", heard_age_ms=120.5)
REST: tuple[rest.BaseModel, ...] = (
    rest.AdapterPut(
        name="acme/sql.v2",
        base_model="llama-3-8b",
        path="/adapters/sql",
        rank=16,
        size_bytes=40_894_464,
        tenant="acme",
        revision=3,
        base_model_known=True,
    ),
    rest.Adapter.of(SQL, base_model_known=True),
    rest.AdapterList(adapters=(rest.Adapter.of(SQL, base_model_known=True),), next="acme/sql.v2"),
    rest.BaseModelPut(name="llama-3-8b"),
    rest.DeclaredModel(name="llama-3-8b"),
    rest.ModelList(models=(rest.DeclaredModel(name="llama-3-8b"),)),
    views.PlanView.of(PLAN_STATUS),
    NODE_VIEW,
    views.NodeList(nodes=(views.NodeView.of(NODE_STATE, liveness="suspect", heard_age_ms=None),)),
    NODE_VIEW.engines[0],
    views.EngineList(engines=NODE_VIEW.engines),
    NODE_VIEW.engines[0].residents[0],
    NODE_VIEW.engines[0].ranks[0],
    NODE_VIEW.engines[0].failures[0],
    NODE_VIEW.gpus[0],
    views.ThrottleView(reason="power-cap", ms=1_500.0),
    views.MigView(uuid="MIG-0", memory_used_bytes=1 << 30, memory_total_bytes=1 << 34),
    views.HostView.of(HOST),
    views.NodeGone(node="node-1"),
    rest.RegionStatus(nodes=1, engines=2, adapters=24, degraded=("nats",), view_age_ms=12.5),
    rest.Status(
        regions={
            "eu-1": rest.RegionStatus(
                nodes=1, engines=2, adapters=24, degraded=(), view_age_ms=None
            )
        }
    ),
    JUDGED[0],
    CANDIDATE_VIEW,
    CANDIDATE_VIEW.parts[2],
    DECISION_VIEW,
    ATTEMPT_VIEW,
    decisions.OutcomeView.of(OUTCOME),
    decisions.WhyView(
        id="5f3a-1c",
        base_model="llama-3-8b",
        adapter="acme/sql.v2~3",
        prompt_tokens=250,
        attempts=(ATTEMPT_VIEW,),
        outcome=None,
    ),
    decisions.ExplainPost(
        model="acme/sql.v2", prompt_tokens=250, profile="axiom", limit=2, after="node-0.z"
    ),
    decisions.Explanation(
        model="acme/sql.v2",
        base_model="llama-3-8b",
        adapter="acme/sql.v2~3",
        prompt_tokens=250,
        decision=DECISION_VIEW,
        engines=JUDGED,
        next="node-3.a",
    ),
    rest.Problem(
        type="urn:axiom:problem:invalid-input",
        title="Bad Request",
        status=400,
        detail="rank: Input should be a valid integer",
        code="invalid-input",
        path="rank",
    ),
)

_ARGUMENTS: dict[str, Any] = {
    "region": REGION,
    "node": NODE,
    "gateway": GATEWAY,
    "instance": "telemetry-1",
    "name": "acme/sql.v2:ü_",
    "key": "eu-1.node-1",
    "text": "acme_2fsql_2ev2_3a_c3_bc_5f",
}
_ENUM_HOMES = (adapter, decision, engine, ensure, outcome, reason, schemas)


def message_kinds() -> tuple[type[Any], ...]:
    """Every message of the bus and the stores."""
    return get_args(schemas.Message)


def record_kinds() -> tuple[type[Any], ...]:
    """Every record of desired state."""
    return get_args(desired.Record)


def rest_shapes() -> set[type[Any]]:
    """Every shape of the admin API."""
    return {
        shape
        for module in (rest, views, decisions)
        for name, shape in vars(module).items()
        if inspect.isclass(shape)
        and shape.__module__ == module.__name__
        and not name.startswith("_")
        and shape is not rest.Shape
    }


def names_of(module: ModuleType) -> dict[str, Any]:
    """Each public constant of a module, and what each public function gives for the fixed ids."""
    found: dict[str, Any] = {}
    for name, value in vars(module).items():
        if name.startswith("_"):
            continue
        if isinstance(value, str | int) and name.isupper():
            found[name] = value
        elif inspect.isfunction(value) and value.__module__ == module.__name__:
            arguments = [_ARGUMENTS[parameter] for parameter in inspect.signature(value).parameters]
            found[name] = value(*arguments)
    return found


def optional_fields(value: Any) -> Iterator[tuple[str, bool]]:
    """(`Type.field`, whether it differs from its default) for all fields with a default below."""
    if isinstance(value, tuple):
        for item in value:
            yield from optional_fields(item)
    elif isinstance(value, msgspec.Struct) or is_dataclass(value):
        for field in msgspec.inspect.type_info(type(value)).fields:
            held = getattr(value, field.name)
            default = field.default
            if field.default_factory is not msgspec.NODEFAULT:
                default = field.default_factory()
            if default is not msgspec.NODEFAULT:
                yield f"{type(value).__name__}.{field.name}", held != default
            yield from optional_fields(held)


def enums() -> dict[str, list[str]]:
    """Every closed list of words that a message may hold."""
    found = {
        name: [str(member) for member in value]
        for module in _ENUM_HOMES
        for name, value in vars(module).items()
        if inspect.isclass(value) and issubclass(value, StrEnum) and value is not StrEnum
    }
    return dict(sorted(found.items()))


def admin_routes() -> list[str]:
    """Method and path of each route below /admin/v1."""
    desk = DecisionDesk(
        clock=SystemClock(),
        log=DecisionLog(),
        state=GatewayState(SystemClock(), BUILT_IN),
        profiles=BUILT_IN,
        default_profile=AXIOM.name,
    )
    no_view = AdminView(regions={})
    app = admin_app(_no_bucket(), lambda: no_view, watches_of(), decision_routes(desk))
    paths = app.openapi()["paths"]
    return sorted(f"{method.upper()} {path}" for path in paths for method in paths[path])


def _no_bucket() -> FakeBucket:
    return FakeBucket.__new__(FakeBucket)


def _tag(kind: type[Any]) -> str:
    return str(kind.__struct_config__.tag)


def vectors() -> dict[str, bytes]:
    """File name below tests/golden -> its content."""
    files = {f"{_tag(type(m))}.hex": _hex(schemas.encode(m)) for m in MESSAGES}
    files["node-beat.hex"] = _hex(schemas.encode(BEAT))
    records = [desired.encode(value) for value in DECLARED] + [desired.encode_floor(FLOOR)]
    for record in records:
        files[f"desired-{msgspec.json.decode(record)['type']}.json"] = record + b"\n"
    for shape in REST:
        files[f"rest-{type(shape).__name__}.json"] = (
            shape.model_dump_json(indent=2).encode() + b"\n"
        )
    names = {"subjects": subjects, "keys": keys, "headers": headers}
    for name, module in names.items():
        files[f"{name}.json"] = _json(names_of(module))
    files["enums.json"] = _json(enums())
    files["admin-routes.json"] = _json(admin_routes())
    return files


def from_hex(content: bytes) -> bytes:
    """The bytes that a .hex file stands for."""
    return bytes.fromhex(content.decode())


def _hex(payload: bytes) -> bytes:
    text = payload.hex()
    lines = [text[at : at + HEX_WIDTH] for at in range(0, len(text), HEX_WIDTH)]
    return "\n".join([*lines, ""]).encode()


def _json(value: Any) -> bytes:
    return json.dumps(value, indent=2, ensure_ascii=False).encode() + b"\n"


def main() -> None:
    """Write all vectors anew, and remove those of what is no more."""
    wanted = vectors()
    for path in GOLDEN.iterdir():
        if path.suffix in (".hex", ".json") and path.name not in wanted:
            path.unlink()
    for name, content in wanted.items():
        (GOLDEN / name).write_bytes(content)


if __name__ == "__main__":
    main()
