"""Compiled or Python: the one place that chooses, and says what it chose.

The compiled module is a distribution of its own (`libs/axiom_native`), built where a compiler is.
It is used when it speaks this version's surface; otherwise its Python twin runs, which costs time.
"""

from __future__ import annotations

from collections.abc import Mapping

from axiom_common.policy.fleet import Fleet
from axiom_common.policy.fleet_twin import FleetTwin
from axiom_common.policy.profile import Profile
from axiom_common.state.prefix_index import PrefixIndex, PrefixIndexTwin

try:
    import axiom_native
except ImportError:
    _SURFACE = None
else:
    # Its source folder, unbuilt, is imported as a package with nothing in it.
    _SURFACE = getattr(axiom_native, "SURFACE", None)

SURFACE = 4
"""Of the compiled module's classes; an installed one of another number is left alone."""


def native_index_or_twin(entries_max: int) -> PrefixIndex:
    """An empty prefix state index of at most `entries_max` chunks: compiled, where that is here."""
    return axiom_native.PrefixIndex(entries_max) if is_native() else PrefixIndexTwin(entries_max)


def native_fleet_or_twin(profiles: Mapping[str, Profile]) -> Fleet:
    """An empty fleet with these profiles: compiled, where that is here."""
    if not is_native():
        return FleetTwin(profiles)
    # It builds upon a class of the compiled module.
    from axiom_common.runtime.native_fleet import NativeFleet

    return NativeFleet(profiles)


def is_native() -> bool:
    """Whether the compiled module runs."""
    return _SURFACE == SURFACE


def which_runs() -> str:
    """One line for people: what runs, and how to get the other."""
    if is_native():
        return f"native: axiom_native {axiom_native.__version__}"
    if _SURFACE is None:
        return "Python twin: axiom_native is not built here (make setup builds it where cargo is)"
    return f"Python twin: axiom_native is of surface {_SURFACE}, not {SURFACE} (make setup)"
