"""Node reports between the wire and the model, and how often agents tell them."""

from __future__ import annotations

from axiom_common.errors import WireError
from axiom_common.model.engine import NodeState
from axiom_common.model.ids import NodeId, RegionId
from axiom_common.state.region_view import NodeBeat, NodeDelta, NodeLeft, Report
from axiom_common.wire import subjects
from axiom_common.wire.schemas import NodeReport, ReportKind, decode, decode_beat, encode, is_beat

BEAT_MS = 250.0
"""How often an agent tells its figures, unless its settings say otherwise."""
FULL_EVERY_MS = 10_000.0
"""How often an agent tells the whole. Who lacks something asks for it; this is for who doesn't know
that something is lacking."""


def decode_node_report(subject: str, payload: bytes) -> Report:
    """What a message on `subject` reports; WireError when it is not about the subject's own node.

    Permissions of the bus bind an agent to its subject, so the subject is what can be trusted.
    """
    if is_beat(payload):
        beat = decode_beat(payload)
        _check_subject(beat.region, beat.node, subject)
        return beat
    report = decode(payload, NodeReport)
    _check_subject(report.region, report.node, subject)
    region, node = report.region, report.node
    incarnation, seq = report.incarnation, report.seq
    if report.kind is ReportKind.LEFT:
        return NodeLeft(region=region, node=node, incarnation=incarnation, seq=seq)
    if report.kind is ReportKind.DELTA:
        return NodeDelta(
            region=region,
            node=node,
            incarnation=incarnation,
            seq=seq,
            base=seq - 1 if report.base is None else report.base,
            engines=report.engines,
            # Agents that name no base mean by no GPUs that they are as they were.
            gpus=report.gpus if report.base is not None else report.gpus or None,
            host=report.host,
            plan=report.plan,
        )
    return NodeState(
        region=region,
        node=node,
        incarnation=incarnation,
        seq=seq,
        engines=report.engines,
        gpus=report.gpus or (),
        host=report.host,
        plan=report.plan,
    )


def encode_node_report(report: Report) -> bytes:
    """A report as an agent sends it: what `decode_node_report` reads."""
    if isinstance(report, NodeBeat):
        return encode(report)
    kind, base = ReportKind.FULL, None
    if isinstance(report, NodeLeft):
        kind = ReportKind.LEFT
        report = NodeState(
            region=report.region,
            node=report.node,
            incarnation=report.incarnation,
            seq=report.seq,
        )
    elif isinstance(report, NodeDelta):
        kind, base = ReportKind.DELTA, report.base
    return encode(
        NodeReport(
            kind=kind,
            region=report.region,
            node=report.node,
            incarnation=report.incarnation,
            seq=report.seq,
            base=base,
            engines=report.engines,
            gpus=report.gpus,
            host=report.host,
            plan=report.plan,
        )
    )


def _check_subject(region: RegionId, node: NodeId, subject: str) -> None:
    if subject != subjects.node_report(region, node):
        raise WireError(f"a report of {region}/{node} on {subject[:200]}")
