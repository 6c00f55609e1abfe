"""A process that everybody waits for, and that needs little, goes before those that need much.

Engines keep a host's cores busy for seconds; an agent beside them needs a few hundredths of one,
and what it has to say is old when it waits for its turn.
"""

from __future__ import annotations

import contextlib
import os
from pathlib import Path

NICE = -10


def go_first(pid: int = 0) -> None:
    """Raise a process (0: this one) as far as the system lets us; without the right to, nothing.

    Linux schedules sessions against each other where autogroups are on: both ranks are set.
    """
    with contextlib.suppress(OSError):
        if os.getpriority(os.PRIO_PROCESS, pid) > NICE:
            os.setpriority(os.PRIO_PROCESS, pid, NICE)
    with contextlib.suppress(OSError):
        Path(f"/proc/{pid or 'self'}/autogroup").write_text(str(NICE))
