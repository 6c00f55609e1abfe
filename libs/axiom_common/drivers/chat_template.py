"""A base model's chat template, rendered as engines render it, in a sandbox and within bounds.

Engines render by transformers: Jinja's immutable sandbox, `tojson` that escapes nothing, loop
controls, `generation` blocks, `raise_exception` and `strftime_now`. The same is given here.

Bounds: steps (one for each turn of a loop and each call), processor time (looked at every few
steps, and while JSON is laid out), and bytes of output. What they don't cover is one step alone: a
template that doubles a string in each of thirty turns fills the memory. Templates come from who
runs the fleet; requests bring only values, whose size and number of parts the caller bounds.
"""

from __future__ import annotations

import json
import time
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from functools import lru_cache
from typing import Any

import jinja2
from jinja2 import meta, nodes
from jinja2.ext import Extension, loopcontrols
from jinja2.parser import Parser
from jinja2.runtime import Context, Macro
from jinja2.sandbox import ImmutableSandboxedEnvironment

from axiom_common.drivers.chat_template_shape import knows_developer, takes_parts
from axiom_common.errors import InvalidInputError

MARK = "\ufdd0"
"""No character, and in no text: what is rendered is known up to where the first one stands."""

_CLOCKS_APART = timedelta(seconds=5)
"""Where a date that a template asks for would be another so much earlier or later, the engine's may
be another too."""
_STEPS_A_LOOK = 16
_POWER_MAX = 64
_COUNTED = "axiom_counted"


class BadTemplateError(InvalidInputError):
    """A template that can't be compiled."""

    code = "bad-chat-template"


class NotRenderedError(Exception):
    """The template refused these values, or failed over them: an engine would answer 400."""


class OverLimitError(NotRenderedError):
    """Rendering would take more than it may."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RenderLimits:
    """Of one rendering."""

    steps: int = 200_000
    cpu_s: float = 0.02
    chars: int = 16 << 20
    json_chars: int = 1 << 20
    """Of one value that is laid out with indents: few nested ones make many."""


class ChatTemplate:
    """One template. Not for several threads at once.

    `source`: as written. `names`: variables that it reads. `takes_parts`: whether content goes in
    as a list of parts. `knows_developer`: whether it has that role.
    """

    def __init__(self, source: str, limits: RenderLimits = RenderLimits()) -> None:
        """BadTemplateError when it does not compile."""
        self.source = source
        self._limits = limits
        self._sandbox = _Sandbox()
        try:
            tree = self._sandbox.parse(source)
            self.names = frozenset(meta.find_undeclared_variables(self._sandbox.parse(source)))
            self.takes_parts = takes_parts(tree)
            for loop in list(tree.find_all(nodes.For)):
                loop.iter = nodes.Filter(loop.iter, _COUNTED, [], [], None, None)
            code = self._sandbox.compile(tree)
        except (jinja2.TemplateError, RecursionError) as error:
            raise BadTemplateError(f"a chat template that does not compile: {error}") from error
        self._template = jinja2.Template.from_code(
            self._sandbox, code, self._sandbox.make_globals(None)
        )
        self.knows_developer = knows_developer(source)

    def render(self, values: Mapping[str, Any], now: datetime) -> str:
        """The text, in which MARK stands where the date is uncertain; NotRenderedError."""
        self._sandbox.begin(self._limits, now)
        try:
            text = self._rendered(values)
        except NotRenderedError:
            raise
        except Exception as error:  # whatever a template does over values that clients chose
            raise NotRenderedError(str(error)[:300]) from error
        if self._sandbox.date_is_uncertain and MARK not in text:
            raise NotRenderedError("it made something else of a date that is uncertain")
        return text

    def _rendered(self, values: Mapping[str, Any]) -> str:
        template = self._template
        pieces, left = [], self._limits.chars
        for piece in template.root_render_func(template.new_context(dict(values))):
            left -= len(piece)
            if left < 0:
                raise OverLimitError("its text is too long")
            pieces.append(piece)
        return "".join(pieces)


@lru_cache(maxsize=64)
def compiled(source: str) -> ChatTemplate:
    """Base models that have the same template share it."""
    return ChatTemplate(source)


class _Generation(Extension):
    """`{% generation %}`: what an assistant said, for training. Here it is just text."""

    tags = {"generation"}  # noqa: RUF012  (so it is in the base class)

    def parse(self, parser: Parser) -> nodes.Node:
        line = next(parser.stream).lineno
        body = parser.parse_statements(("name:endgeneration",), drop_needle=True)
        return nodes.CallBlock(self.call_method("_text"), [], [], body).set_lineno(line)

    def _text(self, caller: Macro) -> str:
        return str(caller())


class _Sandbox(ImmutableSandboxedEnvironment):
    """Has room for one rendering at a time, from `begin` on."""

    intercepted_binops = frozenset(("*", "**"))

    def __init__(self) -> None:
        super().__init__(
            trim_blocks=True, lstrip_blocks=True, extensions=[_Generation, loopcontrols]
        )
        self.filters["tojson"] = self._to_json
        self.filters[_COUNTED] = self._counted
        self.globals["raise_exception"] = _refuse
        self.globals["strftime_now"] = self._date
        self.begin(RenderLimits(), datetime.min)

    def begin(self, limits: RenderLimits, now: datetime) -> None:
        self.date_is_uncertain = False
        self._limits, self._now = limits, now
        self._steps = 0
        self._until = time.thread_time() + limits.cpu_s

    def call(self, context: Context, called: Any, /, *args: Any, **kwargs: Any) -> Any:
        self._step()
        return super().call(context, called, *args, **kwargs)

    def call_binop(self, context: Context, operator: str, left: Any, right: Any) -> Any:
        if operator == "**":
            too_large = isinstance(right, int) and right > _POWER_MAX
        else:
            too_large = any(
                isinstance(times, int)
                and hasattr(value, "__len__")
                and times * len(value) > self._limits.chars
                for times, value in ((left, right), (right, left))
            )
        if too_large:
            raise OverLimitError("a value is too large")
        return super().call_binop(context, operator, left, right)

    def _counted(self, items: Iterable[Any]) -> Iterator[Any]:
        for item in items:
            self._step()
            yield item

    def _to_json(
        self,
        value: Any,
        ensure_ascii: bool = False,
        indent: int | None = None,
        separators: tuple[str, str] | None = None,
        sort_keys: bool = False,
    ) -> str:
        encoder = json.JSONEncoder(
            ensure_ascii=ensure_ascii, indent=indent, separators=separators, sort_keys=sort_keys
        )
        if indent is None:
            self._look()
            return encoder.encode(value)
        pieces, left = [], self._limits.json_chars
        for number, piece in enumerate(encoder.iterencode(value)):
            left -= len(piece)
            if left < 0:
                raise OverLimitError("its JSON is too long")
            if not number % _STEPS_A_LOOK:
                self._look()
            pieces.append(piece)
        return "".join(pieces)

    def _step(self) -> None:
        self._steps += 1
        if not self._steps % _STEPS_A_LOOK:
            self._look()

    def _look(self) -> None:
        if self._steps > self._limits.steps or time.thread_time() > self._until:
            raise OverLimitError("it takes too many steps")

    def _date(self, wanted: str) -> str:
        told = self._now.strftime(wanted)
        for apart in (-_CLOCKS_APART, _CLOCKS_APART):
            if (self._now + apart).strftime(wanted) != told:
                self.date_is_uncertain = True
                return MARK
        return told


def _refuse(message: str) -> None:
    raise NotRenderedError(str(message)[:300])
