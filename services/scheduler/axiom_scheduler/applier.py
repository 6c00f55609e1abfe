"""The only writer of plans: one key a node, compare-and-set, only while this process leads."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from enum import StrEnum

from axiom_common.errors import ConflictError, WireError
from axiom_common.model.ids import NodeId, RegionId
from axiom_common.model.plan import Plan
from axiom_common.ports.registry import Bucket, Entry
from axiom_common.runtime.logging import Log
from axiom_common.wire import keys
from axiom_common.wire.schemas import MESSAGE_BYTES_MAX, PlanRecord, decode, encode
from axiom_scheduler.planner import Proposal


class Applied(StrEnum):
    """How a proposal was carried out.

    `conflict`: somebody else wrote a plan in between; propose again on what stands now.
    `fenced`: what stands has a higher fence, so another leader is at work: step down.
    `lost`: the lease ended on the way; what was not written yet is left to the next leader.
    """

    DONE = "done"
    CONFLICT = "conflict"
    FENCED = "fenced"
    LOST = "lost"


@dataclass(frozen=True, slots=True)
class _Held:
    """A plan as it stands; None when the record does not parse. `version` is the record's."""

    plan: Plan | None
    version: int


class Applier:
    """Carries out proposals in one region. All calls raise UnavailableError."""

    def __init__(self, bucket: Bucket, *, region: RegionId, log: Log) -> None:
        self._bucket = bucket
        self._region = region
        self._log = log
        self._held: dict[NodeId, _Held] = {}
        self.written = 0

    @property
    def plans(self) -> Mapping[NodeId, Plan]:
        """The plans as they stood when last read or written."""
        return {node: held.plan for node, held in self._held.items() if held.plan is not None}

    async def read(self) -> None:
        """Read the plans that stand: at the start of a term."""
        held = {}
        for entry in await self._bucket.list():
            node = keys.planned_node(self._region, entry.key)
            if node is not None:
                held[node] = self._parse(entry)
        self._held = held

    async def apply(self, proposal: Proposal, leads: Callable[[], bool]) -> Applied:
        """Write what is proposed; `leads` is asked before each write."""
        outcome = Applied.DONE
        for plan in proposal.plans:
            if not leads():
                return Applied.LOST
            outcome = max(outcome, await self._write(plan), key=_SEVERITY.index)
            if outcome is Applied.FENCED:
                return outcome
        for node in proposal.gone:
            if not leads():
                return Applied.LOST
            outcome = max(
                outcome, await self._delete(node, fence=proposal.fence), key=_SEVERITY.index
            )
        return outcome

    async def _write(self, plan: Plan) -> Applied:
        key, record = keys.plan_key(self._region, plan.node), encode(PlanRecord(plan=plan))
        if len(record) > MESSAGE_BYTES_MAX:
            self._log.warning("plan too large", once_a_minute=f"large {key}", bytes=len(record))
            return Applied.DONE
        held = self._held.get(plan.node)
        if _outranked(held, plan.fence):
            return Applied.FENCED
        try:
            if held is None:
                version = await self._bucket.create(key, record)
            else:
                version = await self._bucket.update(key, record, revision=held.version)
        except ConflictError:
            return await self._read_again(plan.node, fence=plan.fence)
        self._held[plan.node] = _Held(plan, version)
        self.written += 1
        self._log.info(
            "plan written",
            node=plan.node,
            revision=plan.revision,
            fence=plan.fence,
            reason=plan.reason,
        )
        return Applied.DONE

    async def _delete(self, node: NodeId, *, fence: int) -> Applied:
        held = self._held[node]
        if _outranked(held, fence):
            return Applied.FENCED
        try:
            await self._bucket.delete(keys.plan_key(self._region, node), revision=held.version)
        except ConflictError:
            return await self._read_again(node, fence=fence)
        del self._held[node]
        self._log.info("plan deleted", node=node)
        return Applied.DONE

    async def _read_again(self, node: NodeId, *, fence: int) -> Applied:
        """Somebody else wrote: take over what stands, and tell whether its author outranks us."""
        entry = await self._bucket.get(keys.plan_key(self._region, node))
        if entry is None:
            self._held.pop(node, None)
            return Applied.CONFLICT
        held = self._held[node] = self._parse(entry)
        return Applied.FENCED if _outranked(held, fence) else Applied.CONFLICT

    def _parse(self, entry: Entry) -> _Held:
        try:
            return _Held(decode(entry.value or b"", PlanRecord).plan, entry.revision)
        except WireError as error:
            self._log.warning(
                "plan does not parse", once_a_minute=f"plan {entry.key}", cause=str(error)
            )
            return _Held(None, entry.revision)


def _outranked(held: _Held | None, fence: int) -> bool:
    return held is not None and held.plan is not None and held.plan.fence > fence


_SEVERITY = (Applied.DONE, Applied.CONFLICT, Applied.FENCED)
