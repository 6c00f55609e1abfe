"""Messages on the bus and records in the stores: MessagePack maps by field name, versioned.

A map tolerates added fields, so `VERSION` changes only when an old reader would misread. Bounds are
checked on decoding: a message beyond them is dropped like one that does not parse.
"""

from __future__ import annotations

import math
from enum import StrEnum
from typing import TypeVar

import msgspec

from axiom_common.errors import AxiomError, WireError
from axiom_common.model.adapter import AdapterSpec
from axiom_common.model.decision import Decision
from axiom_common.model.engine import EngineState, GpuState, HostState, NodeState, PlanStatus
from axiom_common.model.ensure import EnsureResult
from axiom_common.model.ids import EngineAdapter, EngineId, GatewayId, NodeId, RegionId
from axiom_common.model.outcome import Outcome
from axiom_common.model.plan import Plan
from axiom_common.model.prefix import FactBatch
from axiom_common.state.region_view import NodeBeat
from axiom_common.wire.bounds import (
    ENGINES_MAX,
    check_beat,
    check_decisions,
    check_facts,
    check_node,
    check_order,
    check_outcome,
    check_plan,
    check_share,
)

VERSION = 1
MESSAGE_BYTES_MAX = 1 << 20
COUNTS_MAX = 8192
PARTS_MAX = 4096
"""Of one snapshot."""


class ReportKind(StrEnum):
    """`full` replaces all that is known of the sender, `delta` only what it names. `left`: the
    sender ends in order, and says no more."""

    FULL = "full"
    DELTA = "delta"
    LEFT = "left"


class NodeReport(msgspec.Struct, frozen=True, kw_only=True, tag="node-report"):
    """A node's whole state, a change at once, or an agent's last words.

    A delta carries the changed engines whole, and the GPUs, host and plan if they changed (None:
    they did not). It applies only on the state whose last full or delta was `base`; None stands for
    the number just below. Between these an agent beats with `NodeBeat`.
    """

    v: int = VERSION
    kind: ReportKind
    region: RegionId
    node: NodeId
    incarnation: int
    seq: int
    base: int | None = None
    engines: tuple[EngineState, ...]
    gpus: tuple[GpuState, ...] | None = None
    host: HostState | None = None
    plan: PlanStatus | None = None


class ResyncRequest(msgspec.Struct, frozen=True, kw_only=True, tag="resync"):
    """Who asks a node for its full state. The agent answers once for many askers."""

    v: int = VERSION
    asker: str


class InFlightCount(msgspec.Struct, frozen=True, kw_only=True, array_like=True):
    """Requests in flight for one (engine, adapter); `BASE` stands for the base model."""

    engine: EngineId
    adapter: EngineAdapter
    count: int


class FactKind(StrEnum):
    """`changes` follow those of the number below; a `snapshot` part tells what held at a number;
    `stand` tells nothing but the number that was reached."""

    CHANGES = "changes"
    SNAPSHOT = "snapshot"
    STAND = "stand"


class FactReport(msgspec.Struct, frozen=True, kw_only=True, tag="facts"):
    """Facts about text that an agent tells of one engine: what prefixes it holds.

    `incarnation` is the agent's; within it, `seq` counts an engine's changes from 1. A `snapshot`
    was cut at `seq`, comes in `parts`, numbered from 0, and announces only. `cleared`: first all
    that was told before is withdrawn. `revision` names the tokenizer that facts were made with:
    links of another one mean nothing to who has this one.
    """

    v: int = VERSION
    kind: FactKind
    region: RegionId
    node: NodeId
    incarnation: int
    engine: EngineId
    revision: str
    seq: int
    part: int = 0
    parts: int = 1
    cleared: bool = False
    hbm: FactBatch = FactBatch()
    any_tier: FactBatch = FactBatch()


class FactRequest(msgspec.Struct, frozen=True, kw_only=True, tag="facts-wanted"):
    """Who lacks facts of which engines. The agent tells all who listen, once for many askers."""

    v: int = VERSION
    asker: str
    engines: tuple[EngineId, ...]


class EnsureRequest(msgspec.Struct, frozen=True, kw_only=True, tag="ensure"):
    """Make `adapter` resident on `engine` within `deadline_ms` from arrival.

    `in_flight` are the asking gateway's own counts on that engine at this moment: they are newer
    than its last vector, and decide which slots are idle.
    """

    v: int = VERSION
    engine: EngineId
    adapter: AdapterSpec
    deadline_ms: float
    gateway: GatewayId
    in_flight: tuple[InFlightCount, ...] = ()
    traceparent: str | None = None
    """W3C trace context of a request that waits for it, where that is sampled."""


class EnsureReply(msgspec.Struct, frozen=True, kw_only=True, tag="ensured"):
    """The agent's answer to an `EnsureRequest`."""

    v: int = VERSION
    result: EnsureResult


class InFlightReport(msgspec.Struct, frozen=True, kw_only=True, tag="in-flight"):
    """One gateway's own requests in flight: full each second, else only the counts that changed.

    `incarnation` grows with each start of the gateway. A delta with a count of 0 removes the entry.
    `applied` is the revision up to which it has taken over the desired state; gateways of before do
    not say.
    """

    v: int = VERSION
    kind: ReportKind
    region: RegionId
    gateway: GatewayId
    incarnation: int
    seq: int
    counts: tuple[InFlightCount, ...]
    applied: int | None = None


class DecidedAttempt(msgspec.Struct, frozen=True, kw_only=True):
    """One decision of a request, `after_ms` its first one."""

    attempt: int
    after_ms: float
    decision: Decision


