"""The first admin's key: made while there is none at all, and shown once.

Keys that the registry lost with its store count: who knows them still makes no other. A gateway
that knows none first waits until those who do had the time to declare them again.
"""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Callable

from axiom_common.errors import ConflictError, PreconditionError, UnavailableError
from axiom_common.model.access import ApiKey, Role
from axiom_common.ports.clock import Clock
from axiom_common.runtime.api_secret import new_secret
from axiom_common.runtime.desired_store import ABSENT, DesiredStore
from axiom_common.runtime.desired_watch import DesiredWatch
from axiom_gateway.admin_access import digest_of

FIRST_KEY = "first-admin"
RESTORE_MS = 5_000.0
"""How long after the loss of the registry's store its keys may be away."""
POLL_MS = 250.0


def on_stderr(text: str) -> None:
    """For whoever starts the process; no log line, as those are kept and sent on."""
    sys.stderr.write(f"{text}\n")
    sys.stderr.flush()


async def make_first_key(
    store: DesiredStore,
    watch: DesiredWatch,
    clock: Clock,
    unix_s: Callable[[], float],
    show: Callable[[str], None],
) -> None:
    """Return once there is a key, made here or not. `unix_s` is the wall time.

    The secret is shown before its key is made: otherwise a death in between would leave a key that
    nobody has. Of several gateways one wins, and the others say so.
    """
    while not watch.synced:
        await clock.sleep_ms(POLL_MS)
    deadline_ms = clock.now_ms() + RESTORE_MS
    while not watch.api_keys and clock.now_ms() < deadline_ms:
        await clock.sleep_ms(POLL_MS)
    if watch.api_keys:
        return
    secret = new_secret()
    key = ApiKey(
        name=FIRST_KEY,
        role=Role.ADMIN,
        digest=digest_of(secret),
        created_ms=int(unix_s() * 1e3),
    )
    show(f"first admin key {FIRST_KEY!r}, shown this once: {secret}")
    while not watch.api_keys:
        with contextlib.suppress(PreconditionError, ConflictError, UnavailableError):
            await store.put(key, if_version=ABSENT)
        await clock.sleep_ms(POLL_MS)
    made = any(one.digest == key.digest for one in watch.api_keys.values())
    show(f"first admin key {FIRST_KEY!r}: " + ("in force" if made else "void, another was first"))
