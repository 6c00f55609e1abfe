"""What a region's NATS is made of: its servers, its limits, and the public keys of who connects."""

from __future__ import annotations

import base64
from pathlib import Path
from typing import Annotated, Self

import nkeys
import yaml
from pydantic import BaseModel, ConfigDict, Field, ValidationError, field_validator, model_validator

from axiom_common.errors import SettingsError
from axiom_common.runtime.settings import Port, Token

_USER_KEY = r"^U[A-Z2-7]{55}$"
UserKey = Annotated[str, Field(pattern=_USER_KEY)]
"""Public part of a user's nkey."""
UserKeys = Annotated[tuple[UserKey, ...], Field(max_length=16)]
"""Keys that stand for the same user: one, and a second while it is being replaced."""
_Host = Annotated[str, Field(pattern=r"^[A-Za-z0-9.:_-]+$", max_length=253)]
_FileName = Annotated[str, Field(pattern=r'^[^"\\\n]+$', max_length=1024)]
_Bytes = Annotated[int, Field(ge=1024, le=1 << 50)]


class _Part(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


class NatsServer(_Part):
    """One server. `host` is where clients and the other servers find it, `listen` its own address.

    `monitor_port` answers /healthz and /varz, on loopback only.
    """

    name: Token
    host: _Host
    listen: _Host = "0.0.0.0"
    client_port: Port = 4222
    cluster_port: Port = 6222
    monitor_port: Port = 8222


class NatsTls(_Part):
    """Files on each server. Servers know each other by certificates of `ca_file` alone, and with
    `client_certificates` so do clients, beside their nkeys."""

    ca_file: _FileName = "/etc/nats/tls/ca.pem"
    cert_file: _FileName = "/etc/nats/tls/server.pem"
    key_file: _FileName = "/etc/nats/tls/server-key.pem"
    client_certificates: bool = False


class NatsLimits(_Part):
    """What one client may cost a server, and Axiom all of them. A client that takes longer than
    `write_deadline_ms` to receive, or lets more than `pending_bytes` wait, is cut off."""

    connections: Annotated[int, Field(ge=1, le=65_536)] = 4_096
    subscriptions: Annotated[int, Field(ge=1, le=65_536)] = 256
    payload_bytes: _Bytes = 1_114_112
    """1 MiB, the largest record of a bucket, and 64 KiB for its headers."""
    control_line_bytes: _Bytes = 4_096
    pending_bytes: _Bytes = 32 << 20
    write_deadline_ms: Annotated[int, Field(ge=100, le=60_000)] = 5_000
    store_bytes: _Bytes = 8 << 30
    memory_bytes: _Bytes = 256 << 20
    """JetStream's, on each server."""
    buckets: Annotated[int, Field(ge=4, le=1024)] = 16


class NatsKeys(_Part):
    """Who may connect. One user a node; the processes of a service share one.

    `operator` may do anything with Axiom's messages and buckets, `system` sees the servers.
    """

    gateway: UserKeys = ()
    scheduler: UserKeys = ()
    telemetry: UserKeys = ()
    operator: UserKeys = ()
    system: UserKeys = ()
    nodes: dict[Token, UserKeys] = Field(default_factory=dict)

    @field_validator("gateway", "scheduler", "telemetry", "operator", "system")
    @classmethod
    def _are_keys(cls, keys: tuple[str, ...]) -> tuple[str, ...]:
        return _checked(keys)

    @field_validator("nodes")
    @classmethod
    def _nodes_have_keys(cls, nodes: dict[str, tuple[str, ...]]) -> dict[str, tuple[str, ...]]:
        return {node: _checked(keys) for node, keys in nodes.items()}

    @model_validator(mode="after")
    def _nobody_shares_a_key(self) -> Self:
        own = (self.gateway, self.scheduler, self.telemetry, self.operator, self.system)
        every = [key for keys in (*own, *self.nodes.values()) for key in keys]
        if twice := sorted({key for key in every if every.count(key) > 1}):
            raise ValueError(f"key {twice[0]} stands there twice: a key is one user's")
        return self


class NatsTopology(_Part):
    """One region. An odd number of servers, 3 or 5, so that a majority outlives the loss of one.

    `store_dir`: where each server keeps a folder of its own name.
    """

    region: Token
    servers: Annotated[tuple[NatsServer, ...], Field(min_length=1, max_length=5)]
    store_dir: _FileName = "/var/lib/nats"
    tls: NatsTls | None = None
    limits: NatsLimits = NatsLimits()
    keys: NatsKeys = NatsKeys()

    @field_validator("servers")
    @classmethod
    def _majorities(cls, servers: tuple[NatsServer, ...]) -> tuple[NatsServer, ...]:
        if len({server.name for server in servers}) != len(servers):
            raise ValueError("two servers have one name")
        if len(servers) % 2 == 0:
            raise ValueError("an even number of servers outlives no more losses than one less")
        return servers


def read_topology(path: Path) -> NatsTopology:
    """Read a topology.yaml; SettingsError in one line when it is none."""
    try:
        content = yaml.safe_load(path.read_text())
    except (OSError, UnicodeDecodeError, yaml.YAMLError) as error:
        raise SettingsError(f"{path}: {' '.join(str(error).split())}") from error
    if not isinstance(content, dict):
        raise SettingsError(f"{path}: expected a mapping with region, servers and keys")
    try:
        return NatsTopology(**content)
    except ValidationError as error:
        first = error.errors()[0]
        where = ".".join(str(part) for part in first["loc"])
        raise SettingsError(f"{path}: {where}: {first['msg']}") from error


def _checked(keys: tuple[str, ...]) -> tuple[str, ...]:
    """Keys whose check sums fit: a mistyped one would shut its user out."""
    for key in keys:
        body = base64.b32decode(key)
        if nkeys.crc16_checksum(body[:-2]) != body[-2:]:
            raise ValueError(f"{key} is no public nkey: its check sum does not fit")
    return keys
