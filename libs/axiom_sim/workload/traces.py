"""Readers of public traces, and the traces that ship with Axiom (data/README.md)."""

from __future__ import annotations

import csv
import gzip
import json
from collections.abc import Iterable
from dataclasses import dataclass, replace
from datetime import datetime
from functools import cache
from importlib import resources

from axiom_common.errors import InvalidInputError

_AZURE = "AzureLLMInferenceTrace_conv_2023.csv.gz"
_MOONCAKE = "mooncake_conversation_trace.jsonl.gz"
_SERVEGEN = "servegen_{}_client_rates.csv.gz"
_AZURE_SLICE_MS = (600_000.0, 1_500_000.0)
_SERVEGEN_SLICE_S = (237_600.0, 241_200.0)
BLOCK_TOKENS = 512
"""Of a prompt, that a hash id of Mooncake's trace stands for; its last one may stand for fewer."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TracedRequest:
    """One request of a trace; `at_ms` counts from the first one."""

    at_ms: float
    prompt_tokens: int
    output_tokens: int


@dataclass(frozen=True, slots=True, kw_only=True)
class ClientRate:
    """A client's mean rate in one window of a trace that starts at `at_s`, and the law of its gaps:
    `Gamma` or `Weibull`, of this shape."""

    client: int
    at_s: float
    rate_rps: float
    gaps: str
    shape: float


@dataclass(frozen=True, slots=True, kw_only=True)
class TracedConversation:
    """One request of Mooncake's trace. `blocks` name its prompt, 512 tokens each; an id names all
    blocks before it too."""

    at_ms: float
    prompt_tokens: int
    output_tokens: int
    blocks: tuple[int, ...]


@cache
def azure() -> tuple[TracedRequest, ...]:
    """The hour of Azure's conversation trace."""
    return parse_azure(_AZURE, _shipped(_AZURE))


@cache
def servegen(model: str) -> tuple[ClientRate, ...]:
    """The clients of ServeGen's `m-large` (14 days) or `deepseek-r1` (one day)."""
    name = _SERVEGEN.format(model)
    return parse_servegen(name, _shipped(name))


@cache
def mooncake() -> tuple[TracedConversation, ...]:
    """The hour of Mooncake's conversation trace. Its stamps are 3 s apart."""
    return parse_mooncake(_MOONCAKE, _shipped(_MOONCAKE))


def azure_slice() -> tuple[TracedRequest, ...]:
    """Fifteen minutes of Azure's trace, from its tenth on (18:25:46), counted from their first."""
    rows = [row for row in azure() if _AZURE_SLICE_MS[0] <= row.at_ms < _AZURE_SLICE_MS[1]]
    return tuple(replace(row, at_ms=row.at_ms - rows[0].at_ms) for row in rows)


def servegen_slice() -> tuple[ClientRate, ...]:
    """The six windows of m-large's day 2 from 18:00 to 19:00."""
    first, last = _SERVEGEN_SLICE_S
    return tuple(row for row in servegen("m-large") if first <= row.at_s < last)


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
                    gaps=row["arrival"],
                    shape=float(row["p1"]),
                )
            )
        except (KeyError, TypeError, ValueError) as error:
            raise _bad_row(name, line, error) from error
    return tuple(sorted(rates, key=lambda rate: (rate.at_s, rate.client)))


def parse_mooncake(name: str, content: bytes) -> tuple[TracedConversation, ...]:
    """A trace of Mooncake's, in order of arrival."""
    rows: list[TracedConversation] = []
    for line, text in enumerate(_text(name, content).splitlines(), start=1):
        try:
            row = json.loads(text)
            rows.append(
                TracedConversation(
                    at_ms=float(row["timestamp"]),
                    prompt_tokens=int(row["input_length"]),
                    output_tokens=int(row["output_length"]),
                    blocks=tuple(row["hash_ids"]),
                )
            )
        except (KeyError, TypeError, ValueError) as error:
            raise _bad_row(name, line, error) from error
    return tuple(sorted(rows, key=lambda row: row.at_ms))


def _rows(name: str, content: bytes) -> Iterable[tuple[int, dict[str, str]]]:
    """(line number, row) of a CSV file."""
    return enumerate(csv.DictReader(_text(name, content).splitlines()), start=2)


def _text(name: str, content: bytes) -> str:
    """Of a file, gzip or plain."""
    try:
        return (gzip.decompress(content) if content[:2] == b"\x1f\x8b" else content).decode()
    except (OSError, EOFError, UnicodeDecodeError) as error:
        raise InvalidInputError(f"{name}: not a trace: {error}") from error


def _bad_row(name: str, line: int, error: Exception) -> InvalidInputError:
    return InvalidInputError(f"{name}, line {line}: {type(error).__name__}: {error}")
