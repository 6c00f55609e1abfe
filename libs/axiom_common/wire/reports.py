"""Node reports between the wire and the model."""

from __future__ import annotations

from axiom_common.errors import WireError
from axiom_common.model.engine import NodeState
from axiom_common.state.region_view import NodeDelta
from axiom_common.wire import subjects
from axiom_common.wire.schemas import NodeReport, ReportKind, decode


def decode_node_report(subject: str, payload: bytes) -> NodeState | NodeDelta:
    """What a message on `subject` reports; WireError when it is not about the subject's own node.

    Permissions of the bus bind an agent to its subject, so the subject is what can be trusted.
    """
    report = decode(payload, NodeReport)
    if subject != subjects.node_report(report.region, report.node):
        raise WireError(f"a report of {report.region}/{report.node} on {subject[:200]}")
    kind = NodeState if report.kind is ReportKind.FULL else NodeDelta
    return kind(
        region=report.region,
        node=report.node,
        incarnation=report.incarnation,
        seq=report.seq,
        engines=report.engines,
        gpus=report.gpus,
        host=report.host,
        plan=report.plan,
    )
