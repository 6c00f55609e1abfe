"""One example of everything that the admin API takes and gives.

They stand in its description (OpenAPI), and their form is held by the golden vectors of the tests.
Names are those of things that hardly exist anywhere: who tries an example out harms nothing.
"""

from __future__ import annotations

from pydantic import BaseModel

from axiom_common.model.access import ApiKey
from axiom_common.model.access import Role as KeyRole
from axiom_common.model.adapter import (
    AdapterSpec,
    AdapterState,
    BaseModelSpec,
    Residency,
    ResidencySource,
)
from axiom_common.model.decision import Candidate, Decision, LoadKind, Refused, Term
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
from axiom_common.model.engine_order import EngineOrder, OrderKind
from axiom_common.model.ids import EngineAdapter, EngineId, GatewayId, NodeId, RegionId
from axiom_common.model.outcome import Ending, Outcome, Usage
from axiom_common.model.plan import EnginePlan, Plan
from axiom_common.model.reason import Reason
from axiom_common.policy.profile import AXIOM, Profile
from axiom_common.wire import decisions, engine_orders, rest, views
from axiom_common.wire.desired import Stored

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
PROFILE = Profile(
    name="chat",
    picker="least-loaded",
    wait_cap_ms=250.0,
    quarantine=False,
    weights={term: 1.5 if term is Term.WAIT else 1.0 for term in Term},
)
API_KEY = ApiKey(
    name="ci-deploys",
    role=KeyRole.OPERATOR,
    digest="9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08",
    created_ms=1_790_000_000_000,
    tenant="acme",
)
PLAN = Plan(
    region=REGION,
    node=NODE,
    revision=8,
    fence=12,
    reason="adds acme/sql.v2~3",
    engines=(EnginePlan(engine=ENGINE, load=(SQL,), unload=(EngineAdapter("acme/sql.v2~2"),)),),
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

ADAPTER = rest.Adapter.of(Stored(SQL, 1_030), base_model_known=True, staleness_ms=12.5)
ORDER = EngineOrder(region=REGION, engine=ENGINE, kind=OrderKind.DRAIN, note="new driver")
PLAN_VIEW = views.NodePlanView.of(PLAN, PLAN_STATUS, staleness_ms=250.0)
NODE_VIEW = views.NodeView.of(
    NODE_STATE,
    liveness="alive",
    staleness_ms=120.5,
    uses={ENGINE: views.EngineUse(order=ORDER, in_flight=7, idle=False)},
)
REST: tuple[BaseModel, ...] = (
    rest.AdapterPut(
        name="acme/sql.v2",
        base_model="llama-3-8b",
        path="/adapters/sql",
        rank=16,
        size_bytes=40_894_464,
        tenant="acme",
    ),
    ADAPTER,
    rest.Page[rest.Adapter](items=(ADAPTER,), next="eyJsaXN0Ijo", staleness_ms=0.0),
    rest.BaseModelPut(name="llama-3-8b"),
    rest.DeclaredModel.of(Stored(BaseModelSpec(name="llama-3-8b"), 1_031)),
    rest.ProfilePut(
        name="chat",
        picker="least-loaded",
        wait_cap_ms=250.0,
        quarantine=False,
        weights={Term.WAIT: 1.5},
    ),
    rest.ProfileView(
        name="chat",
        version=1_032,
        picker=PROFILE.picker,
        wait_cap_ms=PROFILE.wait_cap_ms,
        quarantine=PROFILE.quarantine,
        weights={term.value: weight for term, weight in PROFILE.weights.items()},
        built_in=False,
    ),
    rest.KeyRotatePost(),
    rest.ApiKeyPut(name="ci-deploys", role=KeyRole.OPERATOR, tenant="acme"),
    rest.ApiKeyView.of(Stored(API_KEY, 1_033)),
    views.PlanView.of(PLAN_STATUS),
    PLAN_VIEW,
    PLAN_VIEW.engines[0],
    engine_orders.EngineOrderPost(note="new driver", force=True),
    engine_orders.EngineReleasePost(),
    engine_orders.EngineOrderView(
        region=REGION,
        engine=ENGINE,
        order=ORDER.kind,
        note=ORDER.note,
        version=1_034,
        in_flight=7,
        idle=False,
        without=("gateway-2",),
    ),
    views.ConfigView(gateway="gateway-1", settings={"region": "eu-1", "hold_ms": 15_000.0}),
    NODE_VIEW,
    NODE_VIEW.engines[0],
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
        model="acme/sql.v2",
        prompt_tokens=250,
        prompt="SELECT",
        profile="axiom",
        limit=2,
        after="node-0.z",
    ),
    decisions.Explanation(
        model="acme/sql.v2",
        base_model="llama-3-8b",
        adapter="acme/sql.v2~3",
        prompt_tokens=250,
        matched_tokens=None,
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
