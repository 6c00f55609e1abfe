"""Overrides: `{regions.r1.hbm_slots: 2, lengths: {...}}` put over a scenario's tree.

A path goes from mapping to mapping by dots, into a list by a number. All but its last part must be
there; whether the last part is a field at all, the schema says.
"""

from __future__ import annotations

from collections.abc import Mapping
from copy import deepcopy
from typing import Any

from axiom_common.errors import InvalidInputError
from axiom_sim.scenario.yaml_tree import Tree


def overridden(tree: Tree, overrides: Mapping[Any, Any]) -> Tree:
    """A copy of `tree` with each path set to its value, in order. Raises InvalidInputError, whose
    `path` is the override's, if nothing is there that it could change."""
    changed = deepcopy(tree)
    for path, value in overrides.items():
        _set(changed, path, deepcopy(value))
    return changed


def _set(tree: Tree, path: Any, value: Any) -> None:
    *inner, last = str(path).split(".")
    place: Any = tree
    for part in inner:
        place = _child(place, part, path)
    if isinstance(place, dict):
        place[_key(place, last)] = value
    elif isinstance(place, list) and last.isdecimal() and int(last) < len(place):
        place[int(last)] = value
    else:
        raise _unknown(path, last)


def _child(place: Any, part: str, path: Any) -> Any:
    if isinstance(place, dict) and (key := _key(place, part)) in place:
        return place[key]
    if isinstance(place, list) and part.isdecimal() and int(part) < len(place):
        return place[int(part)]
    raise _unknown(path, part)


def _key(place: Tree, part: str) -> Any:
    """Keys of a file may be numbers, as ranks are; parts of a path are text."""
    if part not in place and part.isdecimal() and int(part) in place:
        return int(part)
    return part


def _unknown(path: Any, part: str) -> InvalidInputError:
    return InvalidInputError(f"nothing to change there: no {part[:80]!r}", path=str(path)[:200])
