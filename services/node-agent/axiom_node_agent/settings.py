"""Settings of the node agent: one GPU host and the engines on it."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field, field_validator, model_validator

from axiom_common.model.engine import EngineLimits, EngineState, EngineStatus, LinkModel, Role
from axiom_common.model.ids import NodeId, engine_id
from axiom_common.ports.engine import VLLM
from axiom_common.runtime.settings import HttpUrl, Port, PositiveMs, ServiceSettings, Token
from axiom_common.wire.bounds import ENGINES_MAX, RESIDENTS_MAX
from axiom_common.wire.reports import BEAT_MS

_Slots = Annotated[int, Field(ge=0, le=RESIDENTS_MAX)]
_Ms = Annotated[float, Field(ge=0, le=3_600_000)]
_Directory = Annotated[str, Field(pattern=r"^/", max_length=1024)]
_Gbps = Annotated[float, Field(gt=0, le=100_000)]


class _Part(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


class LinkSettings(_Part):
    """How fast adapters reach HBM, in GB/s and ms: first guesses, corrected by what is measured."""

    h2d_fixed_ms: _Ms = LinkModel().h2d_fixed_ms
    h2d_gbps: _Gbps = LinkModel().h2d_gbps
    store_fixed_ms: _Ms = LinkModel().store_fixed_ms
    store_gbps: _Gbps = LinkModel().store_gbps


class EngineSettings(_Part):
    """One engine. `base_model` is the fleet's name for what it serves, by default the engine's own.

    `host_slots`, `max_lora_rank` and `max_num_seqs` must be what the engine was started with: it
    does not tell them. `hbm_slots` counts until the engine tells its own (it does from its first
    request for an adapter on); without it no adapter is placed there before.

    `kind`: which server it is. Of SGLang, `host_slots` is its `--max-loaded-loras`.

    `extension_socket`: where the agent listens to Axiom's extension in the engine, whose
    AXIOM_AGENT_SOCKET says the same path; without it the agent does not listen.
    `extension_token_file` holds the engine's AXIOM_AGENT_TOKEN.

    `tokenizer`: the base model's folder or its tokenizer.json, the very file that gateways have.
    With it the agent follows the KV events of a vLLM and tells what texts its cache holds.
    """

    name: Token
    url: Annotated[str, Field(pattern=r"^https?://[^\s/]+/?$", max_length=512)]
    kind: Literal["vllm", "sglang"] = VLLM
    base_model: Annotated[str, Field(max_length=128)] = ""
    hbm_slots: _Slots = 0
    host_slots: _Slots = 0
    max_lora_rank: Annotated[int, Field(ge=0, le=1024)] = 16
    max_num_seqs: Annotated[int, Field(ge=1, le=100_000)] = 256
    role: Role = Role.BOTH
    gpus: tuple[Annotated[int, Field(ge=0)], ...] = ()
    link: LinkSettings = LinkSettings()
    extension_socket: Annotated[str, Field(pattern=r"^(/[ -~]+)?$", max_length=100)] = ""
    extension_token_file: Path | None = None
    tokenizer: Path | None = None

    @model_validator(mode="after")
    def _can_tell_facts(self) -> EngineSettings:
        if self.tokenizer is not None and self.kind != VLLM:
            raise ValueError("tokenizer: only a vllm tells what its KV cache holds")
        if self.tokenizer is not None and not self.base_model:
            raise ValueError("tokenizer: gateways know the tokenizer by base_model, so set that")
        return self

    def declared(self, node: NodeId) -> EngineState:
        """The engine as a report shows it before it was heard."""
        return EngineState(
            engine=engine_id(node, self.name),
            url=self.url.rstrip("/"),
            base_model=self.base_model,
            served_name="",
            kind=self.kind,
            status=EngineStatus.STARTING,
            role=self.role,
            limits=EngineLimits(
                max_num_seqs=self.max_num_seqs,
                hbm_slots=self.hbm_slots,
                host_slots=self.host_slots,
                max_lora_rank=self.max_lora_rank,
            ),
            link=LinkModel(**self.link.model_dump()),
            gpus=self.gpus,
        )


class AgentSettings(ServiceSettings):
    """`nats_domain`: JetStream's name where the agent has an account without one (deploy/nats).
    `names_ms`: how often an engine is asked for its list of names when nothing else asks.
    `adapter_dirs`: where adapters lie on this host, to tell of that disk before one is loaded.
    `mirror_dir`: where it is kept what engines' KV caches hold, for the next start of the agent."""

    node: Token
    port: Port = 9102
    nats_domain: Token | None = None
    beat_ms: PositiveMs = BEAT_MS
    poll_ms: PositiveMs = 250.0
    names_ms: PositiveMs = 2_000.0
    otlp_endpoint: HttpUrl | None = None
    """A collector of traces (OTLP over HTTP) for loads that a traced request waits for."""
    adapter_dirs: Annotated[tuple[_Directory, ...], Field(max_length=16)] = ()
    mirror_dir: Path | None = None
    engines: Annotated[tuple[EngineSettings, ...], Field(min_length=1, max_length=ENGINES_MAX)]

    @field_validator("engines")
    @classmethod
    def _names_differ(cls, engines: tuple[EngineSettings, ...]) -> tuple[EngineSettings, ...]:
        names = [engine.name for engine in engines]
        if twice := sorted({name for name in names if names.count(name) > 1}):
            raise ValueError(f"two engines are called {twice[0]!r}")
        sockets = [engine.extension_socket for engine in engines if engine.extension_socket]
        if twice := sorted({path for path in sockets if sockets.count(path) > 1}):
            raise ValueError(f"two engines have the extension_socket {twice[0]!r}")
        return engines
