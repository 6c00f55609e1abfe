"""What documents say of the code, checked against the code."""

from __future__ import annotations

import re
from pathlib import Path

from axiom_cli.stack.topology import BASE_MODEL, StackOptions, declared_adapters
from axiom_common.model.reason import Reason
from axiom_common.state.adapter_lifecycle import TRANSITIONS
from axiom_common.wire import headers

ROOT = Path(__file__).parents[2]


def test_the_models_that_the_readme_asks_for_are_declared() -> None:
    asked = re.findall(r'"model": "([^"]+)"', (ROOT / "README.md").read_text())
    declared = {spec.name for spec in declared_adapters(StackOptions(run_dir=Path()))}
    assert asked
    assert set(asked) <= declared | {BASE_MODEL}


def test_the_headers_that_the_readme_names_exist() -> None:
    named = set(re.findall(r"`(x-axiom-[a-z-]+)`", (ROOT / "README.md").read_text()))
    assert named
    assert named <= {value for value in vars(headers).values() if isinstance(value, str)}


def test_the_life_of_an_adapter_is_drawn_as_it_is() -> None:
    page = (ROOT / "ARCHITECTURE.md").read_text()
    drawing = page[page.index("stateDiagram-v2") :].partition("```")[0]
    drawn = set(re.findall(r"^ +(\w+) --> (\w+)", drawing, flags=re.MULTILINE))
    moves = {(str(old), str(new)) for moves in TRANSITIONS.values() for old, new in moves.items()}
    assert len(drawn) > 8
    assert drawn <= moves


def test_paths_that_documents_name_exist() -> None:
    for name in ("README.md", "ARCHITECTURE.md", "CONTRIBUTING.md", "docs/adding-a-scorer.md"):
        text = (ROOT / name).read_text()
        paths = re.findall(r"`((?:libs|services|tests|docs|examples)/[\w./-]+)`", text)
        missing = [p for p in paths if not (ROOT / p).exists() and "<" not in p]
        assert not missing, name


def test_reasons_have_one_spelling() -> None:
    assert all(re.fullmatch(r"[a-z]+(-[a-z]+)*", reason) for reason in Reason)
