"""Readers of public traces, and the slices of them that ship with Axiom (data/README.md).

A slice has the columns of the file it was cut from, so one reader takes both.
"""

from __future__ import annotations

import csv
import gzip
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime
from importlib import resources

from axiom_common.errors import InvalidInputError

_AZURE_SLICE = "azure_conv_2023.csv.gz"
_SERVEGEN_SLICE = "servegen_m_large.csv.gz"


@dataclass(frozen=True, slots=True, kw_only=True)
class TracedRequest:
    """One request of a trace; `at_ms` counts from the first one."""

    at_ms: float
    prompt_tokens: int
    output_tokens: int


@dataclass(frozen=True, slots=True, kw_only=True)
class ClientRate:
    """A client's mean rate in one window of a trace that starts at `at_s`."""

    client: int
    at_s: float
    rate_rps: float


def shipped_azure() -> tuple[TracedRequest, ...]:
    """The shipped 15 minutes of Azure's conversation trace."""
    return parse_azure(_AZURE_SLICE, _shipped(_AZURE_SLICE))


def shipped_servegen() -> tuple[ClientRate, ...]:
    """The shipped hour of ServeGen's m-large clients."""
    return parse_servegen(_SERVEGEN_SLICE, _shipped(_SERVEGEN_SLICE))


def _shipped(name: str) -> bytes:
    return (resources.files("axiom_sim.workload") / "data" / name).read_bytes()


def parse_azure(name: str, content: bytes) -> tuple[TracedRequest, ...]:
    """An Azure LLM inference trace (2023), in order of arrival; `name` is for what is wrong."""
    stamped: list[tuple[datetime, int, int]] = []
    for line, row in _rows(name, content):
        try:
            # Stamps have seven decimals, one more than datetime reads.
            at = datetime.fromisoformat(row["TIMESTAMP"][:26])
            stamped.append((at, int(row["ContextTokens"]), int(row["GeneratedTokens"])))
        except (KeyError, TypeError, ValueError) as error:
            raise _bad_row(name, line, error) from error
    stamped.sort(key=lambda entry: entry[0])
    return tuple(
        TracedRequest(
            at_ms=(at - stamped[0][0]).total_seconds() * 1e3,
            prompt_tokens=prompt_tokens,
            output_tokens=output_tokens,
        )
        for at, prompt_tokens, output_tokens in stamped
    )


def parse_servegen(name: str, content: bytes) -> tuple[ClientRate, ...]:
    """The clients' windows of a ServeGen category, by (time, client)."""
    rates: list[ClientRate] = []
    for line, row in _rows(name, content):
        try:
            rates.append(
                ClientRate(
                    client=int(row["client"]),
                    at_s=float(row["t_s"]),
                    rate_rps=float(row["rate_rps"]),
                )
            )
        except (KeyError, TypeError, ValueError) as error:
            raise _bad_row(name, line, error) from error
    return tuple(sorted(rates, key=lambda rate: (rate.at_s, rate.client)))


def _rows(name: str, content: bytes) -> Iterable[tuple[int, dict[str, str]]]:
    """(line number, row) of a CSV file, gzip or plain."""
    try:
        text = (gzip.decompress(content) if content[:2] == b"\x1f\x8b" else content).decode()
    except (OSError, EOFError, UnicodeDecodeError) as error:
        raise InvalidInputError(f"{name}: not a trace: {error}") from error
    return enumerate(csv.DictReader(text.splitlines()), start=2)


def _bad_row(name: str, line: int, error: Exception) -> InvalidInputError:
    return InvalidInputError(f"{name}, line {line}: {type(error).__name__}: {error}")
