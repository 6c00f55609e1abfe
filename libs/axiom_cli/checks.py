"""What a check of the doctor says."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum


class Verdict(StrEnum):
    """`missing` is no fault: Axiom runs without it. `unchecked`: it can't be said from here."""

    OK = "ok"
    MISSING = "missing"
    UNCHECKED = "unchecked"
    BROKEN = "broken"


@dataclass(frozen=True, slots=True, kw_only=True)
class Check:
    """One line of the doctor. `advice` says what to do; empty when there is nothing to do."""

    name: str
    verdict: Verdict
    detail: str
    advice: str = ""
