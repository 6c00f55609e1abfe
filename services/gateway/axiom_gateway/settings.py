"""Settings of a gateway."""

from __future__ import annotations

import re
import secrets
import socket
from pathlib import Path
from typing import Annotated

from pydantic import BaseModel, ConfigDict, Field, field_validator

from axiom_common.policy.profile import BUILT_IN
from axiom_common.runtime.settings import HttpUrl, Port, PositiveMs, ServiceSettings, Token

Count = Annotated[int, Field(ge=1, le=1_000_000)]


def _own_name() -> str:
    """The host's name and some chance, for two gateways on one host."""
    host = re.sub(r"[^A-Za-z0-9_-]", "-", socket.gethostname())[:40]
    return f"{host}-{secrets.token_hex(4)}"


class PromptSettings(BaseModel):
    """How prompts for one base model become text, so that it is known what each engine holds of it.

    `tokenizer`: the model's folder, or its `tokenizer.json` beside its other files.
    `chat_template`: what its engines are started with as `--chat-template`; without it the model's
    own. Engines must render alike: no default template arguments, content format "auto", and the
    gateway's time zone where a template tells the date.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    base_model: Annotated[str, Field(min_length=1, max_length=128)]
    tokenizer: Path
    chat_template: Path | None = None


class GatewaySettings(ServiceSettings):
    """What one gateway needs to know. All waits and queues are bounded by something here."""

    port: Port = 8080
    """Of the APIs: `/v1` and `/admin/v1`."""
    ops_port: Port = 9101
    """Of health and metrics, which ask for no key."""
    admin_key_file: Path | None = None
    """Holds a secret that this gateway takes for an admin's, whatever keys the registry holds."""
    require_key: bool = False
    """Whether `/v1` takes requests with a key only, of any role."""
    gateway: Token = Field(default_factory=_own_name)
    """Unique in its region: peers and agents know its requests by it."""
    default_profile: str = "axiom"
    allow_profile_header: bool = False
    """Whether a client may choose the profile of its request: for comparisons, not for tenants."""

    body_bytes_max: Annotated[int, Field(ge=1024, le=1 << 30)] = 32 << 20
    body_ms: PositiveMs = 60_000.0
    """Time that a client has to send its body."""
    buffered_bytes_max: Annotated[int, Field(ge=1 << 20)] = 1 << 30
    """Bodies in memory, all together; beyond it requests are refused with 429."""
    requests_max: Count = 8192
    """Requests under way at a time; more are refused with 429."""
    held_max: Count = 1024
    hold_ms: PositiveMs = 15_000.0
    start_ms: PositiveMs = 5_000.0
    """How long a start may wait for what is declared and for what is there, requests with it."""
    ensure_ms: PositiveMs = 30_000.0
    connect_ms: PositiveMs = 1_000.0
    engine_idle_ms: PositiveMs = 300_000.0
    """Longest silence of an engine inside one answer, the wait for its first token included."""
    request_limit_ms: PositiveMs = 3_600_000.0
    drain_ms: PositiveMs = 20_000.0
    decisions_per_s: Annotated[float, Field(ge=1.0, le=100_000.0)] = 100.0
    """Decisions told to the region's stream under load; a sample of all."""
    decisions_queued_max: Count = 1024
    decisions_bytes_max: Annotated[int, Field(ge=1 << 20)] = 256 << 20
    decisions_age_ms: Annotated[float, Field(ge=1_000.0)] = 86_400_000.0
    """Bounds of that stream, if this gateway is the one that makes it."""
    prompts: Annotated[tuple[PromptSettings, ...], Field(max_length=256)] = ()
    """Base models of which it is known what text engines make of a request; of others it is not
    known what engines hold of a prompt."""
    prefix_entries_max: Annotated[int, Field(ge=256, le=100_000_000)] = 1_000_000
    """Chunks of prompts (256 bytes, of long ones 1 kB) that some engine holds, for each of
    `prompts`; over it the deepest are forgotten. Compiled, 30 to 60 bytes of memory each."""
    predicted_ttl_ms: PositiveMs = 60_000.0
    """How long an engine whose agent tells nothing is taken to hold a prompt that it answered."""
    otlp_endpoint: HttpUrl | None = None
    """A collector of traces (OTLP over HTTP), e.g. http://127.0.0.1:4318; none: no traces."""
    trace_ratio: Annotated[float, Field(ge=0.0, le=1.0)] = 0.01
    """How many of the requests are traced whose client does not say."""

    @field_validator("default_profile")
    @classmethod
    def _known_profile(cls, name: str) -> str:
        if name not in BUILT_IN:
            raise ValueError(f"must be one of {', '.join(BUILT_IN)}, got {name[:64]!r}")
        return name

    @field_validator("prompts")
    @classmethod
    def _one_for_each(cls, prompts: tuple[PromptSettings, ...]) -> tuple[PromptSettings, ...]:
        names = [one.base_model for one in prompts]
        twice = next((name for name in names if names.count(name) > 1), None)
        if twice is not None:
            raise ValueError(f"{twice!r} is there twice")
        return prompts
