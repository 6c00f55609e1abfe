"""The admin REST API's shapes: what `/admin/v1` takes and gives, and its problems (RFC 9457).

Input is strict: no coercion, no unknown field. Answers may get more fields, which a client that
does not know them leaves out. What the server alone can say (`revision`,
`base_model_known`) may stand in a body, as it does in one that came from a GET, and is not looked
at. What a gateway sees of nodes has its shapes in `wire.views`.
"""

from __future__ import annotations

from typing import Annotated

from pydantic import BaseModel, ConfigDict, Field

from axiom_common.errors import InvalidInputError
from axiom_common.model.adapter import REVISION_MAX, SIZE_BYTES_MAX, AdapterSpec, BaseModelSpec
from axiom_common.model.ids import NAME_MAX, NAME_PATTERN

PROBLEM_MEDIA_TYPE = "application/problem+json"
BODY_BYTES_MAX = 1 << 20
PAGE_MAX = 1000

PublicName = Annotated[str, Field(pattern=f"^{NAME_PATTERN}$", max_length=NAME_MAX)]
Revision = Annotated[int, Field(ge=1, le=REVISION_MAX, json_schema_extra={"readOnly": True})]


class Shape(BaseModel):
    """What all answers are: frozen, strict."""

    model_config = ConfigDict(frozen=True, strict=True)


class _Input(Shape):
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


class Adapter(Shape):
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


class AdapterList(Shape):
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


class DeclaredModel(Shape):
    """A declared base model."""

    name: PublicName


class ModelList(Shape):
    """A page of base models by name."""

    models: tuple[DeclaredModel, ...]
    next: str | None = None


class RegionStatus(Shape):
    """Counts of one region, what is degraded there, and the age of the view in ms."""

    nodes: int
    engines: int
    adapters: int
    degraded: tuple[str, ...]
    view_age_ms: float | None


class Status(Shape):
    """What `axiom status --json` prints."""

    regions: dict[str, RegionStatus]


class Problem(Shape):
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
