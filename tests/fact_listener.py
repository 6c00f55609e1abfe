"""What a gateway makes of one engine's facts as they come over the bus."""

from __future__ import annotations

from array import array
from dataclasses import dataclass, field

from tests.fact_parts import ENGINE_NUMBER, FactHearer, Message

from axiom_common.model.prefix import FactChanges
from axiom_common.state.prefix_index import ROW
from axiom_common.wire.schemas import FactReport, decode


@dataclass
class FactListener:
    """Folds all that is told of one engine; `deaf`: nothing arrives."""

    hearer: FactHearer = field(default_factory=FactHearer)
    reports: list[FactReport] = field(default_factory=list)
    deaf: bool = False

    async def hear(self, subject: str, payload: bytes) -> None:
        """A message of the agent."""
        del subject
        if self.deaf:
            return
        report = decode(payload, FactReport)
        self.reports.append(report)
        changes = FactChanges(report.cleared, report.hbm, report.any_tier)
        self.hearer.hear(
            Message(report.kind, report.incarnation, report.seq, report.part, report.parts, changes)
        )

    def credit(self, links: array[int]) -> int:
        """Tokens of a prompt with these links that the engine is said to hold in HBM."""
        found, _ = self.hearer.index.lookup(links.tobytes())
        held = {engine: tokens for engine, _, tokens in ROW.iter_unpack(found)}
        return held.get(ENGINE_NUMBER, 0)
