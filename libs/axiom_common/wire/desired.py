"""Desired state as it lies in the registry: one JSON record a key, typed, versioned and bounded.

A record says its kind (`type`) and holds the declared value whole. Types are not coerced and the
invariants of the model hold; like a bus message a record tolerates added fields, so that an older
reader still sees the part it knows. The key must be the one that the value's name gives.
"""

from __future__ import annotations

import msgspec

from axiom_common.errors import AxiomError, WireError
from axiom_common.model.adapter import AdapterSpec, BaseModelSpec
from axiom_common.model.tenant import Tenant
from axiom_common.wire import keys

VERSION = 1
RECORD_BYTES_MAX = 64 << 10

Declared = AdapterSpec | BaseModelSpec | Tenant
"""What people declare."""


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


class RevisionFloor(msgspec.Struct, frozen=True, kw_only=True, tag="revision-floor"):
    """The highest revision of any adapter that was removed.

    Without it an adapter declared again after its removal would start at revision 1 and be taken
    for the weights that engines may still hold under that identity.
    """

    v: int = VERSION
    revision: int


Record = AdapterRecord | BaseModelRecord | TenantRecord | RevisionFloor

_ENCODER = msgspec.json.Encoder()
_DECODER = msgspec.json.Decoder(Record)


def key_of(declared: Declared) -> str:
    """The registry key of a declared value."""
    if isinstance(declared, AdapterSpec):
        return keys.adapter_key(declared.name)
    if isinstance(declared, BaseModelSpec):
        return keys.base_model_key(declared.name)
    return keys.tenant_key(declared.name)


def encode(declared: Declared) -> bytes:
    """The JSON record of a declared value."""
    if isinstance(declared, AdapterSpec):
        return _ENCODER.encode(AdapterRecord(adapter=declared))
    if isinstance(declared, BaseModelSpec):
        return _ENCODER.encode(BaseModelRecord(base_model=declared))
    return _ENCODER.encode(TenantRecord(tenant=declared))


def decode(key: str, payload: bytes) -> Declared | None:
    """The value declared under `key`; None for a key of another kind (settings, later kinds).

    WireError when the record does not parse, breaks a bound or belongs under another key.
    """
    if not key.startswith((keys.ADAPTER_PREFIX, keys.BASE_MODEL_PREFIX, keys.TENANT_PREFIX)):
        return None
    record = _decode(payload)
    if isinstance(record, RevisionFloor):
        raise WireError(f"{key[:80]!r} holds a revision floor")
    declared = _value(record)
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


def _value(record: AdapterRecord | BaseModelRecord | TenantRecord) -> Declared:
    if isinstance(record, AdapterRecord):
        return record.adapter
    if isinstance(record, BaseModelRecord):
        return record.base_model
    return record.tenant


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
