"""A process that goes first: as far as the system lets it, and never an error."""

from __future__ import annotations

import os
import subprocess
import sys

from axiom_common.runtime.priority import NICE

PROGRAM = (
    "import os; from axiom_common.runtime.priority import go_first; go_first(); print(os.nice(0))"
)


def nice_after(program: str) -> int:
    run = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True, timeout=60
    )
    return int(run.stdout)


def test_it_goes_first_where_it_may_and_goes_on_where_it_may_not() -> None:
    before = os.nice(0)
    if os.geteuid() == 0:
        assert nice_after(PROGRAM) == min(before, NICE)
    else:
        assert nice_after(PROGRAM) in {before, NICE}
