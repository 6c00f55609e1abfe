"""The admin REST API's shapes: what `/admin/v1` takes and gives, and its problems (RFC 9457).

Input is strict: no coercion, no unknown field. Answers may get more fields, which a client that
does not know them leaves out. What the server alone can say (`revision`,
`base_model_known`) may stand in a body, as it does in one that came from a GET, and is not looked
at.
"""

from __future__ import annotations

from typing import Annotated

from pydantic import BaseModel, ConfigDict, Field

from axiom_common.errors import InvalidInputError
from axiom_common.model.adapter import REVISION_MAX, SIZE_BYTES_MAX, AdapterSpec, BaseModelSpec
from axiom_common.model.engine import EngineState, NodeState, PlanStatus
from axiom_common.model.ids import NAME_MAX, NAME_PATTERN

PROBLEM_MEDIA_TYPE = "application/problem+json"
BODY_BYTES_MAX = 1 << 20
PAGE_MAX = 1000

PublicName = Annotated[str, Field(pattern=f"^{NAME_PATTERN}$", max_length=NAME_MAX)]
Revision = Annotated[int, Field(ge=1, le=REVISION_MAX, json_schema_extra={"readOnly": True})]


class _Shape(BaseModel):
    model_config = ConfigDict(frozen=True, strict=True)


class _Input(_Shape):
    model_config = ConfigDict(extra="forbid")


class AdapterPut(_Input):
    """Body of PUT /admin/v1/adapters/{name}. `name`, if given, must be the one of the path."""

    name: PublicName | None = None
    base_model: PublicName
    path: Annotated[str, Field(min_length=1, max_length=1024, pattern=r"^[^\x00-\x1f\x7f]+$")]
    rank: Annotated[int, Field(ge=1, le=1024)]
    size_bytes: Annotated[int, Field(ge=0, le=SIZE_BYTES_MAX)] = 0
    tenant: PublicName = "default"
    revision: Revision | None = None
    base_model_known: Annotated[bool | None, Field(json_schema_extra={"readOnly": True})] = None

    def to_spec(self, name: str) -> AdapterSpec:
        """The wanted adapter, its revision still to be assigned; InvalidInputError on a wrong
        name."""
        _check_name(name, self.name)
        if name == self.base_model:
            raise InvalidInputError("an adapter is not its own base model", path="base_model")
        return AdapterSpec(
            name=name,
            base_model=self.base_model,
            revision=1,
            path=self.path,
            rank=self.rank,
            size_bytes=self.size_bytes,
            tenant=self.tenant,
        )


class Adapter(_Shape):
    """A declared adapter. Its base model is known when it is declared, or an engine has it."""

    name: PublicName
    base_model: PublicName
    path: str
    rank: int
    size_bytes: int
    tenant: PublicName
    revision: Revision
    base_model_known: bool

    @classmethod
    def of(cls, spec: AdapterSpec, *, base_model_known: bool) -> Adapter:
        """The shape of a spec."""
        return cls(
            name=spec.name,
            base_model=spec.base_model,
            path=spec.path,
            rank=spec.rank,
            size_bytes=spec.size_bytes,
            tenant=spec.tenant,
            revision=spec.revision,
            base_model_known=base_model_known,
        )


class AdapterList(_Shape):
    """A page of adapters by name; `next` goes into `?after=` for the next page."""

    adapters: tuple[Adapter, ...]
    next: str | None = None


class BaseModelPut(_Input):
    """Body of PUT /admin/v1/models/{name}."""

    name: PublicName | None = None

    def to_spec(self, name: str) -> BaseModelSpec:
        """The wanted base model; InvalidInputError on a wrong name."""
        _check_name(name, self.name)
        return BaseModelSpec(name=name)


class DeclaredModel(_Shape):
    """A declared base model."""

    name: PublicName


class ModelList(_Shape):
    """A page of base models by name."""

    models: tuple[DeclaredModel, ...]
    next: str | None = None


class PlanView(_Shape):
    """The plan a node's agent last saw."""

    revision: int
    fence: int
    accepted: bool
    reason: str | None = None

    @classmethod
    def of(cls, plan: PlanStatus) -> PlanView:
        """The shape of a plan's status."""
        return cls(
            revision=plan.revision, fence=plan.fence, accepted=plan.accepted, reason=plan.reason
        )


class NodeView(_Shape):
    """A node as the answering gateway sees it. `heard_age_ms`: since its last report."""

    region: str
    node: str
    incarnation: int
    seq: int
    heard_age_ms: float | None
    liveness: str
    engines: tuple[str, ...]
    plan: PlanView | None = None

    @classmethod
    def of(cls, state: NodeState, *, liveness: str, heard_age_ms: float | None) -> NodeView:
        """The shape of a node's state."""
        return cls(
            region=state.region,
            node=state.node,
            incarnation=state.incarnation,
            seq=state.seq,
            heard_age_ms=heard_age_ms,
            liveness=liveness,
            engines=tuple(sorted(e.engine for e in state.engines)),
            plan=PlanView.of(state.plan) if state.plan else None,
        )


class NodeList(_Shape):
    """All nodes, by region and name."""

    nodes: tuple[NodeView, ...]


class ResidentView(_Shape):
    """One adapter on one engine; `source` says how this is known."""

    adapter: str
    state: str
    source: str
    in_flight: int | None = None
    age_ms: float


class EngineView(_Shape):
    """An engine as its agent reports it. Residents in its LRU order, oldest first."""

    region: str
    node: str
    engine: str
    url: str
    base_model: str
    status: str
    running: int
    waiting: int
    kv_usage: float | None
    hbm_slots: int
    host_slots: int
    max_lora_rank: int
    residents: tuple[ResidentView, ...]

    @classmethod
    def of(cls, node: NodeState, engine: EngineState) -> EngineView:
        """The shape of one engine of a node."""
        return cls(
            region=node.region,
            node=node.node,
            engine=engine.engine,
            url=engine.url,
            base_model=engine.base_model,
            status=engine.status,
            running=engine.running,
            waiting=engine.waiting,
            kv_usage=engine.kv_usage,
            hbm_slots=engine.limits.hbm_slots,
            host_slots=engine.limits.host_slots,
            max_lora_rank=engine.limits.max_lora_rank,
            residents=tuple(
                ResidentView(
                    adapter=r.adapter,
                    state=r.state,
                    source=r.source,
                    in_flight=r.in_flight,
                    age_ms=r.age_ms,
                )
                for r in engine.residents
            ),
        )


class EngineList(_Shape):
    """All engines, by region and id."""

    engines: tuple[EngineView, ...]


class RegionStatus(_Shape):
    """Counts of one region, what is degraded there, and the age of the view in ms."""

    nodes: int
    engines: int
    adapters: int
    degraded: tuple[str, ...]
    view_age_ms: float | None


class Status(_Shape):
    """What `axiom status --json` prints."""

    regions: dict[str, RegionStatus]


class Problem(_Shape):
    """An error (RFC 9457). `code` is stable; `path` names the offending field, dotted."""

    type: str
    title: str
    status: int
    detail: str
    code: str
    path: str | None = None


def _check_name(name: str, given: str | None) -> None:
    if given is not None and given != name:
        raise InvalidInputError(f"name is {given!r} but the path says {name!r}", path="name")
