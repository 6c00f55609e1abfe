"""Node reports between the wire and the model."""

from __future__ import annotations

from axiom_common.errors import WireError
from axiom_common.model.engine import NodeState
from axiom_common.model.ids import NodeId, RegionId
from axiom_common.state.region_view import NodeDelta, NodeLeft, Report
from axiom_common.wire import subjects
from axiom_common.wire.schemas import NodeReport, ReportKind, decode, decode_beat, is_beat


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


def _check_subject(region: RegionId, node: NodeId, subject: str) -> None:
    if subject != subjects.node_report(region, node):
        raise WireError(f"a report of {region}/{node} on {subject[:200]}")
