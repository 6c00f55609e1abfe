"""The messages of Axiom's vLLM extension as they are read: types, bounds, and decoding.

libs/axiom_vllm/README.md describes them. Unknown keys are ignored.
"""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated, TypeVar

import msgspec

from axiom_common.errors import WireError

DATAGRAM_BYTES_MAX = 1 << 18
STATE_BYTES_MAX = 16 << 20
_ENTRIES_MAX = 1 << 16

_T = TypeVar("_T")
_Name = Annotated[str, msgspec.Meta(max_length=1024)]
_Number = Annotated[int, msgspec.Meta(ge=0, le=1 << 53)]
_Numbers = Annotated[list[_Number], msgspec.Meta(max_length=_ENTRIES_MAX)]


class AdapterEventKind(StrEnum):
    """What happened to a copy of an adapter."""

    FREED = "freed"
    DROPPED = "dropped"
    LOADED = "loaded"
    ACTIVATED = "activated"


class Event(msgspec.Struct):
    """One copy came or left; the engine's loop spent `ms` on it."""

    op: AdapterEventKind
    id: _Number
    ms: float = 0.0


class Sent(msgspec.Struct, kw_only=True, tag_field="kind"):
    """One numbered message of one process's life; `at_ms` is unix time."""

    instance: _Name
    seq: _Number
    at_ms: float


class Residency(Sent, tag="residency"):
    """What one rank's worker holds; `names` of numbers not named before, or of all if `whole`."""

    rank: _Number
    whole: bool
    hbm_slots: _Number
    host_slots: _Number
    hbm: _Numbers
    host: _Numbers
    pinned: _Numbers
    names: dict[_Number, _Name]
    events: Annotated[list[Event], msgspec.Meta(max_length=_ENTRIES_MAX)]


class Count(msgspec.Struct):
    """One adapter's requests."""

    in_flight: _Number


class Requests(Sent, tag="requests"):
    """Requests in flight in one API server; `whole`: all others have none."""

    whole: bool
    adapters: dict[_Name, Count]


class Registered(msgspec.Struct):
    """What a name stands for."""

    id: _Number
    path: str


class Names(Sent, tag="names"):
    """All names of one API server."""

    registered: dict[_Name, Registered]


class Unsupported(Sent, tag="unsupported"):
    """The extension is off."""

    reason: _Name
    detail: str = ""


class State(msgspec.Struct):
    """The answer to GET /axiom/v1/state."""

    supported: bool
    reason: str = ""
    detail: str = ""
    residency: Residency | None = None
    requests: Requests | None = None
    names: Names | None = None


Message = Residency | Requests | Names | Unsupported
_DATAGRAM = msgspec.json.Decoder(Message)
_STATE = msgspec.json.Decoder(State)


def read_datagram(datagram: bytes) -> Message:
    """One datagram; WireError when it is none of ours."""
    return _decoded(_DATAGRAM, datagram, DATAGRAM_BYTES_MAX)


def read_state(body: bytes) -> State:
    """One answer; WireError when it is none."""
    return _decoded(_STATE, body, STATE_BYTES_MAX)


def _decoded(decoder: msgspec.json.Decoder[_T], body: bytes, bytes_max: int) -> _T:
    if len(body) > bytes_max:
        raise WireError(f"a message above {bytes_max} bytes")
    try:
        return decoder.decode(body)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise WireError(f"not a message of the extension: {error}") from error
