"""Chats become the text that the real vLLM makes of them (recorded: tests/engine/record_chats.py),
within bounds, and up to what is not text."""

from __future__ import annotations

import json
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from jinja2.sandbox import SandboxedEnvironment
from tests.chat_parts import CHATS, TEMPLATES
from tests.prompt_parts import THEN, text_of, texts_in, told_of

from axiom_common.drivers.chat_template import (
    MARK,
    BadTemplateError,
    ChatTemplate,
    NotRenderedError,
    OverLimitError,
    RenderLimits,
)
from axiom_common.model.prefix import PromptText, Untold
from axiom_gateway.chat_messages import PARTS_MAX
from axiom_gateway.prompt_text import PromptTexts

RECORDED = json.loads((Path(__file__).parent.parent / "recorded" / "chats.json").read_text())
IMAGE = {"type": "image_url", "image_url": {"url": "http://x/y.png"}}


@pytest.fixture(scope="module")
def texts(tmp_path_factory: pytest.TempPathFactory) -> PromptTexts:
    return texts_in(tmp_path_factory.mktemp("models"))


@pytest.mark.parametrize("template", TEMPLATES)
def test_the_text_is_what_vllm_makes(texts: PromptTexts, template: str) -> None:
    recorded = RECORDED["chats"][template]
    assert recorded.keys() == CHATS.keys()
    for name, body in CHATS.items():
        told = told_of(texts, template, body)
        text = told.text.decode() if isinstance(told, PromptText) else None
        assert text == recorded[name], name


@pytest.mark.parametrize(
    ("chat", "reason"),
    [
        ({"messages": [{"role": "user", "content": 5}]}, Untold.MALFORMED),
        ({"messages": [{"role": 1, "content": "x"}]}, Untold.MALFORMED),
        ({"messages": [{"role": "critic", "content": "x"}]}, Untold.TEMPLATE),
    ],
)
def test_what_is_refused_has_a_reason(texts: PromptTexts, chat: Any, reason: Untold) -> None:
    assert told_of(texts, "date", chat) is reason


@pytest.mark.parametrize("template", ["parts", "chatml", "developer", "moves-system"])
def test_text_ends_where_something_else_stands(texts: PromptTexts, template: str) -> None:
    def chat(*content: Any) -> dict[str, Any]:
        return {
            "messages": [{"role": "user", "content": "one"}, {"role": "user", "content": content}]
        }

    words = {"type": "text", "text": "two"}
    told = text_of(texts, template, chat(words, IMAGE, words))
    assert "one" in told
    assert MARK not in told
    assert text_of(texts, template, chat(words, words)).startswith(told)
    assert ("two" in told) == (template in ("parts", "developer"))
    for part in ({"type": "input_audio", "input_audio": {}}, {"video_url": {"url": "x"}}):
        assert text_of(texts, template, chat(words, part)) == told


def test_a_template_that_looks_for_images_is_believed(tmp_path: Path) -> None:
    source = (
        "{%- set ns = namespace(image=false) -%}{%- for m in messages -%}{%- for p in m.content -%}"
        "{%- if p.type == 'image' %}{% set ns.image = true %}{% endif -%}"
        "{%- endfor -%}{%- endfor -%}"
        "{{ 'with' if ns.image else 'without' }}{%- for m in messages -%}{%- for p in m.content -%}"
        "{{ p.text }}{%- endfor -%}{%- endfor -%}"
    )
    texts = texts_in(tmp_path, {"m": source})
    chat = {"messages": [{"role": "user", "content": ["x", IMAGE]}]}
    assert text_of(texts, "m", chat) == "with"


def test_a_date_that_may_be_another_at_the_engine_ends_the_text(tmp_path: Path) -> None:
    chat = {"messages": [{"role": "user", "content": "x"}]}
    night = datetime(2026, 5, 6, 23, 59, 58)
    for now, text in (
        (night, "Today is"),
        (night + timedelta(seconds=4), "Today is"),
        (night + timedelta(seconds=9), "Today is 07 May 2026.\nuser: x"),
        (night - timedelta(seconds=9), "Today is 06 May 2026.\nuser: x"),
    ):
        texts = texts_in(tmp_path, {"date": TEMPLATES["date"]}, lambda now=now: now)  # type: ignore[misc]
        assert text_of(texts, "date", chat).strip() == text
    hidden = ChatTemplate("{{ 'late' if strftime_now('%S') | int > 30 else 'early' }}")
    with pytest.raises(NotRenderedError):
        hidden.render({}, THEN)


@pytest.mark.parametrize(
    "source",
    [
        "{% for a in range(1000) %}{% for b in range(1000) %}{% endfor %}{% endfor %}",
        "{% for a in range(9000) %}{% for b in [a, a] | map('string') %}{% endfor %}{% endfor %}",
        "{% macro f(n) %}{% if n %}{{ f(n - 1) + f(n - 1) }}{% endif %}{% endmacro %}{{ f(40) }}",
        "{% for a in range(1000) %}{{ 'x' * 1000 }}{% endfor %}",
        "{{ 'x' * 1000000000000 }}",
        "{{ 10 ** 1000000000 }}",
    ],
)
def test_what_takes_too_much_is_given_up(source: str) -> None:
    limits = RenderLimits(steps=20_000, cpu_s=60, chars=100_000)
    with pytest.raises(OverLimitError):
        ChatTemplate(source, limits).render({}, THEN)


def test_processor_time_is_bounded() -> None:
    limits = RenderLimits(steps=10**9, cpu_s=0.01)
    source = "{% for a in range(90000) %}{% for b in range(90000) %}{% endfor %}{% endfor %}"
    with pytest.raises(OverLimitError):
        ChatTemplate(source, limits).render({}, THEN)
    assert ChatTemplate("ok", limits).render({}, THEN) == "ok"


