"""Reads a scenario: from a file's text to its variants, each checked, or one line of what is wrong.

That line names the file, the variant and the field, and says what was expected there.
"""

from __future__ import annotations

from collections.abc import Mapping
from itertools import pairwise
from typing import Any

from pydantic import ValidationError

from axiom_common.errors import InvalidInputError
from axiom_sim.scenario.checks import check
from axiom_sim.scenario.overrides import overridden
from axiom_sim.scenario.resolved import Phase, Resolved, region_specs, rtt_table
from axiom_sim.scenario.schema import Scenario
from axiom_sim.scenario.values import DAYS_14_S
from axiom_sim.scenario.yaml_tree import Tree, read_tree

VARIANTS_MAX = 100
PHASES_MAX = 100
_OF_A_PHASE = ("arrivals", "popularity", "lengths", "prefixes", "adapters.base_share")
"""What may differ from phase to phase."""


def read_scenario(name: str, content: bytes) -> dict[str, Resolved]:
    """All variants of a scenario's file, each checked."""
    tree = read_tree(name, content)
    variants = tree.pop("variants", None)
    if variants is None:
        return {"default": _variant(name, "default", tree, {})}
    if not isinstance(variants, dict) or not 0 < len(variants) <= VARIANTS_MAX:
        raise InvalidInputError(
            f"{name}: variants: expected a mapping of 1 to {VARIANTS_MAX} names to overrides",
            path="variants",
        )
    for variant in variants:
        if not isinstance(variant, str):
            raise InvalidInputError(
                f"{name}: variants: expected names, got {variant!r}", path="variants"
            )
    return {
        variant: _variant(name, variant, tree, overrides) for variant, overrides in variants.items()
    }


def _variant(name: str, variant: str, tree: Tree, overrides: Any) -> Resolved:
    try:
        if not isinstance(overrides, dict):
            raise InvalidInputError("expected a mapping of paths to values", path="variants")
        return _resolved(name, variant, overridden(tree, overrides))
    except InvalidInputError as error:
        where = name if variant == "default" else f"{name}, variant {variant}"
        raise InvalidInputError(f"{where}: {error.path}: {error}", path=error.path) from error


def _resolved(name: str, variant: str, tree: Tree) -> Resolved:
    phases = tree.pop("phases", None)
    if phases is None:
        scenario = _validated(tree, {}, "")
        check(scenario, ends=False)
        pieces: list[tuple[float | None, Scenario]] = [(None, scenario)]
    else:
        pieces = _phases(tree, phases)
    first = pieces[0][1]
    return Resolved(
        scenario=name,
        variant=variant,
        about=first.about,
        regions=region_specs(first),
        rtt_ms=rtt_table(first),
        adapters=first.adapters,
        phases=_timed(pieces),
        telemetry=first.telemetry,
        slo=first.slo,
        controlled=first.eviction == "controlled",
        events=first.events,
        whole=first.whole,
    )


def _phases(tree: Tree, phases: Any) -> list[tuple[float | None, Scenario]]:
    """(until when, in seconds; the scenario as it is in this phase)."""
    if not isinstance(phases, list) or not 0 < len(phases) <= PHASES_MAX:
        raise InvalidInputError(f"expected a list of 1 to {PHASES_MAX} phases", path="phases")
    pieces: list[tuple[float | None, Scenario]] = []
    for i, phase in enumerate(phases):
        where = f"phases.{i}"
        if not isinstance(phase, dict):
            raise InvalidInputError("expected a mapping", path=where)
        own = {key: value for key, value in phase.items() if key != "until_s"}
        for key in own:
            if not any(str(key) == of or str(key).startswith(f"{of}.") for of in _OF_A_PHASE):
                raise InvalidInputError(
                    f"expected until_s, {', '.join(_OF_A_PHASE)}", path=f"{where}.{key}"
                )
        until = _until(phase.get("until_s"), f"{where}.until_s")
        try:
            changed = overridden(tree, own)
        except InvalidInputError as error:
            raise InvalidInputError(str(error), path=f"{where}.{error.path}") from error
        scenario = _validated(changed, own, f"{where}.")
        try:
            check(scenario, ends=True)
        except InvalidInputError as error:
            raise InvalidInputError(str(error), path=_within(error.path, own, where)) from error
        pieces.append((until, scenario))
    for (before, _), (after, _) in pairwise(pieces):
        if before is None or after is None or before >= after:
            raise InvalidInputError("until_s must grow from phase to phase", path="phases")
    return pieces


def _until(value: Any, path: str) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 < value <= DAYS_14_S:
        raise InvalidInputError(f"expected seconds, at most {DAYS_14_S:g}", path=path)
    return float(value)


def _timed(pieces: list[tuple[float | None, Scenario]]) -> tuple[Phase, ...]:
    """Phases with their times; what would begin after `duration_s` is left out."""
    phases: list[Phase] = []
    start_ms = 0.0
    for number, (until, scenario) in enumerate(pieces):
        ends = [s * 1e3 for s in (until, scenario.duration_s) if s is not None]
        end_ms = min(ends) if ends else None
        if end_ms is not None and end_ms <= start_ms:
            break
        phases.append(
            Phase(
                number=number,
                start_ms=start_ms,
                end_ms=end_ms,
                arrivals=scenario.arrivals,
                popularity=scenario.popularity,
                lengths=scenario.lengths,
                prefixes=scenario.prefixes,
                base_share=scenario.adapters.base_share,
            )
        )
        start_ms = end_ms or 0.0
    return tuple(phases)


def _validated(tree: Tree, own: Mapping[Any, Any], prefix: str) -> Scenario:
    try:
        return Scenario.model_validate(tree)
    except ValidationError as error:
        first = error.errors(include_url=False, include_context=False)[0]
        path, told = _told(first)
        where = prefix.removesuffix(".")
        raise InvalidInputError(told, path=_within(path, own, where)) from error


def _within(path: str | None, own: Mapping[Any, Any], phase: str) -> str:
    """A path within a phase, where the phase is what set the field."""
    root = (path or "").split(".")[0]
    if phase and any(str(key).split(".")[0] == root for key in own):
        return f"{phase}.{path}"
    return path or "scenario"


def _told(error: Any) -> tuple[str, str]:
    """(path, what was expected) of one of pydantic's errors."""
    parts = [str(part) for part in error["loc"] if part != "[key]" and str(part)[:1] != "("]
    told = str(error["msg"]).removeprefix("Value error, ").removeprefix("Input ")
    field, colon, rest = told.partition(": ")
    if error["type"] == "value_error":
        if colon and field.replace("_", "").replace("-", "").isalnum() and " " not in field:
            parts.append(field)
            told = rest
    elif error["type"] == "missing":
        told = "expected, but absent"
    elif error["type"] == "extra_forbidden":
        told = "no such field"
    else:
        told = f"{told}, got {_short(error['input'])}"
    return ".".join(parts)[:200], told


def _short(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 60 else f"{text[:57]}..."