class DecisionReport(msgspec.Struct, frozen=True, kw_only=True, tag="decision"):
    """What a gateway decided for one request, with its best engines, and what became of it.

    It was sent `age_ms` after its first decision. `share` of all requests of that moment are told
    of, so this one stands for 1 / share. `prompt_tokens` is an estimate, `weights` those of the
    profile, indexed like `Term`; of many attempts the last are told. `outcome` and each candidate
    are read by place: a new field goes to the end with a default.
    """

    v: int = VERSION
    region: RegionId
    gateway: GatewayId
    id: str
    age_ms: float
    share: float
    base_model: str
    adapter: EngineAdapter
    rank: int
    size_bytes: int
    prompt_tokens: int
    weights: tuple[float, ...]
    attempts: tuple[DecidedAttempt, ...]
    outcome: Outcome


class NodeRecord(msgspec.Struct, frozen=True, kw_only=True, tag="node-record"):
    """A node in the shadow cache: its whole state."""

    v: int = VERSION
    state: NodeState


class PlanRecord(msgspec.Struct, frozen=True, kw_only=True, tag="plan"):
    """A node's plan in the registry."""

    v: int = VERSION
    plan: Plan


class Lease(msgspec.Struct, frozen=True, kw_only=True, tag="lease"):
    """A lease in the registry. `fence` grows with each new holder."""

    v: int = VERSION
    holder: str
    fence: int


Message = (
    NodeReport
    | ResyncRequest
    | FactReport
    | FactRequest
    | EnsureRequest
    | EnsureReply
    | InFlightReport
    | DecisionReport
    | NodeRecord
    | PlanRecord
    | Lease
)

_M = TypeVar("_M", bound=Message)
_ENCODER = msgspec.msgpack.Encoder()
_DECODER = msgspec.msgpack.Decoder(Message)
_BEAT_DECODER = msgspec.msgpack.Decoder(NodeBeat)
_BEAT_BYTES = range(0x90, 0xA0)
"""What an array of fewer than 16 fields begins with; all other messages are maps."""


def encode(message: Message | NodeBeat) -> bytes:
    """MessagePack bytes of a message."""
    return _ENCODER.encode(message)


def is_beat(payload: bytes) -> bool:
    """Whether a message is a beat, to be read by `decode_beat`."""
    return bool(payload) and payload[0] in _BEAT_BYTES


def decode_beat(payload: bytes) -> NodeBeat:
    """The beat, checked for type and bounds; WireError with the cause otherwise.

    A beat is an array, by far the most frequent message. Its fields are read by place: each new one
    goes to the end with a default, and readers learn it before agents tell it.
    """
    if len(payload) > MESSAGE_BYTES_MAX:
        raise WireError(f"message of {len(payload)} bytes is above {MESSAGE_BYTES_MAX}")
    try:
        beat = _BEAT_DECODER.decode(payload)
    except (msgspec.MsgspecError, ValueError, TypeError, RecursionError) as error:
        raise WireError(f"not a NodeBeat: {error}") from error
    check_beat(beat)
    return beat


def decode(payload: bytes, kind: type[_M]) -> _M:
    """The message, checked for type, version and bounds; WireError with the cause otherwise."""
    if len(payload) > MESSAGE_BYTES_MAX:
        raise WireError(f"message of {len(payload)} bytes is above {MESSAGE_BYTES_MAX}")
    try:
        message = _DECODER.decode(payload)
    except (msgspec.MsgspecError, AxiomError, ValueError, TypeError, RecursionError) as error:
        raise WireError(f"not a {kind.__name__}: {error}") from error
    if not isinstance(message, kind):
        raise WireError(f"expected {kind.__name__}, got {type(message).__name__}")
    if message.v != VERSION:
        raise WireError(f"version {message.v} is not {VERSION}")
    _check_bounds(message)
    return message


def _check_bounds(message: Message) -> None:
    match message:
        case NodeReport():
            check_order(message.incarnation, message.seq, message.base or 0)
            check_node(message.node, message.engines, message.gpus or ())
        case NodeRecord(state=state):
            check_order(state.incarnation, state.seq, state.base)
            check_node(state.node, state.engines, state.gpus)
        case PlanRecord():
            check_plan(message.plan)
        case FactReport():
            _check_facts(message)
        case FactRequest() if len(message.engines) > ENGINES_MAX:
            raise WireError(f"more than {ENGINES_MAX} engines on one node")
        case DecisionReport():
            _check_decision(message)
        case InFlightReport():
            check_order(message.incarnation, message.seq, message.applied or 0)
            _check_counts(message.counts)
        case EnsureRequest():
            _check_counts(message.in_flight)
            if not 0.0 <= message.deadline_ms < math.inf:
                raise WireError(f"a deadline of {message.deadline_ms} ms")


def _check_facts(report: FactReport) -> None:
    check_order(report.incarnation, report.seq)
    check_facts(report.node, report.engine, report.revision, report.hbm, report.any_tier)
    if not 0 <= report.part < report.parts <= PARTS_MAX:
        raise WireError(f"part {report.part} of {report.parts}")


def _check_decision(report: DecisionReport) -> None:
    check_decisions(tuple(attempt.decision for attempt in report.attempts), report.weights)
    check_outcome(report.outcome)
    check_share(report.share, report.age_ms, *(one.after_ms for one in report.attempts))


def _check_counts(counts: tuple[InFlightCount, ...]) -> None:
    if len(counts) > COUNTS_MAX:
        raise WireError(f"more than {COUNTS_MAX} counts")
    if any(count.count < 0 for count in counts):
        raise WireError("a count is negative")
