"""Desired state as it lies in the registry: one JSON record a key, typed, versioned and bounded.

A record says its kind (`type`) and holds the declared value whole. Types are not coerced and the
invariants of the model hold; like a bus message a record tolerates added fields, so that an older
reader still sees the part it knows. The key must be the one that the value's name gives.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Generic, TypeVar

import msgspec

from axiom_common.errors import AxiomError, WireError
from axiom_common.model.access import ApiKey
from axiom_common.model.adapter import AdapterSpec, BaseModelSpec
from axiom_common.model.decision import Term
from axiom_common.model.engine_order import EngineOrder
from axiom_common.model.tenant import Tenant
from axiom_common.policy.profile import Profile
from axiom_common.wire import keys

VERSION = 1
RECORD_BYTES_MAX = 64 << 10

Declared = AdapterSpec | BaseModelSpec | Tenant | Profile | ApiKey | EngineOrder
"""What people declare. Each has a `name`, unique among its kind."""

V_co = TypeVar("V_co", covariant=True)
T = TypeVar("T", AdapterSpec, BaseModelSpec, Tenant, Profile, ApiKey, EngineOrder)


@dataclass(frozen=True, slots=True)
class Stored(Generic[V_co]):
    """A declared value and the registry's version of its record."""

    value: V_co
    version: int


class AdapterRecord(msgspec.Struct, frozen=True, kw_only=True, tag="adapter"):
    """A declared adapter with the revision that its writer assigned."""

    v: int = VERSION
    adapter: AdapterSpec


class BaseModelRecord(msgspec.Struct, frozen=True, kw_only=True, tag="base-model"):
    """A declared base model."""

    v: int = VERSION
    base_model: BaseModelSpec


class TenantRecord(msgspec.Struct, frozen=True, kw_only=True, tag="tenant"):
    """A tenant."""

    v: int = VERSION
    tenant: Tenant


class ProfileRecord(msgspec.Struct, frozen=True, kw_only=True, tag="profile"):
    """A declared profile. A term that the reader does not know is left out, one that the writer did
    not know counts as it is: 1."""

    v: int = VERSION
    name: str
    picker: str
    wait_cap_ms: float
    weights: dict[str, float]
    quarantine: bool

    @property
    def profile(self) -> Profile:
        """The value."""
        return Profile(
            name=self.name,
            picker=self.picker,
            wait_cap_ms=self.wait_cap_ms,
            weights={term: self.weights.get(term.value, 1.0) for term in Term},
            quarantine=self.quarantine,
        )


class ApiKeyRecord(msgspec.Struct, frozen=True, kw_only=True, tag="api-key"):
    """A key, without its secret."""

    v: int = VERSION
    api_key: ApiKey


class EngineOrderRecord(msgspec.Struct, frozen=True, kw_only=True, tag="engine-order"):
    """An order of an engine that is in force."""

    v: int = VERSION
    engine_order: EngineOrder


class RevisionFloor(msgspec.Struct, frozen=True, kw_only=True, tag="revision-floor"):
    """The highest revision of any adapter that was removed.

    Without it an adapter declared again after its removal would start at revision 1 and be taken
    for the weights that engines may still hold under that identity.
    """

    v: int = VERSION
    revision: int


Record = (
    AdapterRecord
    | BaseModelRecord
    | TenantRecord
    | ProfileRecord
    | ApiKeyRecord
    | EngineOrderRecord
    | RevisionFloor
)

_ENCODER = msgspec.json.Encoder()
_DECODER = msgspec.json.Decoder(Record)
_PREFIXES: dict[type[Declared], str] = {
    AdapterSpec: keys.ADAPTER_PREFIX,
    BaseModelSpec: keys.BASE_MODEL_PREFIX,
    Tenant: keys.TENANT_PREFIX,
    Profile: keys.PROFILE_PREFIX,
    ApiKey: keys.API_KEY_PREFIX,
    EngineOrder: keys.ENGINE_ORDER_PREFIX,
}


def key_for(kind: type[Declared], name: str) -> str:
    """The registry key of what has this name among its kind."""
    return keys.desired_key(_PREFIXES[kind], name)


def key_of(declared: Declared) -> str:
    """The registry key of a declared value."""
    return key_for(type(declared), declared.name)


def encode(declared: Declared) -> bytes:
    """The JSON record of a declared value."""
    return _ENCODER.encode(_record(declared))


def decode(key: str, payload: bytes) -> Declared | None:
    """The value declared under `key`; None for a key of another kind (settings, later kinds).

    WireError when the record does not parse, breaks a bound or belongs under another key.
    """
    if not key.startswith(tuple(_PREFIXES.values())):
        return None
    try:
        declared = _value(_decode(payload))
    except AxiomError as error:
        raise WireError(f"{key[:80]!r}: {error}") from error
    if key_of(declared) != key:
        raise WireError(f"{key[:80]!r} holds the record of {key_of(declared)!r}")
    return declared


def encode_floor(revision: int) -> bytes:
    """The record under `keys.ADAPTER_REVISION_FLOOR`."""
    return _ENCODER.encode(RevisionFloor(revision=revision))


def decode_floor(payload: bytes) -> int:
    """The floor; WireError when the record is none."""
    record = _decode(payload)
    if not isinstance(record, RevisionFloor) or record.revision < 0:
        raise WireError("not a revision floor")
    return record.revision


def _record(declared: Declared) -> Record:
    match declared:
        case AdapterSpec():
            return AdapterRecord(adapter=declared)
        case BaseModelSpec():
            return BaseModelRecord(base_model=declared)
        case Tenant():
            return TenantRecord(tenant=declared)
        case ApiKey():
            return ApiKeyRecord(api_key=declared)
        case EngineOrder():
            return EngineOrderRecord(engine_order=declared)
        case Profile():
            return ProfileRecord(
                name=declared.name,
                picker=declared.picker,
                wait_cap_ms=declared.wait_cap_ms,
                weights={term.value: weight for term, weight in declared.weights.items()},
                quarantine=declared.quarantine,
            )


def _value(record: Record) -> Declared:
    match record:
        case AdapterRecord():
            return record.adapter
        case BaseModelRecord():
            return record.base_model
        case TenantRecord():
            return record.tenant
        case ProfileRecord():
            return record.profile
        case ApiKeyRecord():
            return record.api_key
        case EngineOrderRecord():
            return record.engine_order
        case RevisionFloor():
            raise WireError("a revision floor")


def _decode(payload: bytes) -> Record:
    if len(payload) > RECORD_BYTES_MAX:
        raise WireError(f"record of {len(payload)} bytes is above {RECORD_BYTES_MAX}")
    try:
        record = _DECODER.decode(payload)
    except (msgspec.MsgspecError, AxiomError, ValueError, TypeError, RecursionError) as error:
        raise WireError(f"not a record of desired state: {error}") from error
    if record.v != VERSION:
        raise WireError(f"version {record.v} is not {VERSION}")
    return record
