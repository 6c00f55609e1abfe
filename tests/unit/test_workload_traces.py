"""Readers of public traces: the shipped slices, and their form."""

from __future__ import annotations

import gzip
import itertools

import pytest

from axiom_common.errors import InvalidInputError
from axiom_sim.workload.traces import (
    azure_slice,
    parse_azure,
    parse_servegen,
    servegen_slice,
)

AZURE = "TIMESTAMP,ContextTokens,GeneratedTokens\n"
SERVEGEN = "client,t_s,rate_rps,cv,arrival,p1,p2\n"


def test_the_slice_of_azure_is_fifteen_minutes_of_plausible_requests() -> None:
    trace = azure_slice()
    assert len(trace) == 5002
    assert trace[0].at_ms == 0
    assert 890_000 < trace[-1].at_ms < 900_000
    assert all(a.at_ms <= b.at_ms for a, b in itertools.pairwise(trace))
    assert 900 < sum(r.prompt_tokens for r in trace) / len(trace) < 1400
    assert min(r.output_tokens for r in trace) >= 1


def test_the_slice_of_servegen_is_six_windows_of_ten_minutes() -> None:
    rates = servegen_slice()
    starts = sorted({r.at_s for r in rates})
    assert [b - a for a, b in itertools.pairwise(starts)] == [600.0] * 5
    assert all(r.rate_rps > 0 for r in rates)
    assert len({r.client for r in rates}) >= 48


def test_azure_rows_are_sorted_and_counted_from_the_first() -> None:
    rows = "2023-11-16 18:00:02.5000000,7,3\n2023-11-16 18:00:01.0000000,374,44\n"
    first, second = parse_azure("trace.csv", (AZURE + rows).encode())
    assert (first.at_ms, first.prompt_tokens, first.output_tokens) == (0.0, 374, 44)
    assert (second.at_ms, second.prompt_tokens, second.output_tokens) == (1500.0, 7, 3)


def test_plain_and_compressed_files_read_alike() -> None:
    plain = (SERVEGEN + "3,600,0.5,1,Gamma,1,1\n1,0,2.0,1,Gamma,1,1\n").encode()
    rates = parse_servegen("a.csv", plain)
    assert parse_servegen("a.csv.gz", gzip.compress(plain)) == rates
    assert [r.client for r in rates] == [1, 3]


@pytest.mark.parametrize(
    ("content", "where"),
    [
        (AZURE + "yesterday,1,2\n", "line 2"),
        (AZURE + "2023-11-16 18:00:01.0000000,1\n", "line 2"),
        ("a,b\n1,2\n", "line 2"),
        (AZURE + "2023-11-16 18:00:01.0000000,1,2\n2023-11-16 18:00:02.0,many,2\n", "line 3"),
    ],
)
def test_a_bad_row_is_named(content: str, where: str) -> None:
    with pytest.raises(InvalidInputError, match=f"bad.csv, {where}"):
        parse_azure("bad.csv", content.encode())


def test_a_broken_archive_is_bad_input() -> None:
    with pytest.raises(InvalidInputError, match="not a trace"):
        parse_azure("bad.csv.gz", gzip.compress(AZURE.encode())[:-6])
