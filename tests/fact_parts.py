"""An agent that tells facts over a bus that loses and reorders, and a gateway's fold of them."""

from __future__ import annotations

from dataclasses import dataclass, field

from axiom_common.model.prefix import ANNOUNCED, WITHDRAWN, FactBatch, FactChanges
from axiom_common.state.fact_ledger import FactLedger, Reach
from axiom_common.state.fact_stream import Deed, FactStream
from axiom_common.state.prefix_index import ANY_TIER, HBM, PrefixIndexTwin
from axiom_common.state.text_facts import Fact

ENGINE_NUMBER = 3
PART_FACTS = 2
NOTHING = FactChanges()


@dataclass(frozen=True)
class Message:
    """What `wire.schemas.FactReport` says, as far as a fold looks at it."""

    kind: str
    incarnation: int
    seq: int
    part: int = 0
    parts: int = 1
    changes: FactChanges = NOTHING


@dataclass
class FactTeller:
    """An agent's ledger of one engine, and the messages that it makes of it."""

    incarnation: int = 1
    seq: int = 0
    ledger: FactLedger = field(default_factory=FactLedger)
    reach: dict[int, Reach] = field(default_factory=dict)

    def move(self, link: int, to: Reach) -> None:
        """A fact is reached otherwise than before."""
        fact = Fact(link, 16 * link)
        before = self.reach.get(link, Reach.NOT)
        if before is not to:
            self.ledger.move([fact], before, to)
            self.reach[link] = to

    def clear(self) -> None:
        """The engine lost all."""
        self.ledger.clear()
        self.reach.clear()

    def restart(self) -> None:
        """The agent begins anew, with its mirror on disk or without; nothing is told yet."""
        self.incarnation += 1
        self.seq = 0
        held, self.ledger, self.reach = self.reach, FactLedger(), {}
        for link, reach in held.items():
            self.move(link, reach)

    def tell(self) -> list[Message]:
        """What changed; no message if nothing did."""
        changes = self.ledger.changes()
        if not changes:
            return []
        self.seq += 1
        return [Message("changes", self.incarnation, self.seq, changes=changes)]

    def stand(self) -> Message:
        return Message("stand", self.incarnation, self.seq)

    def snapshot(self) -> list[Message]:
        """What holds, cut after all changes were told; in parts of few facts."""
        whole = self.ledger.whole()
        batches = [
            FactChanges(hbm=FactBatch(announced=part)) for part in _parts(whole.hbm.announced)
        ] + [
            FactChanges(any_tier=FactBatch(announced=part))
            for part in _parts(whole.any_tier.announced)
        ]
        batches = batches or [NOTHING]
        return [
            Message("snapshot", self.incarnation, self.seq, part, len(batches), changes)
            for part, changes in enumerate(batches)
        ]

    @property
    def holds(self) -> dict[int, Reach]:
        return {link: reach for link, reach in self.reach.items() if reach is not Reach.NOT}


class FactHearer:
    """A gateway's fold and index of that engine."""

    def __init__(self) -> None:
        self.stream = FactStream()
        self.index = PrefixIndexTwin(256 * 64)

    def hear(self, message: Message) -> None:
        match message.kind:
            case "changes":
                deeds = self.stream.changes(
                    message.incarnation, message.seq, cleared=message.changes.cleared
                )
            case "snapshot":
                deeds = self.stream.snapshot(
                    message.incarnation, message.seq, message.part, message.parts
                )
            case _:
                deeds = self.stream.stand(message.incarnation, message.seq)
        for deed in deeds:
            self.do(deed, message)

    def do(self, deed: Deed, message: Message) -> None:
        index, changes = self.index, message.changes
        match deed:
            case Deed.CLEAR:
                index.clear(ENGINE_NUMBER)
            case Deed.APPLY:
                for batch, tier in ((changes.hbm, HBM), (changes.any_tier, ANY_TIER)):
                    index.apply(ENGINE_NUMBER, batch.announced, batch.withdrawn, tier)
            case Deed.BEGIN:
                index.snapshot_begin(ENGINE_NUMBER, message.seq)
            case Deed.PART:
                for batch, tier in ((changes.hbm, HBM), (changes.any_tier, ANY_TIER)):
                    assert index.snapshot_part(ENGINE_NUMBER, message.seq, batch.announced, tier)
            case Deed.END:
                assert index.snapshot_end(ENGINE_NUMBER, message.seq)

    def holds(self, links: range) -> dict[int, Reach]:
        """What the index credits."""
        found = {}
        for link in links:
            in_hbm, in_any = self.index.lookup(WITHDRAWN.pack(link))
            if in_any:
                found[link] = Reach.HBM if in_hbm else Reach.LOWER
        return found


def _parts(announced: bytes) -> list[bytes]:
    size = PART_FACTS * ANNOUNCED.size
    return [announced[at : at + size] for at in range(0, len(announced), size)]
