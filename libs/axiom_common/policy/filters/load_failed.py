"""load-failed: the engine could not load this adapter, and it is too early to try again."""

from __future__ import annotations

from axiom_common.policy.view import Bools, Prospect


def load_failed(prospect: Prospect) -> Bools | None:
    """True where the adapter's load failed; other adapters are not affected."""
    return prospect.ask.failed
