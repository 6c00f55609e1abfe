"""What a chat template's source says of how engines prepare messages for it.

vLLM looks at the template itself to find out whether it takes a message's content as one string or
as a list of parts. The same is done here, over Jinja's own syntax tree; a template that vLLM would
take wrongly has to be taken wrongly here too.
"""

from __future__ import annotations

from collections.abc import Iterator

from jinja2 import nodes


class _UnusualError(Exception):
    """The template is not of a form that vLLM's search covers; it takes the content as a string."""


def takes_parts(template: nodes.Template) -> bool:
    """Whether messages' content goes into a template as a list of parts: it loops over them."""
    try:
        return any(True for _ in _loops_over_content(template))
    except _UnusualError:
        return False


def knows_developer(source: str) -> bool:
    """Whether a template has words for the role "developer"; else it becomes "system"."""
    return '"developer"' in source or "'developer'" in source


def _loops_over_content(template: nodes.Template) -> Iterator[None]:
    messages = set(_message_names(template))
    in_macros: set[int] = set()
    fed: dict[int, set[str]] = {}
    for macro in template.find_all(nodes.Macro):
        for loop in macro.find_all(nodes.For):
            in_macros.add(id(loop))
            fed[id(loop)] = _fed_with_content(template, macro, messages)
    for loop in template.find_all(nodes.For):
        over = loop.iter.name if isinstance(loop.iter, nodes.Name) else None
        if (
            any(_reads(loop.iter, name, "content") for name in messages)
            or over in fed.get(id(loop), ())
            or (over == "content" and id(loop) not in in_macros)
        ):
            _named(loop.target)
            yield


def _message_names(template: nodes.Template) -> Iterator[str]:
    """Names that loops over the messages give to one of them."""
    lists = ["messages"]
    for known in lists:
        for assign in template.find_all(nodes.Assign):
            if _reads(assign.node, known) and (name := _named(assign.target)) not in lists:
                lists.append(name)
    for loop in template.find_all(nodes.For):
        if any(_reads(loop.iter, name) for name in lists):
            yield _named(loop.target)


def _fed_with_content(template: nodes.Template, macro: nodes.Macro, messages: set[str]) -> set[str]:
    """Parameters of a macro that are a message's content where it is called."""

    def is_content(value: nodes.Expr) -> bool:
        return any(_reads(value, name, "content") for name in messages)

    names = [parameter.name for parameter in macro.args]
    found: set[str] = set()
    for call in template.find_all(nodes.Call):
        if isinstance(call.node, nodes.Name) and call.node.name == macro.name:
            found |= {n for n, value in zip(names, call.args, strict=False) if is_content(value)}
            found |= {k.key for k in call.kwargs if k.key in names and is_content(k.value)}
    return found


def _reads(node: nodes.Node | None, name: str, key: str | None = None) -> bool:
    """Whether an expression is a variable, or a member of it, at most filtered or sliced."""
    if isinstance(node, nodes.Filter | nodes.Test) or (
        isinstance(node, nodes.Getitem) and isinstance(node.arg, nodes.Slice)
    ):
        return _reads(node.node, name, key)
    if key is not None:
        if isinstance(node, nodes.Getitem):
            is_member = isinstance(node.arg, nodes.Const) and node.arg.value == key
        else:
            is_member = isinstance(node, nodes.Getattr) and node.attr == key
        if not is_member:
            return False
        node = node.node  # type: ignore[union-attr]
    return isinstance(node, nodes.Name) and node.ctx == "load" and node.name == name


def _named(target: nodes.Node) -> str:
    if not isinstance(target, nodes.Name):
        raise _UnusualError
    return target.name
