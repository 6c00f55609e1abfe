"""What is kept of a write that came with an idempotency key, as JSON in the registry.

While the write is under way the record holds what it asks; then also how it was answered.
"""

from __future__ import annotations

import msgspec

from axiom_common.errors import WireError

VERSION = 1
BODY_BYTES_MAX = 64 << 10
"""Of an answer that is kept."""
BUCKET_BYTES_MAX = 64 << 20
"""Of all that is kept in a region: of a usual answer of 1 KiB some 50,000. The oldest make room, so
that no write fails for the records of others."""


class KeptAnswer(msgspec.Struct, frozen=True, kw_only=True):
    """An answer without its secrets. Names of headers in lower case."""

    status: int
    headers: dict[str, str]
    body: str


class RequestRecord(msgspec.Struct, frozen=True, kw_only=True, tag="request"):
    """One write. `asked` is a digest of what it asks for; `answer` None: it is under way."""

    v: int = VERSION
    asked: str
    answer: KeptAnswer | None = None


_ENCODER = msgspec.json.Encoder()
_DECODER = msgspec.json.Decoder(RequestRecord)


def encode(record: RequestRecord) -> bytes:
    """The JSON record."""
    return _ENCODER.encode(record)


def decode(payload: bytes) -> RequestRecord:
    """The record; WireError when it does not parse."""
    try:
        return _DECODER.decode(payload)
    except (msgspec.MsgspecError, UnicodeDecodeError) as error:
        raise WireError(f"no record of a request: {error}") from error
