"""The file of `axiom adapters apply`: what it declares, and errors that say where to look."""

from __future__ import annotations

import io
import textwrap

import pytest
import yaml

from axiom_cli.declarations import (
    DEPTH_MAX,
    ERRORS_SHOWN_MAX,
    FILE_BYTES_MAX,
    Kind,
    parse_declarations,
    read_declarations,
)
from axiom_common.errors import InvalidInputError
from axiom_common.wire import rest

GOOD = """\
base_models:
  - name: meta/llama-3-8b
adapters:
  - name: acme/sql
    base_model: meta/llama-3-8b
    path: /adapters/sql
    rank: 16
    size_bytes: 40894464
  - {name: chat, base_model: meta/llama-3-8b, path: /adapters/chat, rank: 8, tenant: acme}
"""


def test_a_file_declares_base_models_then_adapters() -> None:
    puts = parse_declarations(GOOD)
    assert [(p.kind, p.name, p.line) for p in puts] == [
        (Kind.BASE_MODEL, "meta/llama-3-8b", 2),
        (Kind.ADAPTER, "acme/sql", 4),
        (Kind.ADAPTER, "chat", 9),
    ]
    assert rest.AdapterPut.model_validate(puts[1].body.model_dump()) == rest.AdapterPut(
        name="acme/sql",
        base_model="meta/llama-3-8b",
        path="/adapters/sql",
        rank=16,
        size_bytes=40_894_464,
    )


def test_anchors_may_be_used() -> None:
    text = """
    adapters:
      - {name: a, base_model: &base llama, path: /a, rank: 8}
      - {name: b, base_model: *base, path: /b, rank: 8}
    """
    assert [p.name for p in parse_declarations(textwrap.dedent(text))] == ["a", "b"]


@pytest.mark.parametrize("text", ["adapters: []\n", '{"base_models": [], "adapters": []}'])
def test_a_file_may_declare_nothing(text: str) -> None:
    assert parse_declarations(text) == []


@pytest.mark.parametrize("text", ["", "# nothing\n", "{}", "---\n", "null"])
def test_a_file_without_any_list_is_taken_for_a_mistake(text: str) -> None:
    with pytest.raises(InvalidInputError, match="base_models, adapters"):
        parse_declarations(text)


ADAPTER = "adapters:\n  - name: a\n    base_model: b\n    path: /a\n"


@pytest.mark.parametrize(
    ("text", "message", "path"),
    [
        (ADAPTER + "    rank: 0\n", "line 5: adapters.0.rank: ", "adapters.0.rank"),
        (ADAPTER + "    rank: '8'\n", "line 5: adapters.0.rank: ", "adapters.0.rank"),
        (ADAPTER + "    rank: yes\n", "line 5: adapters.0.rank: ", "adapters.0.rank"),
        (ADAPTER, "line 2: adapters.0.rank: Field required", "adapters.0.rank"),
        (ADAPTER + "    rnak: 8\n    rank: 8\n", "line 5: adapters.0.rnak: ", "adapters.0.rnak"),
        (
            ADAPTER.replace("name: a", "name: a,b") + "    rank: 8\n",
            "line 2: adapters.0.name: ",
            "adapters.0.name",
        ),
        (ADAPTER.replace("name: a", "name: 7") + "    rank: 8\n", "line 2: ", "adapters.0.name"),
        ("adapters:\n  name: a\n", "line 2: adapters: ", "adapters"),
        ("adapter: []\n", "line 1: adapter: ", "adapter"),
        ("- a\n", "line 1: file: ", "file"),
        ("just text\n", "line 1: file: ", "file"),
        ("adapters: []\nadapters: []\n", "line 2: 'adapters' is there twice", "adapters"),
        ("base_models:\n  - name: x\n  - name: x\n", "line 3: 'x' is declared on line 2", "name"),
        (
            "base_models:\n  - name: a\n" + ADAPTER + "    rank: 8\n",
            "line 4: 'a' is declared on line 2",
            "name",
        ),
        ("adapters: [\n", "line 2: ", None),
        ("adapters:\n\t- a\n", "line 2: ", None),
        ("a: 1\n---\nb: 2\n", "line 2: ", None),
        ("adapters: !!python/object:os.system {}\n", "line 1: ", "adapters"),
        ("adapters: !!python/name:os.system x\n", "line 1: ", None),
        ("adapters: !!int x\n", "line 1: ", None),
        ("adapters: *nowhere\n", "line 1: ", None),
    ],
)
def test_an_error_names_line_and_field(text: str, message: str, path: str | None) -> None:
    with pytest.raises(InvalidInputError) as error:
        parse_declarations(text)
    assert str(error.value).startswith(message)
    assert error.value.path == path


def test_all_errors_are_told_up_to_a_bound() -> None:
    wrong = ERRORS_SHOWN_MAX + 3
    entries = [{"name": f"a{i}", "base_model": "b", "path": "/p", "rank": 0} for i in range(wrong)]
    with pytest.raises(InvalidInputError) as error:
        parse_declarations(yaml.safe_dump({"adapters": entries}))
    lines = str(error.value).splitlines()
    assert len(lines) == ERRORS_SHOWN_MAX + 1
    assert lines[-1] == "and 3 more"


@pytest.mark.parametrize(
    "text",
    [
        "a: &a [x, x, x, x, x, x, x, x, x, x]\n"
        + "".join(
            f"{chr(98 + n)}: &{chr(98 + n)} [{', '.join([f'*{chr(97 + n)}'] * 10)}]\n"
            for n in range(6)
        ),
        "a: &a [*a]\n",
        "[" * (DEPTH_MAX + 2) + "]" * (DEPTH_MAX + 2),
    ],
    ids=["aliases of aliases", "itself", "deep"],
)
def test_a_file_that_would_unfold_without_end_is_refused(text: str) -> None:
    with pytest.raises(InvalidInputError, match="too"):
        parse_declarations(text)


def test_a_file_above_the_bound_or_of_other_text_is_refused() -> None:
    with pytest.raises(InvalidInputError, match="above"):
        read_declarations(io.BytesIO(b"#" * (FILE_BYTES_MAX + 1)))
    with pytest.raises(InvalidInputError, match="no UTF-8"):
        read_declarations(io.BytesIO(b"adapters: [\xff]"))
