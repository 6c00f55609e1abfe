"""The admin REST API's shapes: what `/admin/v1` takes and gives, and its problems (RFC 9457).

Input is strict: no coercion, no unknown field. Answers may get more fields, which a client that
does not know them leaves out. What the server alone can say (`READ_ONLY`) may stand in a body, as
it does in one that came from a GET, and is not looked at. What a gateway sees of nodes has its
shapes in `wire.views`.
"""

from __future__ import annotations

from math import isfinite
from typing import Annotated, Any, Generic, TypeVar

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, model_validator
from pydantic_core import PydanticCustomError

from axiom_common.errors import InvalidInputError
from axiom_common.model.access import ApiKey, Role
from axiom_common.model.adapter import REVISION_MAX, SIZE_BYTES_MAX, AdapterSpec, BaseModelSpec
from axiom_common.model.decision import Term
from axiom_common.model.ids import NAME_MAX, NAME_PATTERN
from axiom_common.policy.profile import WEIGHT_MAX, Profile
from axiom_common.wire.desired import Stored

PROBLEM_MEDIA_TYPE = "application/problem+json"
MERGE_PATCH_MEDIA_TYPE = "application/merge-patch+json"
BODY_BYTES_MAX = 1 << 20
PAGE_MAX = 1000
PAGE_DEFAULT = 100
CURSOR_MAX = 8192
"""Of what is sorted by, the longest is a path of 1,024 characters."""
FILTERS_MAX = 8
FILTER_MAX = 512
FILTER_OPS = ("!=", "<=", ">=", "=", "<", ">", "~")
"""Between a filter's field and its value, in the order in which they are looked for. `~` is
contains."""

PublicName = Annotated[str, Field(pattern=f"^{NAME_PATTERN}$", max_length=NAME_MAX)]
Revision = Annotated[int, Field(ge=1, le=REVISION_MAX, json_schema_extra={"readOnly": True})]
Version = Annotated[int, Field(ge=0, json_schema_extra={"readOnly": True})]
StalenessMs = Annotated[float, Field(ge=0.0, json_schema_extra={"readOnly": True})]
"""How long ago this gateway was last in touch with what it tells of; 0: it is now."""

READ_ONLY = frozenset(
    {
        "version",
        "staleness_ms",
        "revision",
        "base_model_known",
        "built_in",
        "created_ms",
        "without",
    }
)


class Shape(BaseModel):
    """What all answers are: frozen, strict."""

    model_config = ConfigDict(frozen=True, strict=True)


class Body(Shape):
    """What is taken: the fields that people write, and nothing else but those of `READ_ONLY`."""

    model_config = ConfigDict(extra="forbid")

    name: PublicName | None = None
    """If given, the one of the path."""

    @model_validator(mode="before")
    @classmethod
    def _without_read_only(cls, given: Any) -> Any:
        if isinstance(given, dict):
            return {name: value for name, value in given.items() if name not in READ_ONLY}
        return given

    def name_like(self, name: str) -> str:
        """The name in the path; InvalidInputError when this body has another one."""
        if self.name is not None and self.name != name:
            message = f"name is {self.name!r} but the path says {name!r}"
            raise InvalidInputError(message, path="name")
        return name


class DeclaredShape(Shape):
    """What all declared objects have beside what people wrote."""

    name: PublicName
    version: Version
    staleness_ms: StalenessMs = 0.0


I = TypeVar("I", bound=Shape)  # noqa: E741 - the item of a list


class Page(Shape, Generic[I]):
    """A part of a list. `next` goes into `?cursor=` for the part behind it; null: this was the last
    one."""

    items: tuple[I, ...]
    next: str | None = None
    staleness_ms: StalenessMs = 0.0


class AdapterPut(Body):
    """Body of PUT /admin/v1/adapters/{name}."""

    base_model: PublicName
    path: Annotated[str, Field(max_length=1024, pattern=r"^/[^\x00-\x1f\x7f]*$")]
    """On the hosts of engines. Absolute, as agent and engine need not run in one folder."""
    rank: Annotated[int, Field(ge=1, le=1024)]
    size_bytes: Annotated[int, Field(ge=0, le=SIZE_BYTES_MAX)] = 0
    tenant: PublicName = "default"

    def to_spec(self, name: str) -> AdapterSpec:
        """The wanted adapter, its revision still to be assigned; InvalidInputError on a wrong
        name."""
        if self.name_like(name) == self.base_model:
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


