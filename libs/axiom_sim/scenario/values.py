"""What the fields of a scenario are made of: numbers with bounds, and the strictness of all."""

from __future__ import annotations

from typing import Annotated, Any

from pydantic import BaseModel, ConfigDict, Discriminator, Field, Tag

REQUESTS_MAX = 10_000_000
"""A scenario that asks for more would not fit into memory."""
DAYS_14_S = 14 * 86_400.0

Share = Annotated[float, Field(ge=0, le=1)]
"""A part of a whole, 0 to 1."""
Positive = Annotated[float, Field(gt=0, le=1e9)]
NotNegative = Annotated[float, Field(ge=0, le=1e9)]
Seconds = Annotated[float, Field(ge=0, le=DAYS_14_S)]
"""A time from the beginning of the run, or a length of time; a run lasts 14 days at most."""
PositiveSeconds = Annotated[float, Field(gt=0, le=DAYS_14_S)]
Rate = Annotated[float, Field(ge=0, le=1e6)]
"""Requests a second."""
Count = Annotated[int, Field(ge=1, le=1_000_000)]
Tokens = Annotated[int, Field(ge=1, le=10_000_000)]
Name = Annotated[str, Field(pattern=r"^[A-Za-z0-9_-]{1,40}$")]
"""Of a region or profile: part of engines' names, and of paths, so it holds no dot."""


def _form(value: Any) -> str:
    return "(by region)" if isinstance(value, dict) else "(number)"


RateByRegion = Annotated[
    Annotated[Rate, Tag("(number)")] | Annotated[dict[Name, Rate], Tag("(by region)")],
    Discriminator(_form),
]
"""One rate for every region, or a mapping of region to rate."""
SecondsByRegion = Annotated[
    Annotated[Seconds, Tag("(number)")] | Annotated[dict[Name, Seconds], Tag("(by region)")],
    Discriminator(_form),
]


class Strict(BaseModel):
    """A mapping of a scenario: its own fields only, no number in quotes, nothing infinite."""

    model_config = ConfigDict(
        strict=True, extra="forbid", frozen=True, allow_inf_nan=False, populate_by_name=False
    )

    def one_of(self, *names: str) -> str:
        """The one field of these that is given; raises ValueError if it is not just one."""
        given = [name for name in names if getattr(self, name) is not None]
        if len(given) != 1:
            fields = type(self).model_fields
            raise ValueError(
                f"expected one of {', '.join(fields[name].alias or name for name in names)}, "
                f"got {' and '.join(fields[name].alias or name for name in given) or 'none'}"
            )
        return given[0]


def from_word(value: Any, words: tuple[str, ...]) -> Any:
    """`azure-conv` for `{azure-conv: true}`: kinds without settings are written as a word."""
    if isinstance(value, str):
        if value not in words:
            raise ValueError(f"expected {' or '.join(words)} or a mapping, got {value[:40]!r}")
        return {value: True}
    if not isinstance(value, dict):
        raise ValueError(f"expected {' or '.join(words)} or a mapping")
    return value
