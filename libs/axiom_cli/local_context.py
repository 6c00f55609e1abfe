"""The context that `axiom up` makes while it runs: it never takes the place of a user's own."""

from __future__ import annotations

import itertools
import os
from collections.abc import Callable

from axiom_cli.contexts import Context, Contexts, ContextsFile

NAME = "local"


def register(file: ContextsFile, context: Context) -> str:
    """Make the context under a free name, which is returned; in use if no other one is."""
    made = ""

    def edit(known: Contexts) -> Contexts:
        nonlocal made
        known = without_dead(known, _is_alive)
        made = free_name(known)
        known = known.having(made, context)
        return known if known.in_use is not None else known.using(made)

    file.change(edit)
    return made


def withdraw(file: ContextsFile, name: str, context: Context) -> None:
    """Take it back, unless it is another one by now."""
    file.change(lambda known: known.without(name) if known.contexts.get(name) == context else known)


def free_name(known: Contexts) -> str:
    """`local`, or the first of `local-2`, `local-3`, ... that nobody has."""
    names = itertools.chain([NAME], (f"{NAME}-{number}" for number in itertools.count(2)))
    return next(name for name in names if name not in known.contexts)


def without_dead(known: Contexts, is_alive: Callable[[int], bool]) -> Contexts:
    """Without those of an `axiom up` that was killed before it could take them back."""
    for name, context in known.contexts.items():
        if context.up_pid is not None and not is_alive(context.up_pid):
            known = known.without(name)
    return known


def _is_alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return True