class Adapter(DeclaredShape):
    """A declared adapter. Its base model is known when it is declared, or an engine has it."""

    base_model: PublicName
    path: str
    rank: int
    size_bytes: int
    tenant: PublicName
    revision: Revision
    base_model_known: Annotated[bool, Field(json_schema_extra={"readOnly": True})]

    @classmethod
    def of(
        cls,
        stored: Stored[AdapterSpec],
        *,
        base_model_known: bool,
        staleness_ms: float = 0.0,
    ) -> Adapter:
        """The shape of a spec."""
        spec = stored.value
        return cls(
            name=spec.name,
            version=stored.version,
            staleness_ms=staleness_ms,
            base_model=spec.base_model,
            path=spec.path,
            rank=spec.rank,
            size_bytes=spec.size_bytes,
            tenant=spec.tenant,
            revision=spec.revision,
            base_model_known=base_model_known,
        )


class BaseModelPut(Body):
    """Body of PUT /admin/v1/models/{name}."""

    def to_spec(self, name: str) -> BaseModelSpec:
        """The wanted base model; InvalidInputError on a wrong name."""
        return BaseModelSpec(name=self.name_like(name))


class DeclaredModel(DeclaredShape):
    """A declared base model."""

    @classmethod
    def of(cls, stored: Stored[BaseModelSpec], *, staleness_ms: float = 0.0) -> DeclaredModel:
        """The shape of a base model."""
        return cls(name=stored.value.name, version=stored.version, staleness_ms=staleness_ms)


Weight = Annotated[float, Field(ge=0.0, le=WEIGHT_MAX)]


class ProfilePut(Body):
    """Body of PUT /admin/v1/profiles/{name}. A term without a weight has 1."""

    picker: Annotated[str, Field(pattern="^(cost|least-loaded|round-robin)$")] = "cost"
    wait_cap_ms: Annotated[float, Field(gt=0.0, le=3_600_000.0)] = 500.0
    quarantine: bool = True
    weights: dict[Term, Weight] = {}

    def to_profile(self, name: str) -> Profile:
        """The wanted profile; InvalidInputError on a wrong name."""
        return Profile(
            name=self.name_like(name),
            picker=self.picker,
            wait_cap_ms=self.wait_cap_ms,
            weights={term: self.weights.get(term, 1.0) for term in Term},
            quarantine=self.quarantine,
        )


class ProfileView(DeclaredShape):
    """A profile. `wait_cap_ms` null: no cap. One that is built in has version 0 and can't be
    changed."""

    picker: str
    wait_cap_ms: float | None
    quarantine: bool
    weights: dict[str, float]
    built_in: Annotated[bool, Field(json_schema_extra={"readOnly": True})]

    @classmethod
    def of(
        cls, stored: Stored[Profile], *, built_in: bool, staleness_ms: float = 0.0
    ) -> ProfileView:
        """The shape of a profile."""
        profile = stored.value
        return cls(
            name=profile.name,
            version=stored.version,
            staleness_ms=staleness_ms,
            picker=profile.picker,
            wait_cap_ms=profile.wait_cap_ms if isfinite(profile.wait_cap_ms) else None,
            quarantine=profile.quarantine,
            weights={term.value: weight for term, weight in profile.weights.items()},
            built_in=built_in,
        )


def _no_secret(given: Any) -> None:
    if given is not None:
        raise PydanticCustomError("made_here", "secrets are made here, and are none to be given")


NoSecret = Annotated[None, BeforeValidator(_no_secret), Field(json_schema_extra={"readOnly": True})]
"""As in the body of a GET. Another one would be taken for the key's, and not be it."""


class ApiKeyPut(Body):
    """Body of PUT /admin/v1/keys/{name}."""

    role: Role
    tenant: PublicName = "default"
    secret: NoSecret = None


class KeyRotatePost(Shape):
    """Body of POST /admin/v1/keys/{name}:rotate; it may be left out."""

    model_config = ConfigDict(frozen=True, strict=True, extra="forbid")


class ApiKeyView(DeclaredShape):
    """A key. `tenant`: whose its requests are. `secret` is told once: in the answer that made it.
    `without`, in answers to changes: gateways that may be at work and did not confirm it: cut off,
    they go by the keys that they know."""

    role: Role
    tenant: PublicName
    created_ms: int
    secret: str | None = None
    without: tuple[str, ...] = ()

    @classmethod
    def of(
        cls,
        stored: Stored[ApiKey],
        *,
        secret: str | None = None,
        staleness_ms: float = 0.0,
    ) -> ApiKeyView:
        """The shape of a key."""
        key = stored.value
        return cls(
            name=key.name,
            version=stored.version,
            staleness_ms=staleness_ms,
            role=key.role,
            tenant=key.tenant,
            created_ms=key.created_ms,
            secret=secret,
        )


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
    staleness_ms: StalenessMs = 0.0


class Problem(Shape):
    """An error (RFC 9457). `code` is stable; `path` names what it is about: a field of the
    body, dotted, a parameter or a header; else `url`, `method`, `body` or `request`."""

    type: str
    title: str
    status: int
    detail: str
    code: str
    path: str
