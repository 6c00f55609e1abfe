"""Compiled or Python: the one place that chooses, and says what it chose.

The compiled module is a distribution of its own (`libs/axiom_native`), built where a compiler is.
It is used when it speaks this version's surface; otherwise its Python twin runs, which costs time.
"""

from __future__ import annotations

import importlib
from types import ModuleType

from axiom_common.state.prefix_index import PrefixIndex, PrefixIndexTwin

MODULE = "axiom_native"
SURFACE = 1
"""Of the compiled module's classes; an installed one of another number is left alone."""


def native_index_or_twin(entries_max: int) -> PrefixIndex:
    """An empty prefix state index of at most `entries_max` chunks: compiled, where that is here."""
    module = _module()
    if module is None or module.SURFACE != SURFACE:
        return PrefixIndexTwin(entries_max)
    index: PrefixIndex = module.PrefixIndex(entries_max)
    return index


def is_native() -> bool:
    """Whether the compiled module runs."""
    module = _module()
    return module is not None and module.SURFACE == SURFACE


def which_runs() -> str:
    """One line for people: what runs, and how to get the other."""
    module = _module()
    if module is None:
        return f"Python twin: {MODULE} is not built here (make setup builds it where cargo is)"
    if module.SURFACE != SURFACE:
        return f"Python twin: {MODULE} is of surface {module.SURFACE}, not {SURFACE}; make setup"
    return f"native: {MODULE} {module.__version__}"


def _module() -> ModuleType | None:
    try:
        module = importlib.import_module(MODULE)
    except ImportError:
        return None
    # Its source folder, unbuilt, is imported as a package with nothing in it.
    return module if hasattr(module, "SURFACE") else None