@pytest.mark.parametrize(
    "source",
    [
        "{{ messages.__class__.__mro__ }}{{ messages.__class__.__mro__[1].x.y }}",
        "{{ messages.append(1) }}",
        "{{ nothing.at.all }}",
        "{% macro f() %}{{ f() }}{% endmacro %}{{ f() }}",
        "{{ raise_exception('no') }}",
        "{{ 1 / 0 }}",
        "{% include 'file' %}",
    ],
)
def test_whatever_a_template_does_is_not_rendered(source: str) -> None:
    with pytest.raises(NotRenderedError):
        ChatTemplate(source).render({"messages": [1]}, THEN)


def test_counting_turns_changes_no_loop() -> None:
    source = (
        "{% for x in xs %}{{ loop.index }}/{{ loop.length }}{{ loop.revindex0 }}{{ loop.last }}"
        "{{ loop.previtem }}{{ loop.nextitem }}{{ loop.cycle('a', 'b') }}{% else %}none{% endfor %}"
        "{% for k, v in m.items() if v %}{{ k }}{% endfor %}{% for c in 'añ' %}{{ c }}.{% endfor %}"
        "{% for t in tree recursive %}({{ t.n }}{{ loop(t.kids) }}){% endfor %}"
        "{% for x in undefined_one %}x{% else %}-{% endfor %}"
        "{% for x in xs %}{% break %}{% endfor %}"
    )
    tree = [{"n": 1, "kids": [{"n": 2, "kids": []}]}]
    values = {"xs": "pq", "m": {"a": 1, "b": 0}, "tree": tree}
    plain = SandboxedEnvironment(extensions=["jinja2.ext.loopcontrols"]).from_string(source)
    assert ChatTemplate(source).render(values, THEN) == plain.render(values)


def test_templates_that_do_not_compile_are_bad() -> None:
    for source in ("{% for %}", "{{ x | nofilter }}", "{% if %}", "{{"):
        with pytest.raises(BadTemplateError):
            ChatTemplate(source)


def test_a_prompt_of_too_many_bytes_is_not_rendered(
    texts: PromptTexts, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("axiom_gateway.prompt_text.PROMPT_BYTES_MAX", 100)
    chat = {"messages": [{"role": "user", "content": "x" * 100}]}
    assert told_of(texts, "chatml", chat) is Untold.OVER_LIMIT
    tools = [{"function": {"name": "f", "description": "x" * 100}}]
    chat = {"messages": [{"role": "user", "content": "x"}]}
    assert isinstance(told_of(texts, "chatml", chat), PromptText)
    assert told_of(texts, "chatml", chat | {"tools": tools}) is Untold.OVER_LIMIT


@pytest.mark.parametrize("template", ["chatml", "parts"])
def test_a_chat_of_too_many_parts_is_not_rendered(texts: PromptTexts, template: str) -> None:
    many = {"role": "user", "content": ["x"] * (PARTS_MAX - 2)}
    one = {"role": "user", "content": "x"}
    assert isinstance(told_of(texts, template, {"messages": [many, one]}), PromptText)
    assert told_of(texts, template, {"messages": [many, one, one]}) is Untold.OVER_LIMIT


def _branch(depth: int) -> object:
    return {} if not depth else {"a": _branch(depth - 1)}


@pytest.mark.parametrize(
    "more",
    [
        {"tools": [{"type": "function", "function": {"name": "f"}}] * 20_000},
        {"tools": [{"function": {"name": "f", "parameters": {"a": ["x"] * 30_000}}}]},
        {"chat_template_kwargs": {"colour": ["x"] * 30_000}},
        {
            "messages": [
                {
                    "role": "assistant",
                    "content": "",
                    "tool_calls": [
                        {
                            "id": "c",
                            "type": "function",
                            "function": {"name": "f", "arguments": f'{{"a":[{"1," * 9_000}1]}}'},
                        }
                    ]
                    * 5,
                }
            ]
        },
        {"messages": [{"role": "user", "content": "x"}] * 8_192},
        {"messages": [{"role": "user", "content": "<s>e\u0301" * 100_000}]},
        {"messages": [{"role": "user", "content": "e\u0301" * 300_000}]},
    ],
)
def test_what_would_keep_others_waiting_is_not_rendered(
    texts: PromptTexts, more: dict[str, Any]
) -> None:
    chat: dict[str, Any] = {"messages": [{"role": "user", "content": "x"}]}
    assert isinstance(told_of(texts, "chatml", chat), PromptText)
    assert told_of(texts, "chatml", chat | more) is Untold.OVER_LIMIT


def test_few_nested_values_that_make_a_long_layout_are_given_up() -> None:
    layout = ChatTemplate("{{ tool | tojson(indent=4) }}")
    tool = {"parameters": [_branch(400)] * 20}
    with pytest.raises(OverLimitError):
        layout.render({"tool": tool}, THEN)
    small = {"a": [1, {"b": "ü"}]}
    assert layout.render({"tool": small}, THEN) == json.dumps(small, indent=4, ensure_ascii=False)


def test_large_prompts_of_few_parts_keep_their_text(texts: PromptTexts) -> None:
    said = "What is due is due. " * 320
    tools = [{"function": {"name": f"f{n}", "description": "x" * 900}} for n in range(30)]
    for chat in (
        {"messages": [{"role": "user", "content": said}] * 20},
        {"messages": [{"role": "user", "content": "x" * 2_000_000}]},
        {"messages": [{"role": "user", "content": "<s>" + "e\u0301" * 60_000}]},
        {"messages": [{"role": "user", "content": "x"}], "tools": tools},
    ):
        assert isinstance(told_of(texts, "chatml", chat), PromptText)
