"""A scenario, one run of it: strict, each field bounded. What fields mean together: `checks.py`."""

from __future__ import annotations

from typing import Annotated, Literal, Self

from pydantic import Field, model_validator

from axiom_sim.scenario.traffic import Arrivals, Lengths, Popularity, Prefixes
from axiom_sim.scenario.values import (
    Count,
    Name,
    NotNegative,
    Positive,
    PositiveSeconds,
    Seconds,
    Share,
    Strict,
)

BatchSize = Annotated[int, Field(ge=1, le=65_536)]
Slots = Annotated[int, Field(ge=1, le=1_000_000)]
EngineCount = Annotated[int, Field(ge=1, le=100_000)]


class Profile(Strict):
    """Constants of an engine kind: ms, tokens, GB/s. `load_factor`: by how much a full batch slows
    a step."""

    prefill_overhead_ms: NotNegative
    prefill_ms_per_token: NotNegative
    itl_ms: Positive
    load_factor: Annotated[float, Field(ge=1, le=1000)]
    max_num_seqs: BatchSize
    kv_tokens: Annotated[int, Field(ge=1024, le=1_000_000_000)]
    chunked_prefill_tokens: Annotated[int, Field(ge=1, le=10_000_000)]
    h2d_gbps: Positive = Field(alias="h2d_GBps")
    load_fixed_ms: NotNegative
    load_ms_per_layer: NotNegative
    layers: Annotated[int, Field(ge=0, le=10_000)]
    store_gbps: Positive = Field(alias="store_GBps")
    store_fixed_ms: NotNegative


class Links(Strict):
    """Between engines of a region, for moving KV from one to another."""

    same_node_gbps: Positive = Field(alias="same_node_GBps")
    other_node_gbps: Positive = Field(alias="other_node_GBps")
    setup_ms: NotNegative
    kv_kib_per_token: Positive = Field(alias="kv_KiB_per_token")
    engines_per_node: EngineCount


class Region(Strict):
    """The engines of one region. Engines of a node share its host; where nothing says how many, an
    engine has a host of its own.

    As the only region, named `ring`, it stands for `count` regions alike on a circle, named r0, r1
    and so on: RTT grows by `rtt_ms_neighbour` a step, up to `rtt_ms_max`.
    """

    engines: EngineCount
    profile: Name
    hbm_slots: Slots
    host_slots: Slots
    engines_per_node: EngineCount | None = None
    links: Links | None = None
    count: Annotated[int, Field(ge=1, le=1000)] | None = None
    rtt_ms_neighbour: NotNegative | None = None
    rtt_ms_max: NotNegative | None = None

    @model_validator(mode="after")
    def _host_holds_hbm(self) -> Self:
        if self.hbm_slots > self.host_slots:
            raise ValueError(f"hbm_slots: expected at most host_slots ({self.host_slots})")
        if self.links is not None and self.engines_per_node is not None:
            raise ValueError("engines_per_node: links say it already")
        return self


class Adapters(Strict):
    """How many, how large (MiB by rank), which share has which rank; and the share of requests that
    ask for the base model instead."""

    count: Count
    mib: dict[int, Positive] = Field(alias="MiB", min_length=1, max_length=100)
    rank_share: dict[int, Share]
    base_share: Share = 0.0

    @model_validator(mode="after")
    def _ranks_match(self) -> Self:
        if self.mib.keys() != self.rank_share.keys():
            raise ValueError("rank_share: expected the ranks that MiB has")
        if min(self.mib) < 1:
            raise ValueError("MiB: a rank is at least 1")
        if abs(sum(self.rank_share.values()) - 1) > 1e-3:
            raise ValueError("rank_share: shares must sum to 1")
        return self


class Telemetry(Strict):
    """How often engines report, how long a report travels, how often regions hear each other's
    digests. Policies see nothing younger."""

    beat_ms: Positive
    delay_ms: NotNegative
    digest_ms: Positive | None = None


class Slo(Strict):
    """A request is well served within both limits."""

    ttft_ms: Positive
    tpot_ms: Positive


class SurgeEvent(Strict):
    """An adapter becomes `share` of the traffic (of a region, or of all) within `ramp_s`, stays so
    for `hold_s`, and goes in `ramp_s`. Rank 1 is the most popular adapter then."""

    region: Name | None = None
    adapter_rank: Count
    share: Share
    ramp_s: Seconds
    hold_s: Seconds


class EngineEvent(Strict):
    """Something happens to one engine, by its index in its region (the first, unless named)."""

    region: Name | None = None
    engine: Annotated[int, Field(ge=0)]


class ThrottleEvent(EngineEvent):
    """Its steps take `factor` as long."""

    factor: Annotated[float, Field(ge=1, le=1000)]
    for_s: PositiveSeconds


class StallEvent(EngineEvent):
    """It stops for `for_s`, `times` times, one every `every_s`."""

    for_s: PositiveSeconds
    every_s: PositiveSeconds
    times: Annotated[int, Field(ge=1, le=100_000)]

    @model_validator(mode="after")
    def _apart(self) -> Self:
        if self.every_s < self.for_s:
            raise ValueError("every_s: expected at least for_s")
        return self


class CrashEvent(EngineEvent):
    """It dies with all it ran, and is back, empty, after `down_s`."""

    down_s: PositiveSeconds


class Event(Strict):
    """One of these, at its time."""

    at_s: Seconds
    surge: SurgeEvent | None = None
    throttle: ThrottleEvent | None = None
    stall: StallEvent | None = None
    crash: CrashEvent | None = None

    @model_validator(mode="after")
    def _one_kind(self) -> Self:
        self.one_of("surge", "throttle", "stall", "crash")
        return self

    @property
    def kind(self) -> str:
        """Which of them."""
        return self.one_of("surge", "throttle", "stall", "crash")


class Scenario(Strict):
    """One run: what a file says, its variant's overrides applied."""

    about: Annotated[str, Field(max_length=1000)] = ""
    profiles: dict[Name, Profile] = Field(min_length=1, max_length=100)
    regions: dict[Name, Region] = Field(min_length=1, max_length=1000)
    rtt_ms: dict[Name, dict[Name, NotNegative]] = Field(default_factory=dict)
    adapters: Adapters
    arrivals: Arrivals
    duration_s: PositiveSeconds | None = None
    popularity: Popularity
    lengths: Lengths
    prefixes: Prefixes
    telemetry: Telemetry
    slo: Slo
    eviction: Literal["lru", "controlled"] = "lru"
    events: Annotated[tuple[Event, ...], Field(strict=False, max_length=1000)] = ()
    whole: bool = False
