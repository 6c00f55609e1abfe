"""Finds scenarios: those that come with Axiom, by name, and people's own, by the path of a file."""

from __future__ import annotations

from importlib import resources
from pathlib import Path

from axiom_common.errors import NotFoundError
from axiom_sim.scenario.reading import read_scenario
from axiom_sim.scenario.resolved import Resolved
from axiom_sim.scenario.yaml_tree import BYTES_MAX


def shipped_scenarios() -> tuple[str, ...]:
    """Names of the scenarios that come with Axiom, in order."""
    names = (resources.files(__package__) / "data").iterdir()
    return tuple(sorted(p.name[:-5] for p in names if p.name.endswith(".yaml")))


def find_scenario(name: str) -> dict[str, Resolved]:
    """The variants of a shipped scenario by its name, or of a file by its path, in the file's
    order; one called `default` where it has none.

    Raises NotFoundError or InvalidInputError, each one line.
    """
    if name in shipped_scenarios():
        content = (resources.files(__package__) / "data" / f"{name}.yaml").read_bytes()
        return read_scenario(name, content)
    path = Path(name)
    try:
        with path.open("rb") as file:
            return read_scenario(path.name.removesuffix(".yaml"), file.read(BYTES_MAX + 1))
    except (OSError, ValueError) as error:
        raise NotFoundError(
            f"{name[:200]!r} is no file, and none of the scenarios: "
            f"{', '.join(shipped_scenarios())}"
        ) from error
