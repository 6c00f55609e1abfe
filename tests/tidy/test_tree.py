"""The tree's own rules: sizes, names, one place for every wire name, links, docstrings."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PRODUCT = sorted(
    path
    for top in ("libs", "services")
    for path in (ROOT / top).rglob("*.py")
    if not {"build", "dist", "_pb"} & set(path.parts)
)
RUST = sorted((ROOT / "libs" / "axiom_native" / "src").rglob("*.rs"))
DOCUMENTS = [p for p in ROOT.rglob("*.md") if not p.relative_to(ROOT).parts[0].startswith(".")]
MODULE_LINES_MAX = 400
FUNCTION_LINES_MAX = 70
UNNAMED = re.compile(r"utils?$|helpers?$|manager$|misc$|common$")
"""Names of modules that say no job."""
SERVICES = {
    "gateway": "axiom_gateway",
    "telemetry": "axiom_telemetry",
    "scheduler": "axiom_scheduler",
    "node-agent": "axiom_node_agent",
}


def relative(path: Path) -> str:
    return str(path.relative_to(ROOT))


def functions(tree: ast.AST) -> Iterator[ast.FunctionDef | ast.AsyncFunctionDef]:
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            yield node


def own_lines(function: ast.FunctionDef | ast.AsyncFunctionDef) -> int:
    """Lines of a function without its docstring."""
    lines = (function.end_lineno or function.lineno) - function.lineno + 1
    first = function.body[0]
    if ast.get_docstring(function, clean=False) is not None:
        lines -= (first.end_lineno or first.lineno) - first.lineno + 1
    return lines


def test_the_tree_is_found() -> None:
    assert len(PRODUCT) > 50
    assert len(RUST) > 10
    assert len(DOCUMENTS) > 5


@pytest.mark.parametrize("path", PRODUCT, ids=relative)
def test_module_is_small_named_and_explained(path: Path) -> None:
    text = path.read_text()
    assert text.count("\n") <= MODULE_LINES_MAX
    assert not UNNAMED.search(path.stem)
    tree = ast.parse(text)
    assert ast.get_docstring(tree), "a module says its idea first"
    long = [
        f"{f.name}: {own_lines(f)}" for f in functions(tree) if own_lines(f) > FUNCTION_LINES_MAX
    ]
    assert not long, f"functions above {FUNCTION_LINES_MAX} lines"


@pytest.mark.parametrize("path", RUST, ids=relative)
def test_rust_module_is_small_named_and_explained(path: Path) -> None:
    text = path.read_text()
    assert text.count("\n") <= MODULE_LINES_MAX
    assert not UNNAMED.search(path.stem)
    assert text.startswith("//! "), "a module says its idea first"


@pytest.mark.parametrize("path", PRODUCT, ids=relative)
def test_public_things_have_docstrings(path: Path) -> None:
    missing = [
        node.name
        for node in ast.parse(path.read_text()).body
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef)
        and not node.name.startswith("_")
        and not ast.get_docstring(node)
    ]
    assert not missing


@pytest.mark.parametrize("folder", SERVICES)
def test_services_have_the_same_five_modules(folder: str) -> None:
    package = ROOT / "services" / folder / SERVICES[folder]
    for name in ("__main__", "settings", "app", "handlers", "state"):
        assert (package / f"{name}.py").is_file(), f"{package.name} lacks {name}.py"
    assert (package.parent / "README.md").is_file()


@pytest.mark.parametrize(
    ("pattern", "home"),
    [
        (r"axiom\.v1", "libs/axiom_common/wire/subjects.py"),
        (r"axiom:v1", "libs/axiom_common/wire/keys.py"),
        (r"x-axiom-", "libs/axiom_common/wire/headers.py"),
        (r"axiom_(desired|plan|lease|incarnation)\b(?!_)", "libs/axiom_common/wire/keys.py"),
    ],
)
def test_wire_names_are_written_once(pattern: str, home: str) -> None:
    holders = {
        relative(path)
        for path in PRODUCT
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.Constant)
        and isinstance(node.value, str)
        and "\n" not in node.value
        and re.search(pattern, node.value)
    }
    assert holders <= {home}


@pytest.mark.parametrize("path", DOCUMENTS, ids=relative)
def test_links_of_documents_resolve(path: Path) -> None:
    text = re.sub(r"```.*?```", "", path.read_text(), flags=re.DOTALL)
    targets = re.findall(r"\]\(([^)#\s]+)(?:#[^)]*)?\)", text)
    broken = [t for t in targets if "://" not in t and not (path.parent / t).exists()]
    assert not broken


def test_unfinished_marks_are_absent() -> None:
    marks = re.compile(r"\b(TODO|FIXME|XXX|HACK)\b")
    marked = [relative(p) for p in PRODUCT if marks.search(p.read_text())]
    assert not marked
