"""The fields that say what is asked: arrivals, popularity, lengths, prefixes."""

from __future__ import annotations

from itertools import pairwise
from typing import Annotated, Any, Literal, Self

from pydantic import Field, model_validator

from axiom_sim.scenario.values import (
    REQUESTS_MAX,
    Count,
    NotNegative,
    PositiveSeconds,
    Rate,
    RateByRegion,
    Seconds,
    SecondsByRegion,
    Share,
    Strict,
    Tokens,
    from_word,
)

ServegenModel = Literal["m-large", "deepseek-r1"]
SERVEGEN_DAYS: dict[str, int] = {"m-large": 14, "deepseek-r1": 1}
"""How many days of clients' rates there are of each model."""
Yes = Literal[True]


class Diurnal(Strict):
    """Each region's rate follows a sine of `period_s`: `mean` x (1 + `swing` x sin). It rises
    through its mean at `phase_s`; phase `even` spreads the regions over the period."""

    period_s: PositiveSeconds
    mean: RateByRegion
    swing: Share
    phase: Literal["even"] | None = None
    phase_s: SecondsByRegion | None = None

    @model_validator(mode="after")
    def _one_phase(self) -> Self:
        if self.phase is not None and self.phase_s is not None:
            raise ValueError("expected phase or phase_s, got both")
        return self


Step = Annotated[tuple[Seconds, Rate], Field(strict=False)]


class Arrivals(Strict):
    """When requests come. One kind; `day`, `hours`, `requests` belong to servegen: the day of the
    trace, counted from 0; from which to which hour of it; how many requests they are scaled to."""

    poisson: Rate | None = None
    steps: Annotated[tuple[Step, ...], Field(strict=False, min_length=1)] | None = None
    diurnal: Diurnal | None = None
    mooncake: Yes | None = None
    servegen: ServegenModel | None = None
    day: Annotated[int, Field(ge=0, le=13)] | None = None
    hours: Annotated[tuple[int, int], Field(strict=False)] | None = None
    requests: Annotated[int, Field(ge=1, le=REQUESTS_MAX)] | None = None

    @model_validator(mode="before")
    @classmethod
    def _word(cls, value: Any) -> Any:
        return from_word(value, ("mooncake",))

    @model_validator(mode="after")
    def _whole(self) -> Self:
        kind = self.one_of("poisson", "steps", "diurnal", "mooncake", "servegen")
        of_servegen = {"day": self.day, "hours": self.hours, "requests": self.requests}
        given = [name for name, value in of_servegen.items() if value is not None]
        if kind != "servegen" and given:
            raise ValueError(f"{given[0]} belongs to servegen, not to {kind}")
        if self.servegen is not None and (self.day or 0) >= SERVEGEN_DAYS[self.servegen]:
            raise ValueError(
                f"day: {self.servegen} has days 0 to {SERVEGEN_DAYS[self.servegen] - 1}"
            )
        if self.hours is not None and not 0 <= self.hours[0] < self.hours[1] <= 24:
            raise ValueError("hours: expected two hours of a day, the earlier one first")
        if self.steps is not None and (
            self.steps[0][0] != 0 or any(a[0] >= b[0] for a, b in pairwise(self.steps))
        ):
            raise ValueError("steps: times begin with 0 and grow")
        return self

    @property
    def endless(self) -> bool:
        """Whether somebody else must say when they end."""
        return self.mooncake is None and self.servegen is None


class Markov(Strict):
    """Adapters that come and go: each is wanted for `on_s` on average, then unwanted for `off_s`
    (a Markov chain of two states each). Shares are those of the wanted ones."""

    on_s: PositiveSeconds
    off_s: PositiveSeconds


class Popularity(Strict):
    """Which adapter a request asks for. `flips`: times at which all ranks are permuted.
    `regional`: the share of traffic whose order of ranks is the region's own. `by`: requests that
    begin alike ask for the same adapter."""

    zipf: Annotated[float, Field(ge=0, le=10)] | None = None
    shares: Annotated[tuple[NotNegative, ...], Field(strict=False, min_length=1)] | None = None
    uniform: Yes | None = None
    servegen: Yes | None = None
    flips: Annotated[tuple[Seconds, ...], Field(strict=False, max_length=10_000)] = ()
    regional: Share = 0.0
    by: Literal["first distinct prefix block"] | None = None
    markov: Markov | None = None

    @model_validator(mode="before")
    @classmethod
    def _word(cls, value: Any) -> Any:
        return from_word(value, ("uniform", "servegen"))

    @model_validator(mode="after")
    def _whole(self) -> Self:
        kind = self.one_of("zipf", "shares", "uniform", "servegen")
        if self.shares is not None and not sum(self.shares):
            raise ValueError("shares: they sum to nothing")
        if any(a >= b for a, b in pairwise(self.flips)):
            raise ValueError("flips: times must grow")
        if kind == "servegen" and (self.regional or self.by or self.markov):
            raise ValueError("servegen: a client is an adapter; regional, by, markov don't apply")
        return self


