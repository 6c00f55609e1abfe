"""Adapters: what is declared, and what an engine holds of them."""

from __future__ import annotations

import re
from dataclasses import dataclass
from enum import StrEnum

from axiom_common.errors import InvalidInputError
from axiom_common.model.ids import EngineAdapter, public_name

MEBIBYTE = 1 << 20
_MANAGED = re.compile(r"[^~]~[1-9][0-9]{0,15}\Z")
SIZE_BYTES_MAX = 1 << 40
REVISION_MAX = (1 << 53) - 1


class AdapterState(StrEnum):
    """One adapter on one engine. `absent` is never sent: it is the lack of a record."""

    ABSENT = "absent"
    FETCHING = "fetching"
    LOADING = "loading"
    HOST = "host"
    RESIDENT = "resident"
    DRAINING = "draining"
    UNLOADING = "unloading"
    FAILED = "failed"


class ResidencySource(StrEnum):
    """Where knowledge of residency comes from, best first: Axiom's extension in the engine, the
    engine's own metrics, or inference from what was loaded and seen running."""

    EXTENSION = "extension"
    METRICS = "metrics"
    INFERRED = "inferred"


@dataclass(frozen=True, slots=True, kw_only=True)
class AdapterSpec:
    """A declared adapter. Its identity is (name, revision): a new revision is another adapter.

    `size_bytes` 0 means unknown; rules then use a size computed from the rank.
    """

    name: str
    base_model: str
    revision: int
    path: str
    rank: int
    size_bytes: int = 0
    tenant: str = "default"

    def __post_init__(self) -> None:
        public_name(self.name, path="name")
        public_name(self.base_model, path="base_model")
        if not 1 <= self.revision <= REVISION_MAX:
            raise InvalidInputError(f"revision must lie in 1..{REVISION_MAX}", path="revision")
        if not self.path or len(self.path) > 1024:
            raise InvalidInputError("path must have 1 to 1024 characters", path="path")
        if not 1 <= self.rank <= 1024:
            raise InvalidInputError("rank must lie in 1..1024", path="rank")
        if not 0 <= self.size_bytes <= SIZE_BYTES_MAX:
            raise InvalidInputError(
                f"size_bytes must lie in 0..{SIZE_BYTES_MAX}", path="size_bytes"
            )

    @property
    def engine_name(self) -> EngineAdapter:
        """The adapter's name on every engine."""
        return EngineAdapter(f"{self.name}~{self.revision}")


@dataclass(frozen=True, slots=True, kw_only=True)
class BaseModelSpec:
    """A declared base model: the name that clients and adapters call it by."""

    name: str

    def __post_init__(self) -> None:
        public_name(self.name, path="name")


def is_managed(name: EngineAdapter) -> bool:
    """True for names of the form that Axiom gives; others are people's own, never unloaded."""
    return _MANAGED.search(name) is not None


@dataclass(frozen=True, slots=True, kw_only=True)
class Residency:
    """One adapter on one engine, as last known.

    `in_flight` counts requests that the engine is known to run with it and that no gateway's vector
    tells of (None: unknown): a vector is newer, and comes to who reads this as well.
    `remaining_ms` is the predicted rest of a load that is under way, 0 otherwise.
    `age_ms` is the age of this knowledge when the report was sent.
    """

    adapter: EngineAdapter
    state: AdapterState
    source: ResidencySource
    in_flight: int | None = None
    remaining_ms: float = 0.0
    age_ms: float = 0.0
