"""The admin API's shapes of engines' orders: what the verbs of an engine take and give."""

from __future__ import annotations

from typing import Annotated

from pydantic import ConfigDict, Field

from axiom_common.model.engine_order import NOTE_MAX, NOTE_PATTERN
from axiom_common.wire.rest import Shape


class EngineOrderPost(Shape):
    """Body of POST /admin/v1/engines/{engine}:cordon and :drain; it may be left out. `note`: why,
    null: as it stands. `force`: also the last engine of its base model."""

    model_config = ConfigDict(extra="forbid")

    note: Annotated[str, Field(max_length=NOTE_MAX, pattern=NOTE_PATTERN)] | None = None
    force: bool = False


class EngineReleasePost(Shape):
    """Body of POST /admin/v1/engines/{engine}:release; it may be left out."""

    model_config = ConfigDict(extra="forbid")


class EngineOrderView(Shape):
    """What is ordered of an engine by now, at which version of its record (null: nothing is).

    `in_flight` counts the requests of all gateways there. `idle`: those are none, and the engine
    itself reports none since; null: that is not known (yet). `without`: gateways that may be at
    work and did not confirm the order: cut off, they go on as before.
    """

    region: str
    engine: str
    order: str | None
    note: str | None
    version: int | None
    in_flight: int
    idle: bool | None
    without: tuple[str, ...] = ()
