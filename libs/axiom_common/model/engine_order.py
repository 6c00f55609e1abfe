"""What an operator ordered of an engine."""

from __future__ import annotations

import re
from dataclasses import dataclass
from enum import StrEnum

from axiom_common.errors import InvalidInputError
from axiom_common.model.ids import EngineId, RegionId, engine_id, token

NOTE_MAX = 200
NOTE_PATTERN = r"^[^\x00-\x1f\x7f-\x9f]*$"
_NOTE = re.compile(NOTE_PATTERN)


class OrderKind(StrEnum):
    """Both keep new requests away and let those under way end. `cordon`: adapters stay at home on
    the engine. `drain`: their homes move elsewhere, so that the engine can go."""

    CORDON = "cordon"
    DRAIN = "drain"


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineOrder:
    """In force until it is released, whether the engine is there or not. `note` is the operator's
    own word on why."""

    region: RegionId
    engine: EngineId
    kind: OrderKind
    note: str = ""

    def __post_init__(self) -> None:
        token(self.region, path="region")
        node, _, engine = self.engine.partition(".")
        engine_id(node, engine)
        if len(self.note) > NOTE_MAX or not _NOTE.fullmatch(self.note):
            message = f"note must have at most {NOTE_MAX} characters, no control character"
            raise InvalidInputError(message, path="note")

    @property
    def name(self) -> str:
        """Unique among all regions."""
        return f"{self.region}.{self.engine}"
