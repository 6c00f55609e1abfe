"""YAML as scenarios need it: one mapping of plain values, bounded, each key once.

No aliases: a few lines of them can stand for gigabytes. No keys that are themselves collections.
"""

from __future__ import annotations

from typing import Any

import yaml

from axiom_common.errors import InvalidInputError

Tree = dict[Any, Any]
"""A mapping of YAML: keys are text or numbers, values plain values, lists and mappings."""

BYTES_MAX = 256 * 1024
_DEPTH_MAX = 16


def read_tree(name: str, content: bytes) -> Tree:
    """The mapping that a file holds; `name` is for what is wrong, told in one line."""
    if len(content) > BYTES_MAX:
        raise InvalidInputError(f"{name}: a scenario has at most {BYTES_MAX // 1024} KiB")
    try:
        # A safe loader all the same: it only reads less than the safe one.
        tree = yaml.load(content.decode(), Loader=_Loader)
    except yaml.MarkedYAMLError as error:
        line = "" if error.problem_mark is None else f", line {error.problem_mark.line + 1}"
        raise InvalidInputError(f"{name}{line}: {_one_line(error.problem)}") from error
    except (yaml.YAMLError, ValueError, OverflowError) as error:
        raise InvalidInputError(f"{name}: not YAML: {_one_line(error)}") from error
    if not isinstance(tree, dict):
        raise InvalidInputError(f"{name}: a scenario is a mapping of fields to values")
    return tree


def _one_line(problem: object) -> str:
    return " ".join(str(problem).split())[:200]


class _Loader(yaml.SafeLoader):
    """Refuses aliases, deep nesting, and a key that stands twice."""

    _depth = 0

    def compose_node(self, parent: yaml.Node | None, index: Any) -> yaml.Node | None:
        event: yaml.Event = self.peek_event()  # type: ignore[no-untyped-call]
        if isinstance(event, yaml.AliasEvent):
            raise self._refusal("aliases are not read here", event.start_mark)
        self._depth += 1
        if self._depth > _DEPTH_MAX:
            raise self._refusal(f"nested deeper than {_DEPTH_MAX}", event.start_mark)
        node = super().compose_node(parent, index)
        self._depth -= 1
        return node

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> Tree:
        seen = set()
        for key_node, _ in node.value:
            if not isinstance(key_node, yaml.ScalarNode):
                raise self._refusal("a key must be plain text or a number", key_node.start_mark)
            key = self.construct_object(key_node)
            if key in seen:
                raise self._refusal(f"the key {key!r} stands twice", key_node.start_mark)
            seen.add(key)
        return super().construct_mapping(node, deep=deep)

    def _refusal(self, problem: str, mark: Any) -> yaml.MarkedYAMLError:
        return yaml.MarkedYAMLError(problem=problem, problem_mark=mark)
