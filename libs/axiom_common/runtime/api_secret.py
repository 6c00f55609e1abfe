"""Secrets of API keys: how they are made."""

from __future__ import annotations

import secrets

PREFIX = "axk-"
"""So that scanners of code and logs can tell what they found."""
_BYTES = 32


def new_secret() -> str:
    """256 bits of chance, safe in URLs and headers."""
    return PREFIX + secrets.token_urlsafe(_BYTES)
