"""What the extension says, in JSON: to the agent's socket, and in answers under /axiom/v1.

README.md shows each message. A reader ignores keys that it does not know; `v` grows only when an
old reader would misunderstand.
"""

from __future__ import annotations

import json
from typing import Any

FORM = 1
"""`v` of every message and answer."""

RESIDENCY = "residency"
REQUESTS = "requests"
NAMES = "names"
UNSUPPORTED = "unsupported"

Message = dict[str, Any]

IN_USE = "in-use"
PINNED = "pinned"
NO_ROOM = "no-room"
NOT_HELD = "not-held"
UNKNOWN_NAME = "unknown-name"
NAME_TAKEN = "name-taken"
LOAD_FAILED = "load-failed"
BAD_REQUEST = "bad-request"
UNAUTHORIZED = "unauthorized"
NOT_FOUND = "not-found"
ENGINE_TIMEOUT = "engine-timeout"
ENGINE_UNAVAILABLE = "engine-unavailable"

NOT_ENABLED = "not-enabled"
NO_LORA = "no-lora"
NO_WORKER_EXTENSION = "no-worker-extension"
UNKNOWN_VERSION = "unknown-version"
UNKNOWN_INTERNALS = "unknown-internals"
FAILED = "failed"

DETAIL_CHARS_MAX = 300


def done(*, changed: bool) -> Message:
    """A control call did what it says; `changed` False: it was so before."""
    return {"v": FORM, "done": True, "changed": changed}


def refused(reason: str, detail: str = "") -> Message:
    """A control call did nothing, for a reason of the closed set above."""
    return {"v": FORM, "done": False, "reason": reason, "detail": detail[:DETAIL_CHARS_MAX]}


def unsupported(reason: str, detail: str = "") -> Message:
    """The extension is off in this engine."""
    return {"v": FORM, "supported": False, "reason": reason, "detail": detail[:DETAIL_CHARS_MAX]}


def encoded(message: Message) -> bytes:
    """One datagram, or one answer's body."""
    return json.dumps(message, separators=(",", ":")).encode()
