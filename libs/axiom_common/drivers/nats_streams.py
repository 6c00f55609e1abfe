"""The streams beneath the registry's buckets: how they are made, opened and counted.

A stream whose store was lost is made anew and counts from 1 again, but incarnations and fences must
go on growing. So a revision is the stream's life, from its moment of creation, plus the sequence
number. It grows unless the server's clock goes back between two lives, or a stream takes more than
2^10 writes per ms of its life; and it stays below 2^53, exact as a double, until the year 2248.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime
from typing import cast

import nats.js.errors
from nats.js import JetStreamContext
from nats.js.api import DiscardPolicy, RePublish, StorageType, StreamConfig, StreamInfo

from axiom_common.drivers.nats_connection import Session
from axiom_common.errors import UnavailableError

MARKER_TTL_S = 60.0
"""How long the server keeps the marker of an expired record."""
DUPLICATE_WINDOW_S = 120.0
VALUE_BYTES_MAX = 1 << 20
LIFE_SHIFT = 10
"""Bits of a revision below the ms of the stream's creation."""

_OTHER_CONFIGURATION = 10058


@dataclass(frozen=True, slots=True, kw_only=True)
class Way:
    """How a process uses its buckets; `NatsRegistry` says what each field means."""

    replicas: int
    domain: str | None
    direct: bool
    timeout_s: float


@dataclass(frozen=True, slots=True)
class Stream:
    """A bucket's stream as one session opened it. A revision is `life` plus sequence number."""

    session: Session
    jetstream: JetStreamContext
    life: int


def changed_on(bucket: str, key: str) -> str:
    """Where the server says, once, that a record was written: a message without the record."""
    return f"KV_CHANGED.{bucket}.{key}"


def bucket_config(
    bucket: str, *, replicas: int, lasting: bool, bytes_max: int | None
) -> StreamConfig:
    """A KV bucket with one record a key. Where records expire, the server leaves markers, and for
    those it allows roll-up: who may write one key can have it drop all others then."""
    records = f"$KV.{bucket}.>"
    return StreamConfig(
        name=f"KV_{bucket}",
        subjects=[records],
        max_msgs_per_subject=1,
        max_msg_size=VALUE_BYTES_MAX,
        max_bytes=bytes_max,
        discard=DiscardPolicy.NEW if bytes_max is None else DiscardPolicy.OLD,
        republish=RePublish(src=records, dest=changed_on(bucket, ">"), headers_only=True),
        storage=StorageType.FILE,
        num_replicas=replicas,
        duplicate_window=DUPLICATE_WINDOW_S,
        allow_rollup_hdrs=False,
        deny_delete=True,
        deny_purge=lasting,
        allow_direct=True,
        allow_msg_ttl=not lasting,
        subject_delete_marker_ttl=None if lasting else MARKER_TTL_S,
    )


async def open_stream(
    session: Session, name: str, way: Way, *, config: Callable[[], StreamConfig]
) -> Stream:
    """Open stream `name`, and make it where it is missing and may be made: with a domain it may
    not, which is an UnavailableError. Any of CONNECTION_ERRORS when the server does not do it."""
    jetstream = session.client.jetstream(timeout=way.timeout_s, domain=way.domain)
    try:
        info = await jetstream.stream_info(name)
    except nats.js.errors.NotFoundError as error:
        if way.domain is not None:
            raise UnavailableError(
                f"stream {name} is not there yet: those who write its bucket make it"
            ) from error
        await _make(jetstream, config())
        info = await jetstream.stream_info(name)
    return Stream(session, jetstream, life_of(info))


def life_of(info: StreamInfo) -> int:
    """What revisions of this life of a stream begin at."""
    # JetStream tells it of each stream.
    created = cast("datetime", info.created)
    return int(created.timestamp() * 1e3) << LIFE_SHIFT


async def _make(jetstream: JetStreamContext, config: StreamConfig) -> None:
    try:
        await jetstream.add_stream(config)
    except nats.js.errors.BadRequestError as error:
        # Somebody was faster, with more replicas for example: theirs is as good.
        if error.err_code != _OTHER_CONFIGURATION:
            raise