class LengthPart(Strict):
    """A part of the requests with lengths of one kind: `in` and `out` for fixed; for lognormal the
    medians and 95th percentiles (`out_p95` where it is not given as far above its median as in
    Azure's conversations)."""

    share: Share
    kind: Literal["azure-conv", "mooncake", "lognormal", "fixed"]
    fixed_in: Tokens | None = Field(default=None, alias="in")
    fixed_out: Tokens | None = Field(default=None, alias="out")
    in_median: Tokens | None = None
    in_p95: Tokens | None = None
    out_median: Tokens | None = None
    out_p95: Tokens | None = None

    @model_validator(mode="after")
    def _whole(self) -> Self:
        needed = {
            "fixed": ("fixed_in", "fixed_out"),
            "lognormal": ("in_median", "in_p95", "out_median"),
        }.get(self.kind, ())
        allowed = {*needed, *(("out_p95",) if self.kind == "lognormal" else ())}
        for name, field in type(self).model_fields.items():
            written = field.alias or name
            if name in needed and getattr(self, name) is None:
                raise ValueError(f"{written}: {self.kind} needs it")
            if name not in {"share", "kind", *allowed} and getattr(self, name) is not None:
                raise ValueError(f"{written}: {self.kind} has no such field")
        for low, high in ((self.in_median, self.in_p95), (self.out_median, self.out_p95)):
            if low is not None and high is not None and low > high:
                raise ValueError("a 95th percentile lies below its median")
        return self


class Lengths(Strict):
    """How long prompts and answers are, in tokens."""

    azure_conv: Yes | None = Field(default=None, alias="azure-conv")
    mooncake: Yes | None = None
    fixed: Annotated[tuple[Tokens, Tokens], Field(strict=False)] | None = None
    mix: Annotated[tuple[LengthPart, ...], Field(strict=False, min_length=1)] | None = None

    @model_validator(mode="before")
    @classmethod
    def _word(cls, value: Any) -> Any:
        return from_word(value, ("azure-conv", "mooncake"))

    @model_validator(mode="after")
    def _whole(self) -> Self:
        self.one_of("azure_conv", "mooncake", "fixed", "mix")
        if self.mix is not None and abs(sum(part.share for part in self.mix) - 1) > 1e-3:
            raise ValueError("mix: shares must sum to 1")
        return self

    @property
    def parts(self) -> tuple[LengthPart, ...]:
        """All kinds as a mix."""
        if self.mix is not None:
            return self.mix
        if self.fixed is not None:
            of = {"in": self.fixed[0], "out": self.fixed[1]}
            return (LengthPart.model_validate({"share": 1.0, "kind": "fixed", **of}),)
        kind = "mooncake" if self.mooncake else "azure-conv"
        return (LengthPart.model_validate({"share": 1.0, "kind": kind}),)


class SystemPrompt(Strict):
    """Each adapter's users begin with the same `tokens`; so do the base model's."""

    tokens: Annotated[int, Field(ge=1, le=131_072)]


class Sessions(Strict):
    """Conversations on shared documents: each has `turns`, and a turn's prompt is the one before
    and `growth_tokens` more."""

    turns: Annotated[int, Field(ge=1, le=10_000)]
    growth_tokens: Tokens
    documents: Count


class Prefixes(Strict):
    """Which beginnings prompts share."""

    none: Yes | None = None
    mooncake: Yes | None = None
    system: SystemPrompt | None = None
    sessions: Sessions | None = None

    @model_validator(mode="before")
    @classmethod
    def _word(cls, value: Any) -> Any:
        return from_word(value, ("none", "mooncake"))

    @model_validator(mode="after")
    def _whole(self) -> Self:
        self.one_of("none", "mooncake", "system", "sessions")
        return self
